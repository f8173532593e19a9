"""Frames of one record are read many at a time, and judged exactly as one by one."""

from segstore.layout import HeadLayout
from segstore.runs import RunReader
from segstore.scan import LogState, SegmentScan
from tests.segstore.surgery import scan_of, world_of
from tests.segstore.worlds import FIELDS, DiskWorld, add, commit, key, remove

LAYOUT = HeadLayout(FIELDS)


async def small_frames() -> DiskWorld:
    world = world_of()
    store = await world.writer()
    for number in range(4):
        await add(store, [number], b"body" * number)
    await commit(store, states=[store.slots.find(1, key(2))])
    await remove(store, [1])
    await add(store, [5, 6])
    await add(store, [7])
    await world.kill(store)
    return world


def one_by_one(scan: SegmentScan) -> tuple[list[int], str]:
    """Return where each frame ends, and why there are no more."""
    ends = []
    while not isinstance(frame := scan.next(), str) and not scan.damaged_bodies(frame):
        scan.accept(frame)
        ends.append(scan.offset)
    return ends, frame if isinstance(frame, str) else "body"


def with_runs(scan: SegmentScan) -> tuple[list[int], str, list[int]]:
    """Return the same, with the end of each run, and how many frames each had."""
    ends: list[int] = []
    counts: list[int] = []
    while True:
        run = RunReader(LAYOUT).read(scan, len(scan.data), with_bodies=True)
        if run is not None:
            counts.append(len(run.records))
            ends.append(scan.offset)
            continue
        frame = scan.next()
        if isinstance(frame, str):
            return ends, frame, counts
        if scan.damaged_bodies(frame):
            return ends, "body", counts
        scan.accept(frame)
        ends.append(scan.offset)


async def test_what_is_alike_is_read_as_one() -> None:
    scan = scan_of(await small_frames(), 1)
    ends, end, counts = with_runs(scan)

    assert counts == [6, 1]  # the first has a segment list, another two records
    again = scan_of(await small_frames(), 1)
    assert one_by_one(again)[0][-1] == ends[-1]
    assert scan.state == again.state
    assert scan.last_crc == again.last_crc
    assert end == "no frame starts here" or "ends inside" in end


async def test_any_flipped_byte_stops_it_where_one_by_one_stops() -> None:
    scan = scan_of(await small_frames(), 1)
    data, header = scan.data, scan.header
    ends, _ = one_by_one(scan)

    for at in range(ends[0], ends[-1]):
        harmed = data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]
        slow, why = one_by_one(SegmentScan(harmed, header, LAYOUT, LogState()))
        fast, why_fast, _ = with_runs(SegmentScan(harmed, header, LAYOUT, LogState()))
        assert (fast[-1], why_fast) == (slow[-1], why), at


async def test_a_run_ends_before_where_it_is_told_to() -> None:
    scan = scan_of(await small_frames(), 1)
    first = scan.next()
    assert not isinstance(first, str)
    scan.accept(first)
    second = scan.parse(scan.offset)
    assert not isinstance(second, str)

    run = RunReader(LAYOUT).read(scan, scan.offset + second.header.frame_bytes)

    assert run is not None
    assert (len(run.records), run.byte_count) == (1, second.header.frame_bytes)
