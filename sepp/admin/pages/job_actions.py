"""What a reader does to jobs from the pages: first the question, then the deed, then its result.

The same posts work without script, where the question is a page, and with it, where it is a dialog.
A deed on everything that matches goes in steps of 1,000; without script each step is one click.
"""

from typing import Final

from attrs import evolve
from starlette.responses import Response

from sepp.admin import actions, listing, wording
from sepp.admin.actions import Result
from sepp.admin.backend import JobHead, State
from sepp.admin.errors import invalid
from sepp.admin.listing import Filter
from sepp.admin.notes import Tone
from sepp.admin.pages import jobs
from sepp.admin.pages.view import PageRoute, View, local_url, queue_url
from sepp.admin.requests import KEYS_MAX, REASON_CHARS_MAX
from sepp.wire import id_bytes, id_text

SHOWN: Final = 3
TYPED_ABOVE: Final = 100

# Verb -> imperative, past, what happens, way back.
WORDS: Final = {
    "requeue": (
        "Requeue",
        "Requeued",
        "They go to the back of the queue with attempt 1.",
        "Cancel",
    ),
    "delete": (
        "Delete",
        "Deleted",
        "Their payloads are gone for good. This cannot be undone.",
        "Keep them",
    ),
    "bury": ("Dead-letter", "Dead-lettered", "Workers will not get them.", "Keep them"),
}


async def _ask(view: View, verb: str, state: State, keys: list[str]) -> Response:
    """Show what would be done to the selected jobs."""
    queue, backend = view.params["name"], view.site.backend
    ids = [listing.parse_handle(key)[0] for key in keys]
    await backend.locate(ids)
    heads: list[JobHead] = [head for job_id in ids if (head := backend.find(job_id)) is not None]
    shown = await listing.rows_of(backend, heads[:SHOWN])
    noun = "dead letter" if state is State.DEAD_LETTER else "job"
    words = WORDS[verb]
    note = words[2]
    if verb == "bury" and not backend.facts.retention_ms:
        note = "Dead letters are off, so they are deleted for good. This cannot be undone."
    return view.render(
        "ask_jobs.html",
        nav="queues",
        name=queue,
        verb=verb,
        words=words,
        note_text=note,
        title=f"{words[0]} {wording.plural(len(keys), noun)} of {queue}?",
        rows=[jobs.job_row(row) for row in shown],
        rest=len(keys) - len(shown),
        fields=[("key", key) for key in keys] + [("state", state.value)],
        back=_back(view, state),
        is_danger=verb != "requeue",
        action=view.path,
        button=f"{words[0]} {wording.count(len(keys))}",
    )


def _back(view: View, state: State) -> str:
    default = queue_url(view.params["name"], "/jobs", state=state.value)
    return local_url(view.text("back"), default)


def _keys(view: View) -> list[str]:
    keys = list(dict.fromkeys(view.texts("key")))
    if not keys:
        raise invalid("nothing is selected")
    if len(keys) > KEYS_MAX:
        raise invalid(f"{len(keys)} jobs are selected; at most {KEYS_MAX} go in one step")
    return keys


def _reason(view: View) -> str:
    return view.text("why", REASON_CHARS_MAX).strip()


def _told(result: Result, verb: str, queue: str) -> tuple[str, Tone]:
    """Return the sentence about a result and its tone."""
    past = WORDS[verb][1]
    where = f" to {queue}" if verb == "requeue" else f" of {queue}"
    text = f"{past} {wording.count(result.moved)}{where}."
    if result.missing:
        were = "was" if result.missing == 1 else "were"
        text += f" {wording.count(result.missing)} {were} already gone."
    return text, "part" if result.missing else "good"


async def bury(view: View) -> Response:
    """Send selected ready or scheduled jobs to the dead letters."""
    state, keys = jobs.state_of(view.text("state")), _keys(view)
    if state not in (State.READY, State.SCHEDULED):
        raise invalid("only ready and scheduled jobs can be dead-lettered")
    if not view.is_confirmed:
        return await _ask(view, "bury", state, keys)
    queue = view.params["name"]
    result = await actions.bury(view.site, view.actor, queue, state, keys, _reason(view))
    text, tone = _told(result, "bury", queue)
    return view.done(_back(view, state), text, tone, result.audit)


async def requeue(view: View) -> Response:
    """Requeue selected dead letters, or all that match."""
    return await _move_dead(view, "requeue")


async def delete(view: View) -> Response:
    """Delete selected dead letters, or all that match."""
    return await _move_dead(view, "delete")


async def _move_dead(view: View, verb: actions.DeadVerb) -> Response:
    if view.text("scope") == "all":
        return await _move_all(view, verb)
    keys = _keys(view)
    if not view.is_confirmed:
        return await _ask(view, verb, State.DEAD_LETTER, keys)
    queue = view.params["name"]
    result = await actions.move_dead(view.site, view.actor, verb, queue, keys, _reason(view))
    text, tone = _told(result, verb, queue)
    return view.done(_back(view, State.DEAD_LETTER), text, tone, result.audit)


async def _move_all(view: View, verb: actions.DeadVerb) -> Response:
    """One step of a deed on everything that matches, or the question before it."""
    queue = view.params["name"]
    values = jobs.filter_values(view.form)
    until_ms = _number(view.text("until"), view.now_ms)
    total = _number(view.text("total"), view.site.backend.queue(queue).dead_lettered)
    done, gone = _number(view.text("done"), 0), _number(view.text("gone"), 0)
    error = ""
    # How many match a filter is not known beforehand: then the name of the queue is typed.
    typed = queue if jobs.filter_words(values) else str(total)
    if view.is_confirmed and total > TYPED_ABOVE and view.text("typed").strip() != typed:
        error = f"Type {typed} to go on."
    if not view.is_confirmed or error:
        return _ask_all(view, verb, values, until_ms, total, typed, error)
    wanted = jobs.filter_of(values, until_ms)
    result = await actions.move_matching(
        view.site,
        view.actor,
        verb,
        queue,
        evolve(wanted, until_ms=until_ms),
        listing.parse_cursor(view.text("cursor")),
        _reason(view),
    )
    done, gone = done + result.moved, gone + result.missing
    if result.next is None:
        told = Result(done, gone, result.audit)
        text, tone = _told(told, verb, queue)
        return view.done(_back(view, State.DEAD_LETTER), text, tone, result.audit)
    fields = [(k, v) for k, v in values.items() if v]
    fields += [("scope", "all"), ("until", str(until_ms)), ("total", str(total))]
    fields += [("typed", typed), ("done", str(done)), ("gone", str(gone))]
    fields += [("cursor", listing.cursor_of(result.next) or ""), ("confirm", "1")]
    return view.render(
        "ask_step.html",
        nav="queues",
        name=queue,
        words=WORDS[verb],
        done=done,
        gone=gone,
        total=total,
        fields=[*fields, ("why", _reason(view))],
        back=_back(view, State.DEAD_LETTER),
        action=view.path,
    )


def _ask_all(
    view: View,
    verb: actions.DeadVerb,
    values: dict[str, str],
    until_ms: int,
    total: int,
    typed: str,
    error: str,
) -> Response:
    queue = view.params["name"]
    words = jobs.filter_words(values)
    fields = [(key, value) for key, value in values.items() if value]
    return view.render(
        "ask_all.html",
        status=422 if error else 200,
        nav="queues",
        name=queue,
        verb=verb,
        words=WORDS[verb],
        filter_words=words,
        until_ms=until_ms,
        total=total,
        typed=typed if total > TYPED_ABOVE else "",
        error=error,
        fields=[*fields, ("scope", "all"), ("until", str(until_ms)), ("total", str(total))],
        back=_back(view, State.DEAD_LETTER),
        action=view.path,
        why=_reason(view),
        api_filter=_api_filter(jobs.filter_of(values, view.now_ms)),
    )


def _api_filter(wanted: Filter) -> dict[str, str | int]:
    """Return a filter as the API takes it; the module sends the steps there."""
    found = {
        "cause": wanted.cause,
        "job_type": wanted.job_type,
        "reason": wanted.reason,
        "failed_before_ms": wanted.before_ms,
    }
    return {name: value for name, value in found.items() if value is not None}


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 15 else otherwise


async def release(view: View) -> Response:
    """End a lease at once, after saying what that means for the worker."""
    queue = view.params["name"]
    job_id, _, attempt_text = view.text("lease").partition("/")
    attempt = _number(attempt_text, 0)
    back = local_url(view.text("back"), queue_url(queue, "/jobs", state="inflight"))
    parsed = id_bytes(job_id)
    if parsed is None or not attempt:
        raise invalid("no job is named")
    if not view.is_confirmed:
        await view.site.backend.locate([parsed])
        return view.render(
            "ask_release.html",
            nav="queues",
            name=queue,
            head=view.site.backend.find(parsed),
            id=id_text(parsed),
            lease=view.text("lease"),
            back=back,
            action=view.path,
        )
    result = await actions.release(view.site, view.actor, queue, job_id, attempt, _reason(view))
    text = f"Released {job_id[:8]}. " + (
        "It had no attempt left and is a dead letter now."
        if result.is_dead
        else "It is ready again."
    )
    return view.done(back, text, "part" if result.is_dead else "good", result.audit)


ROUTES: Final = (
    PageRoute("/admin/queues/{name}/jobs/dead-letter", bury, "operator", ("POST",)),
    PageRoute("/admin/queues/{name}/jobs/release", release, "operator", ("POST",)),
    PageRoute("/admin/queues/{name}/dead-letters/requeue", requeue, "operator", ("POST",)),
    PageRoute("/admin/queues/{name}/dead-letters/delete", delete, "operator", ("POST",)),
)
