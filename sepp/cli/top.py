"""`sepp-trio top`: the queues and their rates, live in the terminal."""

import time
from typing import Annotated, Any, Final

from cyclopts import Parameter
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from sepp import exits
from sepp.cli.api import Api
from sepp.cli.options import ADMIN_SIDE, Admin, AsJson
from sepp.cli.output import print_json, table_of

PERIOD_S: Final = 1.0
HEADS: Final = (
    "queue",
    "ready",
    "scheduled",
    "in flight",
    "dead",
    "enqueued/s",
    "acked/s",
    "nacked/s",
)


def top(
    *,
    once: Annotated[bool, Parameter(negative="", help="Print one view and end.")] = False,
    admin: Admin = ADMIN_SIDE,
    json: AsJson = False,
) -> int:
    """Show queues, rates and what needs attention, each second anew, until Ctrl-C.

    Example: `sepp-trio top --admin http://127.0.0.1:9465`
    """
    api = Api(admin)
    if json:
        print_json(look(api))
        return exits.OK
    console = Console()
    if once or not console.is_terminal:
        console.print(view(look(api)))
        return exits.OK
    try:
        with Live(view(look(api)), console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(PERIOD_S)
                live.update(view(look(api)), refresh=True)
    except KeyboardInterrupt:
        return exits.OK


def look(api: Api) -> dict[str, Any]:
    """Return the overview of now, with as little history as there can be."""
    found: dict[str, Any] = api.call("GET", "/overview", query={"points": 1})
    return found


def view(overview: dict[str, Any]) -> Group:
    """Return what is shown: the server, what needs attention, the busiest queues first."""
    server, frame = overview["server"], overview["frame"]
    up_s = (server["now_ms"] - server["started_at_ms"]) // 1000
    head = Text(f"sepp-trio {server['version']}, up {up_s} s, {len(frame['queues'])} queues")
    lines: list[Any] = [head]
    for item in frame["attention"]:
        where = f"{item['queue']}: " if "queue" in item else ""
        style = "bold red" if item["level"] == "bad" else "yellow"
        lines.append(Text(f"! {where}{item['text']}", style=style))
    ordered = sorted(frame["queues"].items(), key=lambda item: (-_busy(item[1]), item[0]))
    rows = [row_of(name, figures) for name, figures in ordered]
    return Group(*lines, table_of(HEADS, [*rows, row_of("all", frame["all"])]))


def _busy(figures: dict[str, Any]) -> float:
    return float(figures["rates"]["enqueued"] + figures["rates"]["acked"] + figures["ready"])


def row_of(name: str, figures: dict[str, Any]) -> tuple[object, ...]:
    """Return a line of the table."""
    rates = figures["rates"]
    return (
        name,
        figures["ready"],
        figures["scheduled"],
        figures["inflight"],
        figures["dead_lettered"],
        rates["enqueued"],
        rates["acked"],
        rates["nacked"],
    )
