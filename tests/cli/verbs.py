"""Run a verb of `sepp-trio`, in this process where that is the same, for it is quicker."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from sepp.cli.app import run
from tests.e2e.server_process import ROOT, clean_environment

SECONDS_MAX = 120  # hang guard


class Verbs:
    """The command line, with what every call has in common."""

    def __init__(self, directory: Path, *common: str, **environment: str) -> None:
        self.directory = directory
        self.common = common
        self.environment = environment

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a verb."""
        return subprocess.Popen(
            [sys.executable, "-m", "sepp", *arguments, *self.common],
            cwd=self.directory,
            env={**clean_environment(), "PYTHONPATH": str(ROOT), **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0, stdin: str | None = None) -> str:
        """Run a verb that ends with `code`; return what it printed, stderr for one that fails."""
        if stdin is None and arguments[0] != "work":
            return self._run_here(*arguments, code=code)
        process = self.start(*arguments)
        try:
            out, err = process.communicate(stdin, SECONDS_MAX)
        finally:
            process.kill()
        assert process.returncode == code, out + err
        assert "Traceback" not in err
        return err if code else out

    def _run_here(self, *arguments: str, code: int) -> str:
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            contextlib.chdir(self.directory),
            mock.patch.dict(os.environ, self.environment),
        ):
            ended = run([*arguments, *self.common])
        assert ended == code, out.getvalue() + err.getvalue()
        return err.getvalue() if code else out.getvalue()

    def json(self, *arguments: str) -> Any:
        """Run a verb and read the JSON it prints."""
        return json.loads(self.run(*arguments, "--json"))

    def lines(self, *arguments: str) -> list[Any]:
        """Run a verb and read the JSON lines it prints."""
        return [json.loads(line) for line in self.run(*arguments).splitlines()]
