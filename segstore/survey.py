"""Which segments of a directory are the log, as far as that can be told with some of them damaged.

The newest segment list that can be read counts, and all drops that come behind it.
"""

from segstore.directory import Directory
from segstore.layout import SEGMENT_HEADER_BYTES, HeadLayout, SegmentHeader
from segstore.local import SegmentDrop, SegmentEnd, SegmentList
from segstore.scan import LogState, SegmentScan, content_end
from segstore.vfs import VFS
from segstore.walk import LoadedSegment, load, next_intact


class Survey:
    """See the module.

    Args:
        vfs: The disk.
        directory: Looked into.
        layout: Of the heads.

    Attributes:
        sizes: Length of each file, by segment.
        ends: Where segments end and with which frame, as the list says.
        due: The segments of the log, rising; some may be missing. Spares are none of them.
        has_list: Whether a segment list was found; otherwise all that hold anything are due.
    """

    def __init__(self, vfs: VFS, directory: Directory, layout: HeadLayout) -> None:
        self._vfs = vfs
        self._directory = directory
        self._layout = layout
        self.sizes: dict[int, int] = {}
        self.ends: dict[int, SegmentEnd] = {}
        self.has_list = False
        for segment in directory.segments:
            file = vfs.open(directory.segment_path(segment), is_readonly=True)
            try:
                self.sizes[segment] = file.size()
            finally:
                file.close()
        self.due = self._find_due()

    def _find_due(self) -> list[int]:
        due: set[int] = set()
        dropped: set[int] = set()
        for segment in reversed(self._directory.segments):
            path = self._directory.segment_path(segment)
            loaded = load(self._vfs, path, segment, self._directory.marker.store_uuid)
            header = loaded.header
            if isinstance(header, str):
                due.add(segment)
                continue
            listed = self._read(loaded, header, dropped)
            if listed is not None:
                self.has_list = True
                self.ends = {each.segment: each for each in listed.segments}
                due |= {segment, *self.ends}
                break
            if content_end(memoryview(loaded.data)) > SEGMENT_HEADER_BYTES:
                due.add(segment)
            if header.previous and header.previous not in self.sizes:
                due.add(header.previous)
        return sorted(due - dropped)

    def _read(
        self, loaded: LoadedSegment, header: SegmentHeader, dropped: set[int]
    ) -> SegmentList | None:
        """Add what a segment drops; return the list in its first frame, if that is intact."""
        scan = SegmentScan(loaded.data, header, self._layout, LogState())
        frame = next_intact(scan, SEGMENT_HEADER_BYTES)
        found: SegmentList | None = None
        while frame is not None:
            for local in frame.locals:
                if isinstance(local, SegmentDrop):
                    dropped.add(local.segment)
                elif isinstance(local, SegmentList):
                    found = local
            frame = next_intact(scan, frame.header.offset + frame.header.frame_bytes)
        return found
