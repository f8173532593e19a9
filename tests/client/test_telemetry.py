"""Spans and figures with the otel extra; and that there are none without a provider."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from sepp.client import TraceContext, telemetry
from tests.e2e.server_process import ROOT, ServerProcess, clean_environment

pytestmark = pytest.mark.skipif(
    find_spec("opentelemetry.sdk") is None, reason="the extra otel is not installed"
)


def test_spans_and_figures_have_the_names_of_the_official_client(shared: ServerProcess) -> None:
    program = Path(__file__).parent / "traced.py"
    done = subprocess.run(
        [sys.executable, str(program), shared.address],
        cwd=ROOT,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    recorded = json.loads(done.stdout)

    spans = {span["name"]: span for span in recorded["spans"]}
    assert spans.keys() >= {
        "sepp.enqueue",
        "sepp.reserve",
        "sepp.process",
        "sepp.ack",
        "sepp.nack",
    }
    enqueue, process = spans["sepp.enqueue"], spans["sepp.process"]
    assert (enqueue["kind"], process["kind"]) == ("CLIENT", "CONSUMER")
    assert enqueue["trace"] == spans["app"]["trace"]
    assert process["links"] == [enqueue["span"]]
    figures = recorded["figures"]
    assert figures["sepp.jobs.processed"] == 1
    assert figures["sepp.jobs.nacked"] == 1
    assert figures["sepp.jobs.in_flight"] == 0
    assert figures["sepp.reserves.completed"] >= 1


def test_without_a_provider_nothing_is_recorded_or_sent() -> None:
    assert telemetry.metadata() == ()
    assert TraceContext.from_current_otel() is None
    with telemetry.client_span("sepp.enqueue"):
        assert telemetry.current_headers() is None


def test_a_trace_context_can_be_bridged_by_hand() -> None:
    context = TraceContext("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", "a=b")

    with context.attach_to_otel():
        assert TraceContext.from_current_otel() == context

    assert context.otel_span_context().span_id == 0x0123456789ABCDEF
