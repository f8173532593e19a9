"""`sepp-trio work`: a program per job."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Annotated, Final

import trio
from cyclopts import Parameter

from sepp import exits
from sepp.cli.connection import run_with
from sepp.cli.options import SERVER, Server, UsageError, whole
from sepp.cli.values import parse_span
from sepp.client import HandlerError, JobCtx, Payload, RetryPolicy, SeppClient, Worker
from sepp.exits import StartError

# What a program says by its exit status, after sysexits.h: EX_TEMPFAIL and EX_DATAERR.
DONE: Final = 0
RETRY: Final = 75
DEAD: Final = 65

_PATIENT: Final = RetryPolicy(
    max_attempts=1000,
    initial_backoff=timedelta(milliseconds=100),
    max_backoff=timedelta(seconds=5),
)
_LEASE_MIN: Final = timedelta(milliseconds=1)
# Keys are for us, not for programs that run because of what somebody put into a queue.
_SECRETS: Final = ("SEPP_KEY", "SEPP_ADMIN_KEY")


def work(
    queues: Annotated[list[str], Parameter(help="Queues, looked at in this order.")],
    /,
    *,
    exec: Annotated[
        str, Parameter(help="The program for each job, with its arguments; no shell reads it.")
    ],
    concurrency: Annotated[int, whole("Programs at a time.")] = 1,
    max_jobs: Annotated[int | None, whole("End after this many jobs.")] = None,
    lease: Annotated[
        str, Parameter(help="How long a job is ours before we renew it or it goes to others.")
    ] = "60s",
    server: Server = SERVER,
) -> int:
    """Run a program for each job, its payload on stdin, until SIGINT or SIGTERM.

    The program finds SEPP_JOB_ID, SEPP_QUEUE, SEPP_JOB_TYPE, SEPP_ATTEMPT, SEPP_MAX_ATTEMPTS,
    SEPP_ENCODING and SEPP_CUSTOM (JSON) in its environment. Its exit status says how the job went:
    0 done; 65 dead letter; 75 and all others: try again. The lease is renewed while it runs. The
    first signal lets running programs finish, the second ends them and hands their jobs back.

    Example: `sepp-trio work emails --exec 'python send.py' --concurrency 4`
    """
    try:
        command = shlex.split(exec)
    except ValueError as error:
        raise UsageError(f"--exec {exec!r}: {error}") from None
    if not command or shutil.which(command[0]) is None:
        raise StartError(f"no program {(command or [''])[0]!r}")
    span = parse_span(lease)
    if span < _LEASE_MIN:
        raise UsageError(f"--lease {lease!r} is no time at all; say 1s or longer")
    tally: Counter[str] = Counter()

    async def do(client: SeppClient) -> None:
        await client.get_server_info()  # a wrong key ends us here; a worker would ask on and on
        worker = Worker(client, queues, span, max_in_flight=concurrency, auto_extend=True)
        worker.catch_all(partial(run_program, command, tally))
        async with trio.open_nursery() as nursery:
            await nursery.start(stop_on_signals, worker, nursery.cancel_scope)
            await worker.run(job_count_max=max_jobs)
            nursery.cancel_scope.cancel()

    run_with(server, do, _PATIENT)
    print(f"{tally['done']} done, {tally['retry']} to retry, {tally['dead']} dead", file=sys.stderr)
    return exits.OK


async def stop_on_signals(
    worker: Worker, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]
) -> None:
    """Stop the worker at the first signal, cancel it at the second."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            if worker.shutdown_handle().is_shutdown:
                scope.cancel()
            worker.shutdown_handle().shutdown()


async def run_program(
    command: list[str], tally: Counter[str], payload: Payload | None, ctx: JobCtx
) -> None:
    """Run the program for one job.

    Raises:
        HandlerError: Its exit status asks for another try, or for none.
    """
    is_last = ctx.attempt >= ctx.max_attempts
    try:
        ended = await trio.run_process(
            command,
            stdin=b"" if payload is None else payload.data,
            env=environment_of(payload, ctx),
            check=False,
            # In a group of its own, so that Ctrl-C at the terminal reaches us and not the program.
            start_new_session=True,
        )
    except OSError as error:
        tally["dead" if is_last else "retry"] += 1
        raise HandlerError.retry(f"{command[0]} did not start: {error}") from error
    outcome, failure = outcome_of(ended)
    tally["dead" if is_last and outcome == "retry" else outcome] += 1
    if failure is not None:
        raise failure


def outcome_of(ended: "subprocess.CompletedProcess[bytes]") -> tuple[str, HandlerError | None]:
    """Return what an exit status means."""
    status = ended.returncode
    if status == DONE:
        return "done", None
    if status == DEAD:
        return "dead", HandlerError.permanent(f"exit status {DEAD}")
    if status < 0:
        return "retry", HandlerError.retry(f"ended by signal {-status}")
    return "retry", HandlerError.retry(f"exit status {status}")


def environment_of(payload: Payload | None, ctx: JobCtx) -> dict[str, str]:
    """Return the environment of a job's program: ours without keys, and the job."""
    inherited = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    fields = {
        "SEPP_JOB_ID": ctx.id,
        "SEPP_QUEUE": ctx.queue,
        "SEPP_JOB_TYPE": ctx.job_type,
        "SEPP_ATTEMPT": str(ctx.attempt),
        "SEPP_MAX_ATTEMPTS": str(ctx.max_attempts),
        "SEPP_ENCODING": "" if payload is None else payload.encoding,
        "SEPP_CUSTOM": json.dumps(dict(ctx.custom), sort_keys=True),
    }
    # A variable cannot hold a NUL; a job type could.
    return inherited | {name: value.replace("\0", "") for name, value in fields.items()}
