"""`sepp-trio queues`, `queue …`, `jobs` and `job`: what is there, and what is done to a queue."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from sepp import exits
from sepp.cli.api import PAGE, Api, Refused, part
from sepp.cli.options import ADMIN_SIDE, Admin, AsJson, Yes, whole
from sepp.cli.output import confirm, print_json, print_table
from sepp.cli.values import parse_pair, show_instant

DEPTHS = ("ready", "scheduled", "inflight", "dead_lettered")
State = Literal["ready", "scheduled", "inflight", "dead_letter"]

queue = App(name="queue", help="Declare, empty or delete a queue.")


def queues(*, admin: Admin = ADMIN_SIDE, json: AsJson = False) -> int:
    """List the queues with the jobs they hold.

    Example: `sepp-trio queues`
    """
    found = Api(admin).call("GET", "/queues")
    if json:
        print_json(found)
        return exits.OK
    rows = [
        (one["name"], *(one["depths"][name] for name in DEPTHS), "yes" if one["declared"] else "")
        for one in found
    ]
    print_table(("queue", "ready", "scheduled", "in flight", "dead", "declared"), rows)
    return exits.OK


@queue.command
def put(
    name: Annotated[str, Parameter(help="The queue.")],
    settings: Annotated[
        list[str] | None, Parameter(help="NAME=VALUE; NAME=null goes back to the global value.")
    ] = None,
    /,
    *,
    admin: Admin = ADMIN_SIDE,
    json: AsJson = False,
) -> int:
    """Declare a queue and set limits of its own; they are in the file when this is printed.

    Example: `sepp-trio queue put emails default_max_attempts=5 retry_delay_ms=1000`
    """
    api = Api(admin)
    etag = api.call("GET", "/config")["etag"]
    overrides = dict(parse_pair(pair) for pair in settings or [])
    body = {"etag": etag, "overrides": overrides}
    answer = api.call("PUT", f"/queues/{part(name)}", body=body)
    if json:
        print_json(answer)
        return exits.OK
    print(f"{name}: written" + ("" if answer["applied"] else ", not in use yet"))
    for path in answer["requires_restart"]:
        print(f"{path}: from the next start on")
    return exits.OK


@queue.command
def purge(
    name: Annotated[str, Parameter(help="The queue.")],
    /,
    *,
    reason: Annotated[str, Parameter(help="For the audit trail.")] = "",
    yes: Yes = False,
    admin: Admin = ADMIN_SIDE,
    json: AsJson = False,
) -> int:
    """Delete all jobs of a queue but those in flight. They are gone for good.

    Example: `sepp-trio queue purge emails --yes --reason 'sent by hand'`
    """
    confirm(f"Delete all jobs of {name!r}, its dead letters too?", is_yes=yes)
    body = {"reason": reason} if reason else {}
    answer = Api(admin).call("POST", f"/queues/{part(name)}:purge", body=body)
    print_json(answer) if json else print(f"{answer['purged']} deleted")
    return exits.OK


@queue.command
def delete(
    name: Annotated[str, Parameter(help="The queue.")],
    /,
    *,
    purge: Annotated[
        bool, Parameter(negative="", help="Delete its jobs first; else it must be empty.")
    ] = False,
    yes: Yes = False,
    admin: Admin = ADMIN_SIDE,
    json: AsJson = False,
) -> int:
    """Remove a queue and its settings. Not while jobs are in flight.

    Example: `sepp-trio queue delete emails --purge --yes`
    """
    confirm(f"Delete the queue {name!r}" + (" and all its jobs?" if purge else "?"), is_yes=yes)
    api = Api(admin)
    etag = api.call("GET", "/config")["etag"]
    query = {"purge": "true"} if purge else {}
    answer = api.call("DELETE", f"/queues/{part(name)}", query=query, etag=etag)
    print_json(answer) if json else print(f"{name}: deleted, {answer['purged']} jobs with it")
    return exits.OK


def jobs(
    queue: Annotated[str, Parameter(help="The queue.")],
    /,
    *,
    state: Annotated[State, Parameter(help="Which jobs.")] = "ready",
    limit: Annotated[int, whole("Jobs at most.")] = 50,
    admin: Admin = ADMIN_SIDE,
    json: AsJson = False,
) -> int:
    """List jobs of a queue in a state, those next in line first.

    Example: `sepp-trio jobs emails --state inflight`
    """
    found = pages(Api(admin), queue, state, limit, {})
    if json:
        for one in found:
            print_json(one)
        return exits.OK
    times = {"scheduled": "scheduled_at_ms", "inflight": "lease_expires_at_ms"}
    time = times.get(state, "enqueued_at_ms" if state == "ready" else "failed_at_ms")
    rows = [
        (
            one["id"],
            one["job_type"],
            one["priority"],
            f"{one['attempt']}/{one['max_attempts']}",
            show_instant(one.get(time, one.get("retry_at_ms"))),
            one["payload"]["size_bytes"],
        )
        for one in found
    ]
    head = time.removesuffix("_ms").replace("_", " ")
    print_table(("job", "type", "priority", "attempt", head, "bytes"), rows)
    return exits.OK


def pages(
    api: Api, queue: str, state: str, count_max: int, filters: dict[str, object]
) -> Iterator[dict[str, Any]]:
    """Yield jobs of a queue in a state, page after page."""
    cursor = None
    while count_max > 0:
        query = {"state": state, "limit": min(PAGE, count_max), "cursor": cursor, **filters}
        page = api.call("GET", f"/queues/{part(queue)}/jobs", query=query)
        yield from page["jobs"]
        count_max -= len(page["jobs"])
        cursor = page["next_cursor"]
        if cursor is None:
            return


def job(
    id: Annotated[str, Parameter(help="The job's id.")],
    /,
    *,
    admin: Admin = ADMIN_SIDE,
    json: AsJson = False,
) -> int:
    """Show one job, alive or dead. Exit code 1 if there is none.

    Example: `sepp-trio job 0b9c6f7e-52c1-4d0a-9d63-1f0f6a3f2a11`
    """
    found = find_job(Api(admin), id)
    if json:
        print_json(found)
        return exits.OK
    for name, value in found.items():
        if name == "payload":
            shown = f"{value['encoding']}, {value['size_bytes']} bytes" if value["encoding"] else ""
        elif name.endswith("_ms"):
            shown = show_instant(value)
        else:
            shown = str(value)
        if name != "key_b64":
            print(f"{name.removesuffix('_ms').replace('_', ' ') + ':':<20}{shown}")
    return exits.OK


def find_job(api: Api, job_id: str) -> dict[str, Any]:
    """Return a job wherever it is.

    Raises:
        Refused: There is none.
    """
    try:
        found: dict[str, Any] = api.call("GET", f"/jobs/{part(job_id)}")
    except Refused as refused:
        if refused.status != 404:
            raise
        found = api.call("GET", f"/dead-letters/{part(job_id)}")
    return found
