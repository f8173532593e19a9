"""What holds for each queue: merged limits, declared names, strict mode."""

from typing import Final

from attrs import evolve

from sepp.config.limits import UNLIMITED, Limits, Queue
from sepp.config.model import OVERRIDES, Config
from sepp.core.limits import QueueLimits

_SAME_NAME: Final = tuple(
    name
    for name in OVERRIDES
    if name not in ("retry_backoff", "max_queue_depth", "dedup_window_ms", "allowed_job_types")
)


ADMITTED_MAX: Final = 4096


def effective_limits(limits: Limits, dedup_window_ms: int, queue: Queue | None) -> QueueLimits:
    """Return the limits of a queue: its own value where one is set, else the global one.

    Args:
        limits: The global limits.
        dedup_window_ms: The global window.
        queue: The queue's entry, or None for a queue that has none.
    """
    values: dict[str, object] = {name: getattr(limits, name) for name in _SAME_NAME}
    backoff, depth = limits.retry_backoff, limits.max_queue_depth
    job_types = None
    if queue is not None:
        own = ((name, getattr(queue, name)) for name in _SAME_NAME)
        values.update((name, value) for name, value in own if value is not None)
        backoff = queue.retry_backoff or backoff
        if queue.max_queue_depth is not None:
            depth = None if queue.max_queue_depth == UNLIMITED else queue.max_queue_depth
        if queue.dedup_window_ms is not None:
            dedup_window_ms = queue.dedup_window_ms
        job_types = queue.allowed_job_types
    return QueueLimits(
        **values,  # type: ignore[arg-type]  # fields of the same names and types
        retry_is_exponential=backoff == "exponential",
        max_queue_depth=depth,
        dedup_window_ms=dedup_window_ms,
        allowed_job_types=job_types,
    )


class QueuePolicy:
    """One configuration's limits, queue by queue. Immutable: a reload makes a new one.

    Satisfies `sepp.core.limits.Policy`. Everything is worked out here once; a look-up is one
    `dict.get` and only declared queues have an entry, so names made up by clients take no memory.

    Args:
        config: The configuration that holds now.
        boot: The one the server started with, which fixes the dedup windows. Default: `config`.

    Attributes:
        is_strict: Whether undeclared queues are refused.
        global_limits: [limits] as configured.
        defaults: What holds for a queue that is not declared.
        queues: The [[queues]] entries by name.
        admitted: (queue, job type) pairs that passed every check of names, and the queue's limits:
            a memory of `admit`, emptied when it is full.
    """

    __slots__ = ("_by_queue", "admitted", "defaults", "global_limits", "is_strict", "queues")

    def __init__(self, config: Config, boot: Config | None = None) -> None:
        boot = boot or config
        windows = {queue.name: queue.dedup_window_ms for queue in boot.queues}
        window_ms = boot.storage.dedup_window_ms
        self.is_strict: Final = config.server.strict_queues
        self.global_limits: Final[Limits] = config.limits
        self.queues: Final[dict[str, Queue]] = {queue.name: queue for queue in config.queues}
        self.defaults: Final[QueueLimits] = effective_limits(config.limits, window_ms, None)
        self.admitted: Final[dict[tuple[str, str], QueueLimits]] = {}
        self._by_queue: dict[str, QueueLimits] = {}
        # A removed entry keeps its window until the restart, so it stands here too.
        for name in {**self.queues, **windows}:
            limits = effective_limits(config.limits, window_ms, self.queues.get(name))
            boot_ms = windows.get(name)
            boot_ms = window_ms if boot_ms is None else boot_ms
            self._by_queue[name] = _with_window(limits, boot_ms)

    def limits(self, queue: str) -> QueueLimits:
        """Return the effective limits of `queue`, declared or not."""
        return self._by_queue.get(queue, self.defaults)

    def admit(self, queue: str, job_type: str) -> None:
        """Remember that these names passed every check that looks at names alone."""
        if len(self.admitted) >= ADMITTED_MAX:
            self.admitted.clear()
        self.admitted[queue, job_type] = self.limits(queue)

    def is_declared(self, queue: str) -> bool:
        """Whether a [[queues]] entry names `queue`."""
        return queue in self.queues


def _with_window(limits: QueueLimits, window_ms: int) -> QueueLimits:
    return (
        limits if limits.dedup_window_ms == window_ms else evolve(limits, dedup_window_ms=window_ms)
    )
