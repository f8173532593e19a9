"""A desk whose figures are read, and readings as a test wants them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sepp.auth import ApiKeys
from sepp.config.load import Loaded
from sepp.config.model import Config
from sepp.config.policy import QueuePolicy
from sepp.metrics import Sources
from sepp.metrics.reading import NamedQueues, Series, Value, read
from sepp.reloader import Reloader
from sepp.service import QueueService
from tests.spine.desk import Desk, serving


class Slices:
    """Counts the pauses, and keeps how many queues were read before each."""

    def __init__(self, desk: Desk) -> None:
        self.queue_counts: list[int] = []
        self._read_count = 0
        inner = desk.machine.queue_statistics

        def counted(name: str):  # type: ignore[no-untyped-def]  # as the method it stands for
            self._read_count += 1
            return inner(name)

        desk.machine.queue_statistics = counted  # type: ignore[method-assign]  # counts what is read

    async def pause(self) -> None:
        self.queue_counts.append(self._read_count)
        self._read_count = 0

    def end(self) -> None:
        self.queue_counts.append(self._read_count)


def sources_of(desk: Desk, config: Config | None = None) -> Sources:
    """Everything a reading needs but a front."""
    config = config or Config()
    service = QueueService(
        QueuePolicy(config), ApiKeys(config.auth.api_keys), desk.clock, retention_ms=0
    )
    service.start(desk.committer, lambda queue, key: (queue + key).encode()[:16].ljust(16))
    reloader = Reloader(Loaded(config, "sepp.toml"), {}, lambda _: None)
    return Sources(
        service,
        desk.clock,
        reloader,
        store=desk.store,
        machine=desk.machine,
        committer=desk.committer,
        recovery_ms=12.5,
    )


@asynccontextmanager
async def standing() -> AsyncIterator[tuple[Desk, Sources]]:
    """A serving desk and its sources."""
    async with serving() as desk:
        yield desk, sources_of(desk)


async def no_pause() -> None:
    """A slice that never ends."""


async def reading(
    sources: Sources, named: NamedQueues | None = None
) -> dict[str, dict[str, Value]]:
    """Metric -> labels, joined by commas -> value."""
    return by_name(await read(sources, named or NamedQueues(1000), no_pause))


def by_name(series: list[Series]) -> dict[str, dict[str, Value]]:
    """A reading as a dict of dicts."""
    return {
        family.name: {",".join(labels): value for labels, value in points}
        for family, points in series
    }
