"""The files of segments, as an open reads them: wholly, or only header and end."""

from dataclasses import dataclass
from typing import Final

from segstore.directory import Directory
from segstore.errors import FormatRefused, StoreDamaged
from segstore.layout import SEGMENT_HEADER_BYTES, HeadLayout, SegmentHeader, decode_header
from segstore.local import SegmentEnd
from segstore.scan import content_end, ends_with
from segstore.segment import Segment
from segstore.vfs import VFS

_TAIL_BYTES: Final = 1 << 20  # read for the last frame of a segment


@dataclass(slots=True)
class Loaded:
    """A segment file in memory."""

    path: str
    data: bytes
    header: SegmentHeader


class SegmentFiles:
    """Reads them, and refuses those that are not of this store.

    Args:
        vfs, directory, layout: Of the open.
        advice: What a refusal says to do.
    """

    def __init__(self, vfs: VFS, directory: Directory, layout: HeadLayout, advice: str) -> None:
        self._vfs = vfs
        self._directory = directory
        self._layout = layout
        self._advice = advice

    def load(self, segment: int) -> Loaded:
        """Return a whole segment."""
        path = self._directory.segment_path(segment)
        file = self._vfs.open(path, is_readonly=True)
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
        return Loaded(path, data, self._header(path, data, segment))

    def _header(self, path: str, data: bytes, segment: int) -> SegmentHeader:
        """Return the header in the first bytes of a segment; it is one of this store."""
        header = decode_header(data)
        if isinstance(header, str):
            raise StoreDamaged(path, 0, header, advice=self._advice)
        if header.store_uuid != self._directory.marker.store_uuid or header.segment != segment:
            problem = f"segment {header.segment} of store {header.store_uuid.hex()}"
            raise StoreDamaged(path, 0, problem, advice=self._advice)
        if header.fields != self._layout.text:
            raise FormatRefused(
                f"{path} has head fields {header.fields}; this program wants {self._layout.text}",
                "open it with the program and release that made it, or name its directory",
            )
        return header

    def pass_over(self, end: SegmentEnd) -> Segment:
        """Return a segment of which only header and end are looked at: they must be as listed."""
        path = self._directory.segment_path(end.segment)
        file = self._vfs.open(path, is_readonly=True)
        try:
            header = self._header(path, file.pread(SEGMENT_HEADER_BYTES, 0), end.segment)
            for tail_bytes in (_TAIL_BYTES, end.end):  # a frame may be longer than the tail
                start = max(0, end.end - tail_bytes)
                tail = file.pread(max(0, file.size() - start), start)
                if ends_with(tail, header, end.end, end.frame_crc, base=start):
                    break
            else:
                raise StoreDamaged(path, end.end, f"no frame {end.frame_crc:08x} before it")
            if content_end(memoryview(tail)[end.end - start :]):
                raise StoreDamaged(path, end.end, "bytes behind the listed end")
        finally:
            file.close()
        return sealed_segment(path, header, end.end, end.frame_crc)


def sealed_segment(path: str, header: SegmentHeader, end: int, last_crc: int) -> Segment:
    """Return a segment that is not written to any more."""
    return Segment(
        header.segment,
        path,
        header.salt,
        last_crc,
        end=end,
        is_sealed=True,
        written=end,
        synced=end,
    )
