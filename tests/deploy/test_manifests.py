"""Unit, manifest, dashboard and alerts: well-formed, and in step with the server."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from sepp.config.model import Config
from sepp.metrics import families, store_families
from sepp.metrics.families import Family
from tests.e2e.server_process import ROOT

DEPLOY = ROOT / "tools/deploy"
KUBERNETES = ("1.29", "1.31", "1.33")
# Shown beside ours by any Python process that Prometheus' client describes.
STANDARD = {
    "process_start_time_seconds",
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "process_open_fds",
}


def sample_names() -> set[str]:
    """Every name a scrape can hold."""
    names = set(STANDARD)
    for module in (families, store_families):
        for value in vars(module).values():
            for each in value.values() if isinstance(value, dict) else [value]:
                if isinstance(each, Family):
                    histogram = ("_bucket", "_sum", "_count")
                    suffixes = histogram if each.kind == "histogram" else ("",)
                    names |= {each.name + suffix for suffix in suffixes}
    return names


def expressions() -> list[str]:
    """All PromQL of dashboard and alerts."""
    found = [rule["expr"] for rule in alerts()]
    for panel in dashboard()["panels"]:
        found += [target["expr"] for target in panel.get("targets", ())]
    return found


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return loaded


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "statefulset.yaml").read_text()))


def test_the_unit_passes_systemds_own_check(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    text = (DEPLOY / "sepp-trio.service").read_text()
    unit = tmp_path / "sepp-trio.service"
    # The check wants a command that exists.
    unit.write_text(re.sub(r"^ExecStart=.*$", "ExecStart=/bin/true", text, flags=re.M))

    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_matches_the_server() -> None:
    text = (DEPLOY / "sepp-trio.service").read_text()
    settings = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"^\w+=", line))

    assert settings["Type"] == "notify"
    assert int(settings["TimeoutStopSec"]) * 1000 > Config().server.shutdown_grace_ms
    assert int(settings["LimitNOFILE"]) > Config().transport.max_connections * 2
    assert settings["ExecStart"].split()[1:] == ["serve", "--config", "/etc/sepp/sepp.toml"]


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_manifest_fits_the_schema(version: str) -> None:
    kinds = []
    for document in documents():
        kubernetes_validate.validate(document, version, strict=True)
        kinds.append(document["kind"])
    assert kinds == ["Service", "StatefulSet"]


def test_the_manifest_matches_the_server() -> None:
    (stateful,) = [each for each in documents() if each["kind"] == "StatefulSet"]
    spec = stateful["spec"]["template"]["spec"]
    (container,) = spec["containers"]

    assert stateful["spec"]["replicas"] == 1
    assert spec["securityContext"]["runAsUser"] == 65532
    assert spec["terminationGracePeriodSeconds"] * 1000 > Config().server.shutdown_grace_ms
    assert container["livenessProbe"]["grpc"]["service"] == ""
    assert container["readinessProbe"]["grpc"]["service"] == "sepp.v1.QueueService"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    config = Config()
    assert ports == {
        "grpc": port_of(config.server.listen_addr),
        "metrics": port_of(config.metrics.prometheus_listen_addr),
        "admin": port_of(config.admin.listen_addr),
    }


def port_of(addr: str) -> int:
    return int(addr.rpartition(":")[2])


def test_dashboard_and_alerts_name_metrics_that_exist() -> None:
    named = {name for text in expressions() for name in re.findall(r"\b(?:sepp|process)_\w+", text)}

    assert named - sample_names() == set()


@pytest.mark.parametrize("text", expressions())
def test_an_expression_is_balanced_and_says_how_counters_grow(text: str) -> None:
    assert [text.count(c) for c in "({["] == [text.count(c) for c in ")}]"]
    for name in re.findall(r"\bsepp_\w+(?:_total|_bucket|_sum|_count)\b", text):
        if "damaged" not in name:  # one is too many, however long ago
            pattern = rf"(?:rate|increase)\({name}(?:{{[^}}]*}})?\["
            assert re.search(pattern, text), f"{name} without rate or increase"


def test_alerts_have_a_severity_and_say_what_is_wrong() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names)) == 17
    for rule in alerts():
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"].endswith(".")


def test_panels_of_the_dashboard_have_ids_of_their_own_and_lie_side_by_side() -> None:
    panels = dashboard()["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(ids) == len(set(ids))
    cells = set()
    for panel in panels:
        grid = panel["gridPos"]
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                assert x < 24
                assert (x, y) not in cells
                cells.add((x, y))


def test_every_alert_is_in_the_handbook() -> None:
    handbook = (ROOT / "sepp/OPERATING.md").read_text()
    assert [rule["alert"] for rule in alerts() if rule["alert"] not in handbook] == []
