"""The life cycle as plainly as can be: one dict of jobs, sorted and searched anew each time.

It is what the machine is compared with, so it shares none of its ideas: no orderings, no timers, no
slots. Times are milliseconds; `end_ms` of a lease is on the steady clock, all others on the wall.
"""

from attrs import define, field

from sepp.core.commands import Now
from sepp.core.limits import QueueLimits
from sepp.core.retry import policy_delay_ms


@define
class Job:
    job_id: bytes
    queue: str
    priority: int
    max_attempts: int
    order: int
    enqueued_ms: int
    state: str = "ready"
    attempt: int = 1
    due_ms: int = 0
    end_ms: int = 0
    end_wall_ms: int = 0
    failed_ms: int = 0
    cause: int = 0
    reason: bytes | None = None  # what it died of


@define(eq=False)
class Waiter:
    handle: object
    queues: tuple[str, ...]
    max_jobs: int
    lease_ms: int
    deadline_ms: int


@define
class Model:
    limits: dict[str, QueueLimits]
    retention_ms: int
    jobs: dict[bytes, Job] = field(factory=dict)
    dedup: dict[tuple[str, bytes], tuple[bytes, int]] = field(factory=dict)
    closing: dict[str, int] = field(factory=dict)
    waiters: list[Waiter] = field(factory=list)
    served: list[tuple[object, list[tuple[bytes, int]]]] = field(factory=list)
    order: int = 0

    def of(self, queue: str, state: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.queue == queue and job.state == state]

    def ready(self, queue: str) -> list[Job]:
        return sorted(self.of(queue, "ready"), key=lambda job: (-job.priority, job.order))

    def depth(self, queue: str) -> int:
        return sum(job.queue == queue and job.state != "dead" for job in self.jobs.values())

    def is_closing(self, queue: str, now: Now) -> bool:
        return self.closing.get(queue, 0) > now.wall_ms

    # Enqueue

    def refusal(self, queues: list[str], now: Now) -> dict[int, str]:
        """Return why an atomic enqueue is refused, by index."""
        closing = {n: "closing" for n, queue in enumerate(queues) if self.is_closing(queue, now)}
        if closing:
            return closing
        full = set()
        for queue in set(queues):
            cap = self.limits[queue].max_queue_depth
            if cap is not None and self.depth(queue) + queues.count(queue) > cap:
                full.add(queue)
        return {n: "full" for n, queue in enumerate(queues) if queue in full}

    def enqueue(
        self, job: Job, due_ms: int, key: bytes | None, now: Now, *, is_atomic: bool
    ) -> str | tuple[bytes, bool]:
        """Return the refusal, or the id and whether it is an old one."""
        if self.is_closing(job.queue, now):
            return "closing"
        if key is not None:
            known = self.dedup.get((job.queue, key))
            if known and known[1] > now.wall_ms:
                return known[0], True
        cap = self.limits[job.queue].max_queue_depth
        if not is_atomic and cap is not None and self.depth(job.queue) >= cap:
            return "full"
        self.order += 1
        job.order = self.order
        if due_ms > now.wall_ms:
            job.state, job.due_ms = "scheduled", due_ms
        self.jobs[job.job_id] = job
        if key is not None:
            window_ms = self.limits[job.queue].dedup_window_ms
            self.dedup[job.queue, key] = (job.job_id, now.wall_ms + window_ms)
        return job.job_id, False

    # Reserve

    def lease(self, queues: tuple[str, ...], max_jobs: int, lease_ms: int, now: Now) -> list[Job]:
        taken: list[Job] = []
        for queue in queues:
            for job in self.ready(queue)[: max_jobs - len(taken)]:
                job.state = "leased"
                job.end_ms = now.steady_ms + lease_ms
                job.end_wall_ms = job.end_ms + now.skew_ms
                taken.append(job)
        return taken

    def lease_ms(self, queues: tuple[str, ...], lease_ms: int) -> int:
        return max(1, min([lease_ms, *(self.limits[q].max_lease_duration_ms for q in queues)]))

    def wake(self, now: Now) -> None:
        for waiter in list(self.waiters):
            jobs = self.lease(waiter.queues, waiter.max_jobs, waiter.lease_ms, now)
            if jobs:
                self.waiters.remove(waiter)
                self.served.append((waiter.handle, [(job.job_id, job.attempt) for job in jobs]))

    # Leases

    def fence(self, job_id: bytes, attempt: int) -> str | Job:
        job = self.jobs.get(job_id)
        if job is None or job.state != "leased":
            return "not found"
        return job if job.attempt == attempt else "mismatch"

    def fail(self, job: Job, cause: int, reason: bytes | None, delay_ms: int, now: Now) -> None:
        """End an attempt: the next one, or death by `cause` when this was the last or is meant."""
        if cause in (2, 4) or job.attempt >= job.max_attempts:
            self.bury(job, cause, reason, now)
            return
        job.attempt += 1
        job.state, job.due_ms = "ready", 0
        if delay_ms:
            job.state, job.due_ms = "scheduled", now.wall_ms + delay_ms

    def bury(self, job: Job, cause: int, reason: bytes | None, now: Now) -> None:
        if not self.retention_ms:
            del self.jobs[job.job_id]
            return
        job.state, job.cause, job.reason = "dead", cause, reason
        job.failed_ms = now.wall_ms

    def retry_delay_ms(self, job: Job, delay_ms: int | None) -> int:
        limits = self.limits[job.queue]
        if delay_ms is not None:
            return min(delay_ms, limits.max_schedule_horizon_ms)
        return policy_delay_ms(job.job_id, job.attempt, limits)

    def requeue(self, job: Job, now: Now) -> None:
        self.order += 1
        job.state, job.attempt, job.order = "ready", 1, self.order
        job.enqueued_ms, job.cause, job.reason = now.log_ms, 0, None

    # Time

    def sweep(self, now: Now) -> tuple[int, int, int, int, int, int]:
        """Return promoted, redelivered, dead-lettered, dedup expired, dead expired, waits ended."""
        self.closing = {q: at for q, at in self.closing.items() if at > now.wall_ms}
        jobs = list(self.jobs.values())
        due = [job for job in jobs if job.state == "scheduled" and job.due_ms <= now.wall_ms]
        ended = [job for job in jobs if job.state == "leased" and job.end_ms <= now.steady_ms]
        for job in due:
            job.state = "ready"
        buried = [job for job in ended if job.attempt >= job.max_attempts]
        for job in ended:
            self.fail(job, 3, None, 0, now)
        old = [key for key, (_, at) in self.dedup.items() if at <= now.wall_ms]
        for key in old:
            del self.dedup[key]
        expired = [
            job
            for job in self.jobs.values()
            if job.state == "dead" and job.failed_ms + self.retention_ms <= now.wall_ms
        ]
        for job in expired:
            del self.jobs[job.job_id]
        self.wake(now)
        over = sorted(
            (waiter for waiter in self.waiters if waiter.deadline_ms <= now.steady_ms),
            key=lambda waiter: waiter.deadline_ms,
        )
        for waiter in over:
            self.waiters.remove(waiter)
            self.served.append((waiter.handle, []))
        redelivered = len(ended) - len(buried)
        return len(due), redelivered, len(buried), len(old), len(expired), len(over)

    def next_wall_ms(self) -> int | None:
        moments = [job.due_ms for job in self.jobs.values() if job.state == "scheduled"]
        moments += [at for _, at in self.dedup.values()] + list(self.closing.values())
        if self.retention_ms:
            dead = [job for job in self.jobs.values() if job.state == "dead"]
            moments += [job.failed_ms + self.retention_ms for job in dead]
        return min(moments, default=None)

    def restart(self) -> None:
        self.waiters.clear()
        for job in self.jobs.values():
            job.end_ms = job.end_wall_ms
