"""The command `sepp-trio`: its verbs, and how anything that goes wrong becomes one line and a code.

A verb is a function that returns its exit code. It raises ConfigError or StartError for what an
operator can mend; both are shown without a traceback.
"""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Final

from cyclopts import App, CycloptsError, UnusedCliTokensError

from sepp import __version__, exits
from sepp.cli.config import config
from sepp.cli.health import health
from sepp.cli.options import UsageError
from sepp.cli.serve import serve
from sepp.config.errors import ConfigError

PROGRAM: Final = "sepp-trio"


def version_text() -> str:
    """Return what --version prints: package, format of the store, protocol."""
    from segstore.layout import FORMAT_VERSION  # other verbs need no engine

    return f"{PROGRAM} {__version__} (store format {FORMAT_VERSION}, protocol sepp.v1)"


app: Final = App(
    name=PROGRAM,
    help="A durable job queue server that speaks sepp.v1. Exit codes: 0 done, 1 could not start or "
    "act, 2 usage, 3 a check found damage, 74 storage failure.",
    version=version_text,
)
app.command(serve)
app.command(health)
app.command(config)
LAZY: Final = {
    "enqueue": "sepp.cli.enqueue:enqueue",
    "work": "sepp.cli.work:work",
    "queues": "sepp.cli.queues:queues",
    "jobs": "sepp.cli.queues:jobs",
    "job": "sepp.cli.queues:job",
    "dead": "sepp.cli.dead:dead",
    "queue": "sepp.cli.queues:queue",
    "audit": "sepp.cli.audit:audit",
    "top": "sepp.cli.top:top",
    "store": "sepp.cli.store:store",
    "completion": "sepp.cli.completion:completion",
}
"""Verbs whose modules are imported when they are used: they need the client, rich or the store."""
for _name, _place in LAZY.items():
    app.command(_place, name=_name)


def load_all() -> App:
    """Return the app with every verb imported, for what is said about all of them."""
    for name in LAZY:
        assert app[name].help is not None
    return app


def run(tokens: Sequence[str]) -> int:
    """Run one command line (without the program's name) and return its exit code."""
    if not tokens or tokens[0].startswith("-"):
        load_all()
    try:
        command, bound, _ = app.parse_args(tokens, print_error=False, exit_on_error=False)
    except CycloptsError as fault:
        return _fail(f"{_what_is_wrong(fault)} See {_help_for(tokens)}.", exits.USAGE)
    try:
        code = command(*bound.args, **bound.kwargs)
        sys.stdout.flush()
    except UsageError as fault:
        return _fail(f"{fault}. See {_help_for(tokens)}.", exits.USAGE)
    except exits.DamageFound as fault:
        return _fail(str(fault), exits.DAMAGED)
    except (ConfigError, exits.StartError) as fault:
        return _fail(str(fault), exits.FAILED)
    except BrokenPipeError:
        # The reader of our output is gone; the interpreter must not stumble over it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.FAILED
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    return code if isinstance(code, int) else exits.OK


def main() -> None:
    """Run the command line of this process and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # TOML is UTF-8 whatever the locale, and no odd name may end us with a traceback.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def _fail(text: str, code: int) -> int:
    print(f"{PROGRAM}: {text}", file=sys.stderr)
    return code


def _what_is_wrong(fault: CycloptsError) -> str:
    text = str(fault)
    if isinstance(fault, UnusedCliTokensError):
        text = f"unexpected: {' '.join(fault.unused_tokens or ())!r}."
    return " ".join(text.split())


def _help_for(tokens: Sequence[str]) -> str:
    verbs, _, _ = app.parse_commands(tokens)
    return " ".join((PROGRAM, *verbs, "--help"))
