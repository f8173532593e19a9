"""Histories of a store, and what can happen to its files; for `fuzz/recovery.py`."""

import random
from collections.abc import Callable
from contextlib import suppress
from zlib import crc32

from attrs import define, field

from segstore import FormatRefused, Options
from segstore.batch import FRAME_HEADER_BYTES
from segstore.index_page import Header
from segstore.layout import (
    SEGMENT_HEADER_BYTES,
    HeadLayout,
    decode_format,
    decode_header,
    segment_name,
    segment_of,
)
from segstore.local import SegmentList, decode_locals
from segstore.scan import LogState, SegmentScan
from tests.fakes.simdisk import SECTOR, Image
from tests.fakes.simvfs import SimVFS
from tests.segstore.crash import no_changes
from tests.segstore.crashing import Content, Trace
from tests.segstore.worlds import FIELDS, DiskWorld, Entropy, add

NUMBERS = range(20)
PAGE = 4096
LAYOUT = HeadLayout(FIELDS)


@define
class FrameMark:
    """A frame as it was written."""

    start: int
    end: int
    synced_off: int
    state: int  # index of the state with it


@define
class History:
    """A disk after a known life.

    Attributes:
        states: What was there after each batch.
        older: Files as they were at some moment before.
        foreign: Files of another store.
        last_lsns: Of each state.
        marks: Frames of each segment, in order.
    """

    options: Options
    image: Image
    states: list[Content]
    older: dict[str, bytes]
    foreign: dict[str, bytes]
    last_lsns: list[int]
    files: dict[str, bytes] = field(init=False)
    marks: dict[str, list[FrameMark]] = field(init=False)
    began: dict[str, int] = field(factory=dict)  # LSN before each segment that has frames

    def __attrs_post_init__(self) -> None:
        self.files = self.disk().visible_files()
        self.marks = {path: self._marks(path) for path in self.segments()}

    def disk(self) -> SimVFS:
        """Return a disk of its own with these files."""
        return SimVFS.from_image(self.image)

    def segments(self) -> list[str]:
        """Return the paths of the segments, oldest first."""
        return sorted(path for path in self.files if is_segment(path))

    def _marks(self, path: str) -> list[FrameMark]:
        scan = scan_of(self.files[path])
        marks: list[FrameMark] = []
        while not isinstance(frame := scan.parse(scan.offset), str):
            end = scan.offset + frame.header.frame_bytes
            last = 0 if frame.batch is None else frame.batch.first_lsn + frame.batch.count - 1
            if not marks:
                listed = frame.locals[0]
                assert isinstance(listed, SegmentList)
                self.began[path] = listed.last_lsn
            marks.append(FrameMark(scan.offset, end, frame.header.synced_off, last))
            scan.offset = end
        return marks

    def vouched_for(self, files: dict[str, bytes]) -> int:
        """Return the index of the oldest state that frames still whole leave possible."""
        for path in reversed(self.segments()):
            data, original = files.get(path, b""), self.files[path]
            whole = [
                m for m in self.marks[path] if data[m.start : m.end] == original[m.start : m.end]
            ]
            if not whole or whole[0].start != SEGMENT_HEADER_BYTES:
                continue  # as if it had never been written to
            vouched = max(mark.synced_off for mark in whole)
            lsns = [m.state for m in self.marks[path] if m.end <= vouched and m.state]
            return self.state_at(max([*lsns, self.began[path]]))
        return 0

    def is_shortened(self, files: dict[str, bytes]) -> bool:
        """Whether a segment ends earlier than it did, or is gone: then no byte is there to cut."""
        return any(
            len(files.get(path, b"").rstrip(b"\0")) < self.marks[path][-1].end
            for path in self.segments()
            if self.marks[path]
        )

    def state_at(self, lsn: int) -> int:
        """Return the index of the state after the record with this LSN."""
        return max((index for index, last in enumerate(self.last_lsns) if last <= lsn), default=0)


def is_segment(path: str) -> bool:
    """Whether this is the path of a segment."""
    return segment_of(path.rpartition("/")[2]) is not None


def scan_of(data: bytes) -> SegmentScan:
    """Return a scan of a segment's bytes."""
    header = decode_header(data)
    assert not isinstance(header, str), header
    return SegmentScan(data, header, LAYOUT, LogState())


async def make_history(rng: random.Random) -> History:
    """Live a random life of a store, to a clean or a sudden end."""
    options = Options(
        segment_bytes=rng.choice((8192, 32_768)),
        persist=rng.choice(("sync_all", "sync_data")),
        prealloc=rng.choice(("none", "zero")),
        recent_entries_max=rng.choice((6, 1000)),
    )
    trace = Trace(options)
    trace.vfs.on_point = None
    store = await trace.world.writer()
    last_lsns = [store.position().last_lsn]
    older = trace.vfs.visible_files()
    for _ in range(rng.randrange(3, 40)):
        live = sorted(trace.states[-1])
        deletes = tuple(rng.sample(live, min(len(live), rng.randrange(3))))
        puts = {
            number: rng.randbytes(rng.choice((0, 3, 500, 1500, 3000)))
            for number in rng.sample(NUMBERS, rng.randrange(1, 3))
        }
        kept = [number for number in live if number not in deletes]
        states = {number: rng.randrange(99) for number in rng.sample(kept, min(len(kept), 1))}
        await trace.step(store, puts, states=states, deletes=deletes)
        last_lsns.append(store.position().last_lsn)
        if rng.random() < 0.4:
            trace.world.clock.now_ms += rng.choice((10, 1000))
            await store.maintain(no_changes)
        if rng.random() < 0.1:
            older = trace.vfs.visible_files()
            await (store.close() if rng.random() < 0.5 else trace.world.kill(store))
            store = await trace.world.writer()
    await (store.close() if rng.random() < 0.5 else trace.world.kill(store))
    vfs = trace.vfs
    image = vfs.image([1] * len(vfs.pending))
    foreign = await foreign_files(options)
    return History(options, image, trace.states, older, foreign, last_lsns)


async def foreign_files(options: Options) -> dict[str, bytes]:
    """Return the files of another store."""
    vfs = SimVFS()
    store = await DiskWorld("/store", vfs, options, entropy=Entropy(99)).writer()
    for number in range(12):
        await add(store, [number], bytes(1000))
    await store.close()
    return vfs.visible_files()


# What can happen to files. Each returns what it did, in words.


def _pick(vfs: SimVFS, history: History, rng: random.Random) -> tuple[str, bytes]:
    """Choose a file with something in it: often the newest segment, mostly a segment."""
    files = {path: data for path, data in vfs.visible_files().items() if data}
    segments = [path for path in files if is_segment(path)]
    path = rng.choice(sorted(segments if segments and rng.random() < 0.85 else files))
    newest = [each for each in sorted(segments) if history.marks.get(each)][-1:]
    if newest and rng.random() < 0.4:
        (path,) = newest
    return path, files[path]


def _replace(vfs: SimVFS, path: str, data: bytes) -> None:
    if vfs.exists(path):
        vfs.unlink(path)
    file = vfs.open(path, is_new=True)
    file.pwritev([data], 0)
    file.fsync()
    file.close()


def flip(vfs: SimVFS, history: History, rng: random.Random) -> str:
    """Turn one bit over."""
    path, data = _pick(vfs, history, rng)
    content = len(data.rstrip(b"\0")) or 1
    at, bit = rng.randrange(content if rng.random() < 0.9 else len(data)), rng.randrange(8)
    _replace(vfs, path, data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
    return f"{path}+{at} bit {bit}"


def zero(vfs: SimVFS, history: History, rng: random.Random) -> str:
    """Zero a sector or a page."""
    path, data = _pick(vfs, history, rng)
    size = rng.choice((SECTOR, PAGE))
    at = rng.randrange(-(-len(data) // size)) * size
    _replace(vfs, path, (data[:at] + bytes(size) + data[at + size :])[: len(data)])
    return f"{path}+{at} {size} bytes"


def swap(vfs: SimVFS, history: History, rng: random.Random) -> str:
    """Swap two sectors, of one file or of two: misdirected writes."""
    path, data = _pick(vfs, history, rng)
    other, donor = (path, data) if rng.random() < 0.5 else _pick(vfs, history, rng)
    a = rng.randrange(-(-len(data) // SECTOR)) * SECTOR
    b = rng.randrange(-(-len(donor) // SECTOR)) * SECTOR
    mine, its = data[a : a + SECTOR], donor[b : b + SECTOR]
    if len(mine) == len(its):
        if path == other:
            changed = bytearray(data)
            changed[a : a + SECTOR], changed[b : b + SECTOR] = its, mine
            _replace(vfs, path, bytes(changed))
        else:
            _replace(vfs, path, data[:a] + its + data[a + SECTOR :])
            _replace(vfs, other, donor[:b] + mine + donor[b + SECTOR :])
    return f"{path}+{a} and {other}+{b}"


def cut(vfs: SimVFS, history: History, rng: random.Random) -> str:
    """Cut a file, often at the end of a frame."""
    path, data = _pick(vfs, history, rng)
    ends = [mark.end for mark in history.marks.get(path, [])]
    at = rng.choice(ends) if ends and rng.random() < 0.5 else rng.randrange(len(data))
    _replace(vfs, path, data[:at])
    return f"{path} at {at}"


def remove(vfs: SimVFS, history: History, rng: random.Random) -> str:
    """Take a file away."""
    path, _ = _pick(vfs, history, rng)
    vfs.unlink(path)
    return path


def put_back(vfs: SimVFS, history: History, rng: random.Random) -> str:
    """Put a file, or a page of it, back to what it was before."""
    paths = sorted(path for path in history.older if path in vfs.visible_files())
    path = rng.choice(paths)
    old = history.older[path]
    if rng.random() < 0.5:
        at = rng.randrange(-(-max(len(old), 1) // PAGE)) * PAGE
        data = vfs.visible_files()[path]
        old = data[:at] + old[at : at + PAGE] + data[at + PAGE :]
    _replace(vfs, path, old)
    return path


def misplace(vfs: SimVFS, history: History, rng: random.Random) -> str:
    """Put a file of another store, or another file of this one, in the place of one."""
    path, _ = _pick(vfs, history, rng)
    source = history.foreign if rng.random() < 0.5 else vfs.visible_files()
    name = rng.choice(sorted(source))
    if rng.random() < 0.2:
        path = f"/store/{segment_name(rng.randrange(1, 60))}"
    _replace(vfs, path, source[name])
    return f"{name} as {path}"


def lengthen(vfs: SimVFS, history: History, rng: random.Random) -> str:
    """Add zeros or noise to a file."""
    path, data = _pick(vfs, history, rng)
    size = rng.choice((1, 8, SECTOR, PAGE))
    _replace(vfs, path, data + (bytes(size) if rng.random() < 0.5 else rng.randbytes(size)))
    return f"{path} by {size}"


Harm = Callable[[SimVFS, History, random.Random], str]
HARMS: dict[str, Harm] = {
    harm.__name__: harm for harm in (flip, zero, swap, cut, remove, put_back, misplace, lengthen)
}


# Noise for the parsers.


def parse_noise(history: History, rng: random.Random) -> int:
    """Feed parsers what no writer made; they must say so, not raise. Returns how many they got."""
    noise = rng.randbytes(rng.randrange(300))
    decode_header(noise.ljust(rng.choice((0, SEGMENT_HEADER_BYTES)), b"\0"))
    decode_locals(noise, rng.randrange(5))
    Header.unpack(noise.ljust(PAGE, b"\0"))
    with suppress(FormatRefused):
        decode_format(noise, "noise")
    return 4 + _parse_forged(history, rng)


def _parse_forged(history: History, rng: random.Random) -> int:
    """Change a number in the header of a frame and make its CRC right again."""
    path = rng.choice([path for path in history.segments() if history.marks[path]])
    data = bytearray(history.files[path])
    mark = rng.choice(history.marks[path])
    at = mark.start + rng.choice(range(4, FRAME_HEADER_BYTES - 4, 4))
    value = rng.choice((0, 1, 7, 8, 2**31, 2**32 - 1, rng.randrange(2**32)))
    data[at : at + 4] = value.to_bytes(4, "little")
    scan = scan_of(bytes(data))
    private = int.from_bytes(data[mark.start + 12 : mark.start + 16], "little") * 8
    private += int.from_bytes(data[mark.start + 20 : mark.start + 24], "little")
    end = mark.start + FRAME_HEADER_BYTES
    crc = crc32(data[end : end + private], crc32(data[mark.start : end - 4], scan.header.salt))
    data[end - 4 : end] = crc.to_bytes(4, "little")
    scan = scan_of(bytes(data))
    found = scan.parse(mark.start)
    if not isinstance(found, str):
        scan.damaged_bodies(found)
        assert found.header.frame_bytes >= FRAME_HEADER_BYTES, found
    scan.voucher(mark.start)
    return 1
