"""Bodies: the ones in RAM, and reading the others from their segments."""

from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import trio

from segstore.errors import BodyDamaged
from segstore.events import log
from segstore.options import Counters
from segstore.segment import Segment
from segstore.slots import Slots
from segstore.vfs import VFS
from segstore.workers import Lane, RunInWorker

# What a cached body costs beyond its bytes: the object, the entry.
_ENTRY_BYTES: Final = 150
_RUN_BYTES_MAX: Final = 4 << 20  # of neighbouring bodies read in one call


class BodyCache:
    """Bodies of batches not committed yet, all of them, and those committed last, up to a limit.

    Eviction takes the longest-committed first. A body read from disk is not taken in: it was not
    needed for a long time, and its entry is about to end.

    Args:
        bytes_max: For the committed ones.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.byte_count = 0
        self._pending: deque[dict[int, bytes]] = deque()  # one dict a frame, oldest first
        self._recent: OrderedDict[int, bytes] = OrderedDict()

    def __len__(self) -> int:
        """Return how many committed bodies are held."""
        return len(self._recent)

    def get(self, slot: int) -> bytes | None:
        """Return the newest body of `slot`, if it is in RAM."""
        for bodies in reversed(self._pending):
            body = bodies.get(slot)
            if body is not None:
                return body
        return self._recent.get(slot)

    def getter(self) -> Callable[[int], bytes | None]:
        """Return `get`, or a faster one that is as good until the next batch is built."""
        return self.get if self._pending else self._recent.get

    def add_pending(self, bodies: dict[int, bytes]) -> None:
        """Hold the bodies of a frame that was just built."""
        self._pending.append(bodies)

    def commit(self, bodies: dict[int, bytes], *, is_kept: bool = True) -> None:
        """Note that the oldest pending bodies are on disk: they may go when room is needed.

        Args:
            is_kept: False: they go at once; they were only moved.
        """
        oldest = self._pending.popleft()
        assert oldest is bodies, "frames are written in the order they were built"
        if not is_kept:
            return
        recent, byte_count = self._recent, self.byte_count
        for slot, body in bodies.items():
            before = recent.pop(slot, None)
            if before is not None:
                byte_count -= len(before) + _ENTRY_BYTES
            recent[slot] = body
            byte_count += len(body) + _ENTRY_BYTES
        while byte_count > self.bytes_max:
            _, body = recent.popitem(last=False)
            byte_count -= len(body) + _ENTRY_BYTES
        self.byte_count = byte_count

    def forget(self, slots: Sequence[int]) -> None:
        """Drop committed bodies of entries that ended."""
        recent = self._recent
        for slot in slots:
            body = recent.pop(slot, None)
            if body is not None:
                self.byte_count -= len(body) + _ENTRY_BYTES


class BodyReader:
    """Bodies of entries that are in a batch, from RAM, page cache or disk.

    Args:
        segments: The live ones by id.
    """

    def __init__(
        self,
        vfs: VFS,
        slots: Slots,
        segments: dict[int, Segment],
        cache: BodyCache,
        counters: Counters,
        run_in_worker: RunInWorker,
    ) -> None:
        self._vfs = vfs
        self._slots = slots
        self._segments = segments
        self._cache = cache
        self._counters = counters
        self._run_in_worker = run_in_worker

    def read_nowait(self, slots: Sequence[int]) -> list[bytes | None]:
        """See `Store.read_bodies_nowait`."""
        get = self._cache.getter()
        lengths, lsns = self._slots.body_length, self._slots.lsn
        found: list[bytes | None] = []
        missing: list[int] = []
        for slot in slots:
            # A slot just allocated may have a body of its last tenant in the cache.
            body = get(slot) if lsns[slot] else None
            if body is None:
                if lengths[slot]:
                    missing.append(len(found))
                else:
                    body = b""
            found.append(body)
        if missing:
            self._read_cached(slots, missing, found)
        self._counters.body_hits += len(found) - len(missing)
        return found

    def read(self, slots: Sequence[int]) -> Coroutine[Any, Any, list[bytes | BodyDamaged]]:
        """See `Store.read_bodies`."""
        found: list[bytes | BodyDamaged] = []
        wanted: list[Wanted] = []
        for slot in slots:
            body = self._cache.get(slot) if self._slots.lsn[slot] else None
            if body is None and self._slots.body_length[slot]:
                wanted.append(self._locate(slot, len(found)))
            found.append(body or b"")
        self._counters.body_hits += len(found) - len(wanted)
        for each in wanted:
            each.segment.begin_read()
        return self._finish(wanted, found)

    async def _finish(
        self, wanted: "list[Wanted]", found: list[bytes | BodyDamaged]
    ) -> list[bytes | BodyDamaged]:
        """Read what `found` lacks and put it there."""
        if not wanted:
            await trio.lowlevel.checkpoint()
            return found
        try:
            read = await self._run_in_worker(lambda: read_wanted(self._vfs, wanted), Lane.READ)
        finally:
            for each in wanted:
                each.segment.end_read()
        self._counters.body_reads += len(read)
        for each, result in zip(wanted, read, strict=True):
            if isinstance(result, BodyDamaged):
                self._counters.bodies_damaged += 1
                log.error("body damaged; it is never handed out", body=result)
            found[each.index] = result
        return found

    def _read_cached(
        self, slots: Sequence[int], missing: list[int], found: list[bytes | None]
    ) -> None:
        """Fill in what the page cache holds, neighbours with one call."""
        table = self._slots
        segments, offsets = table.segment, table.offset8
        lengths, crcs = table.body_length, table.body_crc
        count = len(missing)
        start = 0
        while start < count:
            slot = slots[missing[start]]
            segment, begin, length = segments[slot], offsets[slot], lengths[slot]
            end = begin + ((length + 7) >> 3)
            stop = start + 1
            while stop < count:
                slot = slots[missing[stop]]
                if segments[slot] != segment or offsets[slot] != end:
                    break
                length = lengths[slot]
                end += (length + 7) >> 3
                stop += 1
            # The padding behind the last one may not be there yet.
            wanted = ((end - begin) << 3) - (-length & 7)
            try:
                file = self._segments[segment].reading_file(self._vfs)
                data = file.pread_nowait(wanted, begin << 3)
            except OSError:  # `read` will tell
                data = None
            if data is not None:
                self._counters.body_reads += stop - start
                for index in missing[start:stop]:
                    slot = slots[index]
                    at = (offsets[slot] - begin) << 3
                    body = data[at : at + lengths[slot]]
                    if crc32(body) == crcs[slot]:
                        found[index] = body
            start = stop

    def _locate(self, slot: int, index: int) -> "Wanted":
        """Return where the body of `slot` lies now."""
        table = self._slots
        return Wanted(
            index,
            self._segments[table.segment[slot]],
            table.offset8[slot] << 3,
            table.body_length[slot],
            table.body_crc[slot],
            table.tables[slot],
            table.key(slot),
        )


@dataclass(slots=True)
class Wanted:
    """A body to read: where it lies, and where it goes in the answer. Taken before any wait."""

    index: int
    segment: Segment
    offset: int
    length: int
    crc: int
    table: int
    key: bytes


def damage(wanted: Wanted, found: int) -> BodyDamaged:
    """Return what stands in for a body that cannot be read."""
    return BodyDamaged(
        wanted.table,
        wanted.key,
        wanted.segment.path,
        wanted.offset,
        wanted.length,
        wanted.crc,
        found,
    )


def read_wanted(vfs: VFS, wanted: Sequence[Wanted]) -> list[bytes | BodyDamaged]:
    """Read and check bodies, neighbours in one call. Blocks.

    A body that cannot be read, for whatever reason, fails alone.
    """
    found: list[bytes | BodyDamaged] = []
    start = 0
    while start < len(wanted):
        stop = _run_end(wanted, start)
        first, last = wanted[start], wanted[stop - 1]
        try:
            data = first.segment.reading_file(vfs).pread(
                last.offset + last.length - first.offset, first.offset
            )
        except OSError:
            if stop - start > 1:  # find out which one it is
                for each in wanted[start:stop]:
                    found.extend(read_wanted(vfs, [each]))
            else:
                found.append(damage(first, 0))
            start = stop
            continue
        for each in wanted[start:stop]:
            begin = each.offset - first.offset
            body = data[begin : begin + each.length]
            crc = crc32(body)
            is_whole = crc == each.crc and len(body) == each.length
            found.append(body if is_whole else damage(each, crc))
        start = stop
    return found


def _run_end(wanted: Sequence[Wanted], start: int) -> int:
    """Return the index behind the last body that lies right behind the one before it."""
    stop = start + 1
    first = before = wanted[start]
    while stop < len(wanted):
        each = wanted[stop]
        if (
            each.segment is not first.segment
            or each.offset != (before.offset + before.length + 7) & ~7
        ):
            break
        if each.offset + each.length - first.offset > _RUN_BYTES_MAX:
            break
        before = each
        stop += 1
    return stop
