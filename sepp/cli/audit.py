"""`sepp-trio audit`: who did what on the admin side."""

import json as json_format
from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter

from sepp import exits
from sepp.cli.api import PAGE, Api
from sepp.cli.options import ADMIN_SIDE, Admin, AsJson, whole
from sepp.cli.output import print_json, print_table
from sepp.cli.values import show_instant


def audit(
    *,
    actor: Annotated[str | None, Parameter(help="Only what this one did.")] = None,
    action: Annotated[str | None, Parameter(help="Only actions that begin with this.")] = None,
    limit: Annotated[int, whole("Entries at most.")] = 50,
    admin: Admin = ADMIN_SIDE,
    json: AsJson = False,
) -> int:
    """Show the audit trail, newest first.

    Example: `sepp-trio audit --action queue. --limit 10`
    """
    found = entries(Api(admin), {"actor": actor, "action_prefix": action}, limit)
    if json:
        for entry in found:
            print_json(entry)
        return exits.OK
    rows = [
        (
            entry["seq"],
            show_instant(entry["ts_ms"]),
            entry["actor"],
            entry["action"],
            json_format.dumps(entry["details"], ensure_ascii=False),
        )
        for entry in found
    ]
    print_table(("no.", "time", "who", "did", "details"), rows)
    return exits.OK


def entries(api: Api, filters: dict[str, object], count_max: int) -> Iterator[dict[str, Any]]:
    """Yield entries of the trail, page after page."""
    before = None
    while count_max > 0:
        query = {**filters, "limit": min(PAGE, count_max), "before": before}
        page = api.call("GET", "/audit", query=query)
        yield from page["entries"]
        count_max -= len(page["entries"])
        before = page["next_before"]
        if before is None:
            return
