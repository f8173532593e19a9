"""From table and key to slot: the recent entries in RAM, all others in `index.hix`.

Entries are *recent* until there are too many of them; then the oldest are merged into the file, so
an entry that lives shortly never touches it. The file is a hint and never the truth: each hit is
checked against the key of the slot, entries of slots that are free or hold another key by now are
passed over, and the file may be deleted while the store is closed. After an unclean stop, or when a
page turns out to be damaged, it is built anew from the slot table in the background; what is not
recent is looked for in the key column meanwhile.

While there have never been too many entries there is no file.

`open` blocks and comes first. All else belongs to one thread; work on the file goes through
`run_in_worker`.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final

import trio

from segstore.index_build import bucket_count_for, fill_index
from segstore.index_file import ENTRIES_TARGET, Columns, IndexDamaged, IndexFile, slots_crc
from segstore.index_merge import Pause, RunInWorker, merge_oldest, split_buckets
from segstore.index_page import PAGE_BYTES
from segstore.index_search import ABSENT, search, search_range
from segstore.vfs import VFS, File

UNKNOWN: Final = -2

FILE_NAME: Final = "index.hix"
RECENT_MAX: Final = 262_144
# Answers read from disk are kept until at least so many others were.
LOCATED_MAX: Final = 8192
_MERGE_MAX: Final = 32_768
_BACKOFF_MAX: Final = 64


class HashIndex:
    """The directory of a slot table.

    `recent` may be read and written directly, but for two rules: a new key goes in by `put`, and a
    key that is not in it may still lead somewhere.

    Args:
        columns: The slot table; its length is how many slots are taken.
        vfs: The disk.
        directory: Of the store.
        new_seed: Gives 32 bytes nobody can guess.
        run_in_worker: See `RunInWorker`.
        pause: Lets others run.
        warn: Called with one line when the file has to be built anew.
        recent_max: How many entries may stay recent.
    """

    def __init__(
        self,
        columns: Columns,
        *,
        vfs: VFS,
        directory: str,
        new_seed: Callable[[], bytes],
        run_in_worker: RunInWorker,
        pause: Pause = trio.lowlevel.checkpoint,
        warn: Callable[[str], None],
        recent_max: int = RECENT_MAX,
    ) -> None:
        self.recent: list[dict[bytes, int]] = [{} for _ in range(256)]
        self.recent_max = recent_max
        self._columns = columns
        self._vfs = vfs
        self._directory = directory
        self._path = f"{directory}/{FILE_NAME}"
        self._new_seed = new_seed
        self._run_in_worker = run_in_worker
        self._pause = pause
        self._warn = warn
        self._file: IndexFile | None = None
        self._built: trio.Event | None = None  # set while there is no file but should be
        self._discarded: IndexFile | None = None  # to be closed once nobody works on it
        self._located: dict[tuple[int, bytes], int] = {}
        self._located_before: dict[tuple[int, bytes], int] = {}
        self._searched_count = 0
        self._is_busy = False
        self._skip = 0
        self._backoff = 1

    # Looking up.

    def find(self, table: int, key: bytes) -> int:
        """Return the slot of a key, ABSENT, or UNKNOWN if that takes a disk: `locate` it then."""
        slot = self.recent[table].get(key)
        return slot if slot is not None else self.find_old(table, key)

    def find_old(self, table: int, key: bytes) -> int:
        """`find` for a key that is not recent."""
        index = self._file
        if index is None:
            return ABSENT if self._built is None else self._find_located(table, key)
        try:
            slots = index.candidates_nowait(index.hash(table, key))
        except (IndexDamaged, OSError) as problem:
            self._discard(problem)
            return UNKNOWN
        if slots is None:
            return self._find_located(table, key)
        return self._choose(slots, table, key)

    def find_blocking(self, table: int, key: bytes) -> int:
        """`find` that waits for the disk, or searches all keys, on this very thread if it must."""
        slot = self.find(table, key)
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
            elif self._built is not None and self._is_busy and self._searched_count:
                await self._built.wait()  # one search at a time; the file is soon there
            else:
                await self._search_wanted(wanted)

    # Changing.

    def put(self, table: int, key: bytes, slot: int) -> None:
        """Let a key lead to a slot from now on."""
        self.recent[table][key] = slot
        if self._located or self._located_before:
            self._located.pop((table, key), None)
            self._located_before.pop((table, key), None)

    def remove(self, table: int, key: bytes, slot: int) -> None:
        """Forget a key if it still leads to the slot, which is free when this is next asked."""
        keys = self.recent[table]
        if keys.get(key) == slot:
            del keys[key]

    async def maintain(self) -> None:
        """Do what there is to do: build the file, merge a share of the recent entries, or nothing.

        May be cancelled at any time. One call at a time works, others return at once.
        """
        if self._is_busy:
            return
        if self._skip:
            self._skip -= 1
            return
        self._is_busy = True
        try:
            if self._built is not None:
                await self._build(self._built)
            elif self.recent_count() > self.recent_max:
                await self._merge()
            self._backoff = 1
        except IndexDamaged as problem:
            self._discard(problem)
        except OSError as problem:
            # Most likely the disk is full. RAM holds all that is not written; try again later.
            self._warn(f"{self._path}: {problem}; entries stay in RAM meanwhile")
            self._skip = self._backoff = min(2 * self._backoff, _BACKOFF_MAX)
            if self._built is not None:
                self._built.set()
                self._built = trio.Event()
        finally:
            self._is_busy = False

    def recent_count(self) -> int:
        """How many entries are recent."""
        return sum(map(len, self.recent))

    def has_work(self) -> bool:
        """Whether `maintain` has something to do."""
        return self._built is not None or self.recent_count() > self.recent_max

    # Opening and closing.

    def open(self, store_uuid: bytes) -> None:
        """Take over the file of a clean close, or see that it is built anew. Blocks.

        The slot table is complete. What recovery already put among the recent entries stays there
        if the file is of no use: these are asked for first.
        """
        if not self._vfs.exists(self._path):
            self._start_without_file()
            return
        problem = "not needed"
        if len(self._columns) > self.recent_max:
            problem = self._open_clean(store_uuid)
        if problem:
            self._vfs.unlink(self._path)
            self._start_without_file()
            if len(self._columns) > self.recent_max:
                self._warn(f"{self._path}: {problem}; it is built anew")

    def close(self, store_uuid: bytes) -> None:
        """Leave a file that the next `open` can use. Blocks; no `maintain` is under way."""
        index = self._file
        try:
            self._close_discarded()
            if index is None:
                return
            recent = array("I", chain.from_iterable(keys.values() for keys in self.recent))
            index.close_clean(store_uuid, slots_crc(self._columns), recent)
            self._vfs.sync_dir(self._directory)
        except OSError as problem:
            self._warn(f"{self._path}: {problem}; the next open builds it anew")

    def _start_without_file(self) -> None:
        columns = self._columns
        if len(columns) > self.recent_max:
            self._built = trio.Event()
            return
        for slot, table in enumerate(columns.tables):
            if table:
                self.recent[table][bytes(columns.keys[slot << 4 : (slot << 4) + 16])] = slot

    def _open_clean(self, store_uuid: bytes) -> str:
        """Take over the file; return what is wrong with it."""
        columns = self._columns
        file = self._vfs.open(self._path)
        try:
            opened = IndexFile.open_clean(file, columns, store_uuid, slots_crc(columns))
        except OSError as problem:
            file.close()
            return str(problem)
        if opened is None:
            file.close()
            return "not left by the last clean close of this store"
        self._file, recent = opened
        for keys in self.recent:
            keys.clear()
        for slot in recent:
            key = bytes(columns.keys[slot << 4 : (slot << 4) + 16])
            self.recent[columns.tables[slot]][key] = slot
        return ""

    # Lookups that take a disk or a search.

    async def _read_wanted(self, index: IndexFile, wanted: Sequence[tuple[int, bytes]]) -> None:
        hashes = [index.hash(table, key) for table, key in wanted]
        buckets = [index.bucket(hashed) for hashed in hashes]
        crcs = [index.crcs[bucket] for bucket in buckets]
        try:
            pages = await self._run_in_worker(index.read, buckets)
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
        self._searched_count += 1
        try:
            found = await search(self._columns, wanted, self._pause)
        finally:
            self._searched_count -= 1
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
        slot = self._located.get((table, key))
        if slot is None:
            slot = self._located_before.get((table, key), UNKNOWN)
        return slot if slot < 0 or self._holds(slot, table, key) else UNKNOWN

    def _remember(self, table: int, key: bytes, slot: int) -> None:
        if slot == ABSENT and key in self.recent[table]:
            return  # put while it was looked for
        if len(self._located) >= LOCATED_MAX:
            self._located_before, self._located = self._located, {}
        self._located[table, key] = slot

    # Work on the file.

    async def _merge(self) -> None:
        index = self._file
        if index is None:
            index = await self._create(bucket_count_for(self.recent_max // 8))
            for bucket in range(index.bucket_count):
                index.fill(bucket, [])
            self._file = index
        if index.pending:  # as created, or left by a failure or a cancelled merge
            images = index.take_writes()
            await self._run_in_worker(index.write, images)
            index.written(images)
        table = max(range(256), key=lambda each: len(self.recent[each]))
        excess = self.recent_count() - self.recent_max + self.recent_max // 8
        left = await merge_oldest(
            index,
            self.recent[table],
            table,
            min(excess, _MERGE_MAX),
            run_in_worker=self._run_in_worker,
            pause=self._pause,
        )
        merged_count = max(0, len(self._columns) - self.recent_count())
        wanted = merged_count // ENTRIES_TARGET + 1
        if left:  # full buckets: split early, though not for ever if keys all go to one
            early = index.bucket_count + left // 16 + 1
            wanted = max(wanted, min(early, merged_count // 64 + 1))
        await split_buckets(index, wanted, run_in_worker=self._run_in_worker, pause=self._pause)

    async def _build(self, built: trio.Event) -> None:
        index = await self._create(bucket_count_for(len(self._columns)))
        self._discarded = index  # until it is whole
        left = await fill_index(
            index,
            self._columns,
            self.recent,
            run_in_worker=self._run_in_worker,
            pause=self._pause,
        )
        columns = self._columns
        for slot in left:
            key = bytes(columns.keys[slot << 4 : (slot << 4) + 16])
            if columns.tables[slot]:
                self.recent[columns.tables[slot]].setdefault(key, slot)
        self._discarded, self._file, self._built = None, index, None
        built.set()

    async def _create(self, bucket_count: int) -> IndexFile:
        file = await self._run_in_worker(self._create_file, bucket_count)
        return IndexFile(file, self._columns, self._new_seed(), bucket_count)

    def _create_file(self, bucket_count: int) -> File:
        self._close_discarded()
        if self._vfs.exists(self._path):
            self._vfs.unlink(self._path)
        file = self._vfs.open(self._path, is_new=True)
        try:
            file.fallocate(0, (bucket_count + 1) * PAGE_BYTES)  # a full disk says so now
        except OSError:
            file.close()
            raise
        return file

    def _discard(self, problem: Exception) -> None:
        """Stop using the file; `maintain` builds another."""
        if self._file is None:
            return
        self._warn(f"{self._path}: {problem}; it is built anew")
        self._file.is_discarded = True
        self._discarded, self._file = self._file, None
        self._built = trio.Event()

    def _close_discarded(self) -> None:
        if self._discarded is not None:
            self._discarded.file.close()
            self._discarded = None
