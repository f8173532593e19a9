"""The steps of the image, without a container: install, first start, health, stop, second start."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.e2e.server_process import ROOT
from tests.house.sources import repository_files

READY_TEXT = "queue server listening"
BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)
SECONDS_MAX = 300  # hang guard; packages come from a registry


def environment(**more: str) -> dict[str, str]:
    """Nothing of ours, but how packages are reached."""
    kept = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or "proxy" in k.lower()}
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", **kept, **more}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of an image, laid out from the files git knows."""
    directory = tmp_path_factory.mktemp("image")
    source, root = directory / "source", directory / "root"
    for path in repository_files():
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, target)
    subprocess.run(
        ["sh", "source/tools/deploy/image/install", "source", "root"],  # relative, as people write
        cwd=directory,
        env=environment(
            PYTHON=BASE_PYTHON,
            FINAL=str(root / "opt/sepp"),
            HOME=os.environ.get("HOME", str(directory)),  # pip's cache
            PIP_NO_COMPILE="1",  # takes longest, and is no step of ours
        ),
        check=True,
        timeout=SECONDS_MAX,
    )
    shutil.rmtree(source)  # nothing may lead back to it
    return root


class Container:
    """A run of the entrypoint."""

    def __init__(self, root: Path, **variables: str) -> None:
        config = root / "etc/sepp/sepp.toml"
        self.process = subprocess.Popen(
            [str(root / "opt/sepp/bin/entrypoint")],
            cwd=root / "sepp",
            env=environment(SEPP_CONFIG=str(config), **variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._ready.wait(SECONDS_MAX), "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self.lines.append(line)
                if READY_TEXT in line:
                    self._ready.set()
        self._ready.set()

    def value(self, name: str) -> str:
        """A field of the readiness line."""
        (line,) = [line for line in self.lines if READY_TEXT in line]
        return line.partition(f"{name}=")[2].split()[0]

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(SECONDS_MAX)
        self._reader.join()
        return code


def health(root: Path, address: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(root / "opt/sepp/bin/sepp-trio"), "health", "--addr", address],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


def test_the_first_start_makes_a_key_and_serves_and_the_second_keeps_both(image: Path) -> None:
    ports = {"SEPP_SERVER__LISTEN_ADDR": "127.0.0.1:0", "SEPP_ADMIN__ENABLED": "false"}
    first = Container(image, **ports)
    address = first.value("addr")
    asked = health(image, address)
    assert (asked.returncode, asked.stdout) == (0, "SERVING\n")
    assert first.stop() == 0
    assert health(image, address).returncode == 1

    config = (image / "etc/sepp/sepp.toml").read_text()
    (key,) = [line.split()[2] for line in first.lines if line.startswith("admin key:")]
    assert config.count(f'key = "{key}"') == 1
    assert 'listen_addr = "0.0.0.0:9465"' in config
    assert (image / "etc/sepp/sepp.toml").stat().st_mode & 0o077 == 0
    assert [path.name for path in (image / "sepp").iterdir()] == ["sepp-data"]

    second = Container(image, **ports)
    assert second.stop() == 0
    assert (image / "etc/sepp/sepp.toml").read_text() == config
    assert not any("admin key" in line for line in second.lines)


def test_the_image_is_what_the_dockerfile_says() -> None:
    text = (ROOT / "Dockerfile").read_text()

    assert "sh /src/tools/deploy/image/install /src /image" in text
    assert "USER 65532:65532" in text
    assert 'VOLUME ["/sepp/sepp-data", "/etc/sepp"]' in text
    assert "EXPOSE 50051 9464 9465" in text
    assert 'ENTRYPOINT ["/opt/sepp/bin/entrypoint"]' in text
    assert '"sepp-trio", "health"' in text
    for word in ("password", "admin/admin", "ADD http", "curl"):
        assert word not in text.replace("no password built in", "")
