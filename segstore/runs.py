"""Reading frames of one record many at a time.

A store whose callers commit one by one holds a frame for each record. Such frames are all alike, so
one loop reads them in a third of the time. Whatever is unusual about one ends the run before it:
`SegmentScan.next` then says what is wrong, if anything is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final
from zlib import crc32

from segstore.batch import (
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    BATCH_VERSION,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    FRAME_VERSION,
    PUT,
)
from segstore.layout import HeadLayout, aligned
from segstore.scan import SegmentScan

_RUN_BYTES_MAX: Final = 4 << 20
# Header, hint and home, batch header. Neighbours that are always the same are read as one number.
_HEADS: Final = "<QIQQIIIQ8xQIIIIIIQ16sQQQQII"
_BATCH_AT: Final = FRAME_HEADER_BYTES + 8
_RECORD_AT: Final = _BATCH_AT + BATCH_HEADER_BYTES


@dataclass(slots=True)
class Run:
    """Records of neighbouring frames.

    Attributes:
        segment: Which they lie in.
        records: As `HeadLayout.raw_record` unpacks them; their LSNs are consecutive.
        offsets8: Where the bodies are, in units of 8 bytes.
        homes: See FORMAT.md section 3.
        byte_count: Of the frames.
    """

    segment: int
    first_lsn: int
    records: list[Sequence[Any]]
    offsets8: list[int]
    homes: list[int]
    byte_count: int


class RunReader:
    """Reads runs; see the module."""

    def __init__(self, layout: HeadLayout) -> None:
        record = layout.raw_record.format.removeprefix("<")
        self._heads = Struct(_HEADS + record)
        self._record_bytes = layout.record_bytes
        self._private_bytes = _BATCH_AT + BATCH_HEADER_BYTES + aligned(layout.record_bytes)
        self._canonical_bytes = BATCH_HEADER_BYTES + aligned(layout.record_bytes)
        head = Struct("<4sBBH").pack(FRAME_MAGIC, FRAME_VERSION, 0, FRAME_HEADER_BYTES)
        self._prefix = int.from_bytes(head, "little")
        head = Struct("<4sHH").pack(BATCH_MAGIC, BATCH_VERSION, layout.record_bytes)
        self._batch_prefix = int.from_bytes(head, "little")

    def read(self, scan: SegmentScan, stop: int, *, with_bodies: bool = False) -> Run | None:
        """Return the next frames as a run and go on behind them; None: the next one is none.

        Args:
            stop: Offset at which no frame starts any more.
            with_bodies: Check bodies too, and end before a damaged one.
        """
        if scan.is_sealed:
            return None
        data, state, salt = scan.data, scan.state, scan.header.salt
        unpack, record_bytes = self._heads.unpack_from, self._record_bytes
        same = self._same(scan)
        at, last_crc, lsn = scan.offset, scan.last_crc, state.last_lsn
        canonical_crc, epoch, clock = state.canonical_crc, state.epoch, state.log_clock_ms
        run = Run(scan.header.segment, lsn + 1, [], [], [], 0)
        stop = min(stop, len(data) - self._heads.size + 1, at + _RUN_BYTES_MAX)
        while at < stop:
            (
                start, frame_bytes, counts, parts, body_bytes, moved_bytes, offset8, segment,
                local_first, previous_crc, said_crc, zero, frame_crc, _hint, home,
                batch_start, store_uuid, of_epoch, first_lsn, count_and_bytes, at_ms,
                previous_batch_crc, batch_crc, *record,
            ) = unpack(data, at)  # fmt: skip
            kind, _table, _zero, length, body_crc, _key, _head = record
            bodies_at = at + self._private_bytes
            records_at = at + _RECORD_AT
            if (
                (start, counts, parts, moved_bytes, segment, local_first, zero, batch_start,
                 store_uuid) != same
                or (frame_bytes, offset8 << 3) != (self._private_bytes + body_bytes, at)
                or (previous_crc, said_crc) != (last_crc, batch_crc)
                or (previous_batch_crc, first_lsn) != (canonical_crc, lsn + 1)
                or of_epoch < epoch
                or at_ms < clock
                or count_and_bytes != body_bytes << 32 | 1
                or body_bytes != ((length + 7) & ~7 if kind == PUT else 0)
                or bodies_at + body_bytes > len(data)
                or frame_crc
                != crc32(data[at + 80 : at + 88], crc32(data[at : at + 76], salt))
                or batch_crc
                != crc32(
                    data[records_at : records_at + record_bytes],
                    crc32(data[at + _BATCH_AT : records_at - 4]),
                )
                or (with_bodies and crc32(data[bodies_at : bodies_at + length]) != body_crc)
            ):  # fmt: skip
                break
            run.records.append(record)
            run.offsets8.append(bodies_at >> 3)
            run.homes.append(home)
            at += frame_bytes
            last_crc, canonical_crc = frame_crc, batch_crc
            lsn, epoch, clock = first_lsn, of_epoch, at_ms
        if not run.records:
            return None
        run.byte_count = at - scan.offset
        scan.offset, scan.last_crc = at, last_crc
        state.last_lsn, state.canonical_crc = lsn, canonical_crc
        state.epoch, state.log_clock_ms = epoch, clock
        return run

    def _same(self, scan: SegmentScan) -> tuple[object, ...]:
        """Return what is the same in all heads of a run: one record, no local ones, no flags."""
        return (
            self._prefix,
            1,
            self._canonical_bytes << 32,
            0,
            scan.header.segment,
            scan.state.local_next,
            0,
            self._batch_prefix,
            scan.header.store_uuid,
        )
