"""The code blocks of documents, and how each kind is run."""

import os
import subprocess
import sys
from pathlib import Path

from attrs import frozen

from tests.e2e.server_process import ROOT, clean_environment

SECONDS_MAX = 60  # hang guard
ADDRESS = "127.0.0.1:50051"


@frozen
class Block:
    """A fenced block of a document; `line` is its first line of code."""

    path: str
    line: int
    kind: str
    code: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def blocks_of(path: str) -> list[Block]:
    """Return the code blocks of a document."""
    found: list[Block] = []
    kind: str | None = None
    lines: list[str] = []
    for number, line in enumerate((ROOT / path).read_text("utf-8").splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
        elif kind is None:
            kind, lines = line[3:].strip(), []
        else:
            found.append(Block(path, number - len(lines), kind, "\n".join(lines) + "\n"))
            kind = None
    assert kind is None, f"{path} ends within a block"
    return found


def run_block(block: Block, address: str, directory: Path) -> str:
    """Run a block against a server; return what it printed. Fail where it fails."""
    code = block.code.replace(ADDRESS, address)
    environment = {**clean_environment(), "SEPP_ADDR": address}
    commands = directory / "commands"
    commands.mkdir(exist_ok=True)
    command = commands / "sepp-trio"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sepp "$@"\n')
    command.chmod(0o755)
    environment["PATH"] = os.pathsep.join([str(commands), environment["PATH"]])
    if block.kind == "python":
        program = [sys.executable, "-W", "error", "-u", "-c", code]
    elif block.kind == "sh":
        program = ["bash", "-euo", "pipefail", "-c", code]
    elif block.kind == "toml":
        (directory / "block.toml").write_text(code)
        program = [str(command), "config", "check", "block.toml"]
    else:
        raise AssertionError(f"{block}: how is {block.kind!r} run?")
    if block.kind == "python" and "worker.run()" in code:
        return run_until_it_speaks(program, environment, directory)
    done = subprocess.run(
        program,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}"
    return done.stdout


def run_until_it_speaks(program: list[str], environment: dict[str, str], directory: Path) -> str:
    """Run a worker that goes on for ever; return its first line, from its handler."""
    worker = subprocess.Popen(
        program,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert worker.stdout is not None
    try:
        line = worker.stdout.readline()
        assert line, "it ended"
        assert "Traceback" not in line, line + worker.stdout.read()
        return line
    finally:
        worker.kill()
        worker.communicate()
