"""From table and key to slot: the recent entries in RAM, all others in `index.hix`.

Entries are *recent* until there are too many of them; then the oldest are merged into the file, so
an entry that lives shortly never touches it. The file is a hint and never the truth: each hit is
checked against the key of the slot, entries of slots that are free or hold another key by now are
passed over, and the file may be deleted while the store is closed. After an unclean stop, or when a
page turns out to be damaged, it is built anew from the slot table in the background; what is not
recent is looked for in the key column meanwhile.

While there have never been too many entries there is no file.

`open` and `close` block. All else belongs to one thread; work on the file goes through
`run_in_worker`.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final

import trio

from segstore.events import log
from segstore.index_build import IndexBuild, bucket_count_for
from segstore.index_file import Columns, IndexDamaged, IndexFile, set_recent, slots_crc
from segstore.index_merge import Merge
from segstore.index_page import PAGE_BYTES, SEED_BYTES
from segstore.index_search import Located, Pause, search, search_range
from segstore.layout import INDEX_NAME
from segstore.slots import ABSENT, UNKNOWN
from segstore.vfs import VFS, File
from segstore.workers import Lane, RunInWorker

_MERGE_MAX: Final = 32_768
_MAINTAIN_STEPS: Final = 64
_STEP_RECORDS: Final = 64  # a step moves more entries than that
_BACKOFF_MAX: Final = 64


class HashIndex:
    """The directory of a slot table. `columns.recent` belongs to it, but for this:

    - a key that is in there leads where it says, and who needs speed may look there first;
    - new keys go in by `put`, or directly before `open`.

    Args:
        columns: The slot table; its length is how many slots are taken.
        vfs: The disk.
        directory, store_uuid: Of the store.
        entropy: Random bytes that nobody can guess.
        run_in_worker: Where blocking calls run.
        recent_max: How many entries may stay recent.
        pause: Lets others run.

    Attributes:
        discard_count: Files given up because they were damaged or not cleanly closed.
        failure_count: Times the disk refused to take something.
    """

    def __init__(
        self,
        columns: Columns,
        *,
        vfs: VFS,
        directory: str,
        store_uuid: bytes,
        entropy: Callable[[int], bytes],
        run_in_worker: RunInWorker,
        recent_max: int,
        pause: Pause = trio.lowlevel.checkpoint,
    ) -> None:
        self.recent_max = recent_max
        self.discard_count = self.failure_count = 0
        self._columns = columns
        self._vfs = vfs
        self._directory = directory
        self._path = f"{directory}/{INDEX_NAME}"
        self._store_uuid = store_uuid
        self._entropy = entropy
        self._run_in_worker = run_in_worker
        self._pause = pause
        self._file: IndexFile | None = None
        self._built: trio.Event | None = None  # while there is no file but should be
        self._work: IndexBuild | Merge | None = None  # under way
        self._turn = trio.Lock()
        self._unused: list[File] = []  # to be closed once nobody works on them
        self._located = Located()
        self._search_count = 0  # under way
        self._has_old_file = False
        self._skip, self._backoff, self._unchecked = 0, 1, 0

    # Looking up.

    def find(self, table: int, key: bytes) -> int:
        """Return the slot of a key, ABSENT, or UNKNOWN if that takes a disk: `locate` it then."""
        slot = self._columns.recent[table].get(key)
        return slot if slot is not None else self.find_old(table, key)

    def find_old(self, table: int, key: bytes) -> int:
        """`find` for a key that is not recent."""
        index = self._file
        if index is None:
            return ABSENT if self._built is None else self._find_located(table, key)
        known = self._find_located(table, key)
        if known >= 0:
            return known
        try:
            slots = index.candidates_nowait(index.hash(table, key))
        except (IndexDamaged, OSError) as problem:
            self._discard(problem)
            return UNKNOWN
        return known if slots is None else self._choose(slots, table, key)

    def find_old_blocking(self, table: int, key: bytes) -> int:
        """`find_old` that waits for the disk, or searches all keys, on this thread if it must."""
        slot = self.find_old(table, key)
        while slot == UNKNOWN:
            index = self._file
            if index is None:
                return search_range(self._columns, table, key, 0, len(self._columns.keys))
            hashed = index.hash(table, key)
            bucket = index.bucket(hashed)
            try:
                [page] = index.read([bucket])
                return self._choose(index.candidates(page, bucket, hashed), table, key)
            except (IndexDamaged, OSError) as problem:
                self._discard(problem)
        return slot

    async def locate(self, keys: Iterable[tuple[int, bytes]]) -> None:
        """Read from disk, or search, what `find` does not know; it knows these keys on return."""
        asked = list(keys)
        while wanted := [each for each in asked if self.find(*each) == UNKNOWN]:
            if self._file is not None:
                await self._read_wanted(self._file, wanted)
            elif self._built is not None and self._work is not None and self._search_count:
                await self._built.wait()  # one search at a time; the file is soon there
            else:
                await self._search_wanted(wanted)

    # Changing.

    def expect(self, table: int, key: bytes, slot: int) -> None:
        """A key will soon be asked for: spare that a look into the file."""
        if self._file is not None and key not in self._columns.recent[table]:
            self._located.remember(table, key, slot)

    def put(self, table: int, key: bytes, slot: int) -> None:
        """Let a key lead to a slot from now on."""
        self._columns.recent[table][key] = slot
        if self._located.has_absent:
            self._located.forget(table, key)

    async def maintain(self) -> None:
        """Do a share of what there is to do, a tenth of a second at most. May be cancelled."""
        if self._skip:
            self._skip -= 1
            return
        for _ in range(_MAINTAIN_STEPS):
            if not self.has_work():
                return
            await self._step()

    async def keep_up(self, record_count: int) -> None:
        """Before so many records are committed: wait while merging is behind, to bound the RAM."""
        self._unchecked += record_count  # so most commits cost nothing here
        steps, self._unchecked = divmod(self._unchecked, _STEP_RECORDS)
        for _ in range(2 * steps):
            if self._skip or self.recent_count() <= self.recent_max + self.recent_max // 4:
                return
            await self._step()

    def recent_count(self) -> int:
        """How many entries are recent."""
        return sum(map(len, self._columns.recent))

    def bucket_count(self) -> int:
        """How many buckets the file has; 0 while there is none."""
        return self._file.bucket_count if self._file is not None else 0

    def is_building(self) -> bool:
        """Whether old entries have to be searched for."""
        return self._built is not None

    def has_work(self) -> bool:
        """Whether another call of `maintain` would do something now."""
        is_begun = self._work is not None or self._built is not None or self._has_old_file
        return not self._skip and (is_begun or self.recent_count() > self.recent_max)

    # Opening and closing.

    def open(self, hot: Iterable[int]) -> None:
        """Take over the file of a clean close, or see that it is built anew. Blocks, only reads.

        Args:
            hot: Slots that stay recent if there is no file yet: they are asked for first.
        """
        is_small = len(self._columns) <= self.recent_max
        if self._vfs.exists(self._path):
            self._has_old_file = True
            if not is_small:
                problem = self._open_clean()
                if not problem:
                    return
                log.info("index not used; it is built anew", path=self._path, problem=problem)
                self.discard_count += 1
        if not is_small:
            set_recent(self._columns, hot)
            self._built = trio.Event()

    def close(self) -> None:
        """Leave a file that the next `open` can use. Blocks; no `maintain` is under way."""
        index, self._file = self._file, None
        try:
            self._stop()
            self._close_unused()
            if index is None:
                return
            recent = array("I", chain.from_iterable(map(dict.values, self._columns.recent)))
            index.close_clean(self._store_uuid, slots_crc(self._columns), recent)
            self._vfs.sync_dir(self._directory)
        except OSError as problem:
            log.warning("index not closed cleanly", path=self._path, error=problem)
            self._file = index
            self.abandon()

    def abandon(self) -> None:
        """Close files and leave what is on disk; the next `open` builds it anew."""
        self._stop()
        if self._file is not None:
            self._unused.append(self._file.file)
            self._file = None
        self._close_unused()

    def _open_clean(self) -> str:
        """Take over the file; return what is wrong with it."""
        columns = self._columns
        try:
            file = self._vfs.open(self._path)
            opened = IndexFile.open_clean(file, columns, self._store_uuid, slots_crc(columns))
        except OSError as problem:
            return str(problem)
        if isinstance(opened, str):
            file.close()
            return opened
        self._file, slots = opened
        self._has_old_file = False
        set_recent(columns, slots)
        return ""

    # Lookups that take a disk or a search.

    async def _read_wanted(self, index: IndexFile, wanted: Sequence[tuple[int, bytes]]) -> None:
        hashes = [index.hash(table, key) for table, key in wanted]
        buckets = [index.bucket(hashed) for hashed in hashes]
        crcs = [index.crcs[bucket] for bucket in buckets]
        try:
            pages = await self._run_in_worker(lambda: index.read(buckets), Lane.READ)
            for (table, key), hashed, bucket, crc, page in zip(
                wanted, hashes, buckets, crcs, pages, strict=True
            ):
                if index.bucket(hashed) != bucket or index.crcs[bucket] != crc:
                    continue  # changed while it was read; it is in the cache now
                slots = index.candidates(page, bucket, hashed)
                self._remember(table, key, self._choose(slots, table, key))
        except (IndexDamaged, OSError) as problem:
            if self._file is index:
                self._discard(problem)

    async def _search_wanted(self, wanted: Sequence[tuple[int, bytes]]) -> None:
        built = self._built
        self._search_count += 1
        try:
            found = await search(self._columns, wanted, self._pause)
        finally:
            self._search_count -= 1
        if self._built is built:  # else what was put meanwhile may be in the file already
            for table, key in wanted:
                self._remember(table, key, found.get((table, key), ABSENT))

    def _choose(self, slots: Sequence[int], table: int, key: bytes) -> int:
        """Return the slot that holds the key indeed."""
        for slot in slots:
            if self._holds(slot, table, key):
                return slot
        return ABSENT

    def _holds(self, slot: int, table: int, key: bytes) -> bool:
        columns = self._columns
        held = columns.keys[slot << 4 : (slot << 4) + 16]
        return held == key and columns.tables[slot] == table

    def _find_located(self, table: int, key: bytes) -> int:
        slot = self._located.get(table, key)
        return slot if slot < 0 or self._holds(slot, table, key) else UNKNOWN

    def _remember(self, table: int, key: bytes, slot: int) -> None:
        if slot != ABSENT or key not in self._columns.recent[table]:  # not put meanwhile
            self._located.remember(table, key, slot)

    # Work on the file.

    async def _step(self) -> None:
        async with self._turn:
            try:
                if self._work is None:
                    self._work = await self._begin()
                if self._work is None or await self._work.step():
                    self._end()
                self._backoff = 1
            except IndexDamaged as problem:
                self._discard(problem)
            except OSError as problem:
                # Most likely the disk is full. RAM holds what is not written; try again later.
                log.warning("index not written; RAM has it", path=self._path, error=problem)
                self.failure_count += 1
                self._skip = self._backoff = min(2 * self._backoff, _BACKOFF_MAX)
                self._stop()
        await self._pause()

    async def _begin(self) -> IndexBuild | Merge | None:
        """Find what is to be done next."""
        columns = self._columns
        if self._built is not None:
            index = await self._create(bucket_count_for(len(columns)))
            return IndexBuild(index, columns, self._run_in_worker)
        count = self.recent_count()
        if count > self.recent_max:
            if self._file is None:
                index = await self._create(bucket_count_for(self.recent_max // 8))
                for bucket in range(index.bucket_count):
                    index.fill(bucket, [])
                self._file = index
            table = max(range(256), key=lambda each: len(columns.recent[each]))
            excess = count - self.recent_max + self.recent_max // 8
            count_max = min(excess, _MERGE_MAX)
            return Merge(self._file, columns, table, count_max, self._run_in_worker)
        if self._has_old_file:  # which a store as small as this does not need
            await self._run_in_worker(self._remove_old_file, Lane.MAINTENANCE)
        return None

    def _end(self) -> None:
        """Take over what the work has made."""
        work, self._work = self._work, None
        if not isinstance(work, IndexBuild):
            if work is not None and not work.moved_count:
                self._skip = _BACKOFF_MAX  # all in full buckets: not again and again
            return
        columns = self._columns
        for slot in work.left:
            key = bytes(columns.keys[slot << 4 : (slot << 4) + 16])
            if columns.tables[slot]:
                columns.recent[columns.tables[slot]].setdefault(key, slot)
        assert self._built is not None
        self._built.set()
        self._file, self._built = work.index, None

    def _stop(self) -> None:
        """Give up the work under way; who waits for a file has to search."""
        work, self._work = self._work, None
        if isinstance(work, IndexBuild):
            self._unused.append(work.index.file)
        if self._built is not None:
            self._built.set()
            self._built = trio.Event()

    async def _create(self, bucket_count: int) -> IndexFile:
        file = await self._run_in_worker(lambda: self._create_file(bucket_count), Lane.MAINTENANCE)
        return IndexFile(file, self._columns, self._entropy(SEED_BYTES), bucket_count)

    def _create_file(self, bucket_count: int) -> File:
        self._close_unused()
        self._remove_old_file()
        file = self._vfs.open(self._path, is_new=True)
        try:
            file.fallocate(0, (bucket_count + 1) * PAGE_BYTES)  # a full disk says so now
        except OSError:
            file.close()
            raise
        return file

    def _remove_old_file(self) -> None:
        if self._vfs.exists(self._path):
            self._vfs.unlink(self._path)
        self._has_old_file = False

    def _discard(self, problem: Exception) -> None:
        """Stop using the file; `maintain` builds another."""
        if self._file is None:
            return
        log.warning("index damaged; it is built anew", path=self._path, problem=problem)
        self.discard_count += 1
        self._file.is_discarded = True
        self._unused.append(self._file.file)
        self._file = self._work = None
        self._built = trio.Event()

    def _close_unused(self) -> None:
        while self._unused:
            self._unused.pop().close()
