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
        data, state, header = scan.data, scan.state, scan.header
        segment, salt, store_uuid, local_next = (
            header.segment,
            header.salt,
            header.store_uuid,
            state.local_next,
        )
        unpack, size, record_bytes = self._heads.unpack_from, self._heads.size, self._record_bytes
        prefix, batch_prefix = self._prefix, self._batch_prefix
        lengths = self._canonical_bytes << 32  # and no bytes of local records
        private_bytes = _BATCH_AT + self._canonical_bytes
        at, last_crc, lsn = scan.offset, scan.last_crc, state.last_lsn
        canonical_crc, epoch, clock = state.canonical_crc, state.epoch, state.log_clock_ms
        records: list[Sequence[Any]] = []
        offsets8: list[int] = []
        homes: list[int] = []
        stop = min(stop, len(data) - size + 1, at + _RUN_BYTES_MAX)
        while at < stop:
            (
                start, frame_bytes, counts, part_lengths, body_bytes, moved_bytes, offset8,
                of_segment, local_first, previous_crc, batch_crc_said, zero, frame_crc, _hint, home,
                batch_start, of_store, of_epoch, first_lsn, count_and_bytes, at_ms,
                previous_batch_crc, batch_crc, *record,
            ) = unpack(data, at)  # fmt: skip
            kind, _table, _zero, length, body_crc, _key, _head = record
            bodies_at = at + private_bytes
            if (
                start != prefix
                or frame_bytes != private_bytes + body_bytes
                or counts != 1
                or part_lengths != lengths
                or moved_bytes
                or offset8 << 3 != at
                or of_segment != segment
                or local_first != local_next
                or previous_crc != last_crc
                or batch_crc_said != batch_crc
                or zero
                or batch_start != batch_prefix
                or of_store != store_uuid
                or of_epoch < epoch
                or first_lsn != lsn + 1
                or count_and_bytes != body_bytes << 32 | 1
                or at_ms < clock
                or previous_batch_crc != canonical_crc
                or body_bytes != ((length + 7) & ~7 if kind == PUT else 0)
                or bodies_at + body_bytes > len(data)
                or crc32(data[at + 80 : at + 88], crc32(data[at : at + 76], salt)) != frame_crc
                or crc32(
                    data[at + _RECORD_AT : at + _RECORD_AT + record_bytes],
                    crc32(data[at + _BATCH_AT : at + _RECORD_AT - 4]),
                )
                != batch_crc
                or (
                    with_bodies
                    and length
                    and crc32(data[bodies_at : bodies_at + length]) != body_crc
                )
            ):
                break
            records.append(record)
            offsets8.append(bodies_at >> 3)
            homes.append(home)
            at += frame_bytes
            last_crc, canonical_crc, lsn, epoch, clock = (
                frame_crc,
                batch_crc,
                first_lsn,
                of_epoch,
                at_ms,
            )
        if not records:
            return None
        run = Run(segment, state.last_lsn + 1, records, offsets8, homes, at - scan.offset)
        scan.offset, scan.last_crc = at, last_crc
        state.last_lsn, state.canonical_crc, state.epoch, state.log_clock_ms = (
            lsn,
            canonical_crc,
            epoch,
            clock,
        )
        return run
