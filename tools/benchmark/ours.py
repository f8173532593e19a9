"""Our own server as a subject: with the thin load generator, and with the official client."""

import sys
from importlib.util import find_spec
from pathlib import Path

from tools import environment
from tools.benchmark.peers import ROOT, sepp_py_python
from tools.benchmark.processes import RunError
from tools.benchmark.subjects import Subject, python_driver

PERSIST_MODES = ("sync_all", "sync_data", "buffer")
DURABLE = {
    "sync_all": "persist_mode sync_all (the default)",
    "sync_data": "persist_mode sync_data",
    "buffer": "persist_mode buffer: not synced",
}


def default_python() -> str:
    """The Python that has what the server needs: the one running, or the project's environment.

    The environment is made if it is not there yet. Raises RunError when it cannot be.
    """
    if sys.prefix != sys.base_prefix and find_spec("ngh2") is not None:
        return sys.executable
    try:
        return str(environment.ensure_own(is_dev=False))
    except environment.SetupFailed as error:
        raise RunError(f"set-up failed: {error}") from error


def write_config(
    folder: Path, port: int, *, persist_mode: str, segment_bytes: int | None = None
) -> Path:
    """A configuration with the defaults but for addresses, data folder and what is asked for.

    The admin listener stays on, as it is for anybody who changes nothing.
    """
    lines = [
        "[server]",
        f'listen_addr = "127.0.0.1:{port}"',
        f'db_path = "{folder / "data"}"',
        "[admin]",
        'listen_addr = "127.0.0.1:0"',
        "[storage]",
        f'persist_mode = "{persist_mode}"',
    ]
    if segment_bytes is not None:
        lines.append(f"segment_bytes = {segment_bytes}")
    path = folder / "sepp.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def thin(
    python: str,
    *,
    name: str = "sepp-trio",
    title: str | None = None,
    connections: int = 2,
    persist_mode: str = "sync_all",
    payload_bytes: int = 256,
    segment_bytes: int | None = None,
    batch: int = 1,
    reserve: int = 1,
) -> Subject:
    """Our server under the thin generator.

    `batch` jobs go into one EnqueueBatch, `reserve` is the max_jobs of one Reserve.
    """

    def serve(folder: Path, port: int) -> list[str]:
        config = write_config(folder, port, persist_mode=persist_mode, segment_bytes=segment_bytes)
        return [python, "-m", "sepp", "serve", "--config", str(config)]

    return Subject(
        name,
        title or f"sepp-trio, {connections} connections",
        DURABLE[persist_mode],
        serve,
        lambda: python_driver(python, "thin.py"),
        options={"connections": connections, "payload_bytes": payload_bytes},
        order={"batch": batch, "reserve": reserve},
        environment={"PYTHONPATH": str(ROOT)},
        server_environment={"PYTHONPATH": str(ROOT)},
    )


def official(python: str, *, connections: int = 2, payload_bytes: int = 256) -> Subject | None:
    """Our server under `sepp-py`; None while that is not installed."""
    client_python = sepp_py_python()
    if client_python is None:
        return None
    subject = thin(python, connections=connections, payload_bytes=payload_bytes)
    return Subject(
        "sepp-trio-sepp-py",
        "sepp-trio, official client sepp-py",
        subject.durable,
        subject.serve,
        lambda: python_driver(str(client_python), "sepp_py.py"),
        options=subject.options,
        order=subject.order,
        # The client imports as `sepp`, and so does ours: its driver must not see our tree.
        environment={"PYTHONPATH": ""},
        server_environment=subject.server_environment,
    )
