"""Does what time asks for: promotions, lease ends, waits that are over, expired records.

One task that sleeps until the earliest deadline and sends one more command to the committer. The
interval only bounds how long a stale sleep can last after the wall clock was set back.
"""

from time import perf_counter
from typing import Final

import trio

from sepp.clock import Clock
from sepp.committer import Committer
from sepp.core.commands import Sweep
from sepp.core.outcomes import Swept
from sepp.journal import Body
from sepp.logs import get_logger
from sepp.request import Refused
from sepp.tracing import Tracer
from sepp.wire import id_text

log = get_logger("sepp.sweeper")

SLOW_SWEEP_S: Final = 0.1


class Sweeper:
    """The task. `count_max` bounds each kind of work in one sweep; the rest follows at once.

    `retention_ms` is that of dead letters; 0: they are dropped.
    """

    def __init__(
        self,
        committer: Committer,
        clock: Clock,
        *,
        interval_ms: int,
        count_max: int,
        retention_ms: int,
        tracer: Tracer | None = None,
    ) -> None:
        self._committer = committer
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._count_max = count_max
        self._is_dropping = retention_ms == 0
        self._tracer = tracer

    async def serve(self) -> None:
        """Sweep until cancelled."""
        while True:
            wall_ms, steady_ms = self._committer.next_deadline()
            due_s = self._clock.seconds_until(wall_ms=wall_ms, steady_ms=steady_ms)
            if due_s > 0:
                with trio.move_on_after(min(due_s, self._interval_s)):
                    await self._committer.wait_deadline_moved()
            elif not await self.sweep():
                # The disk takes no more changes; the deadlines stay due.
                await trio.sleep(self._interval_s)

    async def sweep(self) -> bool:
        """Run one sweep to the disk; False when the committer refused it."""
        started = perf_counter()
        try:
            swept, bodies = await self._committer.sweep(
                Sweep(self._count_max, is_traced=self._tracer is not None)
            )
        except Refused as refused:
            log.warning("timer sweep refused", reason=str(refused))
            return False
        seconds = perf_counter() - started
        self._tell(swept, bodies)
        report = log.warning if seconds >= SLOW_SWEEP_S else log.debug
        report(
            "slow timer sweep" if seconds >= SLOW_SWEEP_S else "timer sweep",
            elapsed_ms=round(seconds * 1000, 1),
            promoted=swept.promoted,
            redelivered=swept.redelivered,
            dead_lettered=swept.dead_lettered,
        )
        return True

    def _tell(self, swept: Swept, bodies: list[Body]) -> None:
        """Log which jobs died, and trace each job if asked to."""
        for job in swept.jobs:
            if job.kind == "dead_letter":
                log.warning(
                    "lease expired with attempts exhausted",
                    job_id=id_text(job.job_id),
                    queue=job.queue,
                    dropped=self._is_dropping,
                )
        if self._tracer is not None:
            for job, body in zip(swept.jobs, bodies, strict=True):
                self._tracer.swept(job, body if type(body) is bytes else None)
