"""What a user may choose about a store, and what the store says about itself."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from segstore.segment import Prealloc

Persist = Literal["sync_all", "sync_data", "buffer"]

SEGMENT_BYTES_MIN: Final = 8192
SEGMENT_BYTES_MAX: Final = 1 << 30
_SHORT_BYTES_MAX: Final = 8 << 20  # 4,096 records, each with a reason of a kilobyte, and some


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of the one who opens a store. None of them is on disk.

    Attributes:
        persist: What `commit` waits for. `sync_all`: what fsync promises. `sync_data`: what
            fdatasync does, enough to read it back. `buffer`: the operating system has it; a crash
            of the process loses nothing, a power cut may lose what is younger than
            `buffer_sync_ms`.
        segment_bytes: Wanted size of a segment; a batch larger than that makes a larger one.
        prealloc: How the space of a segment made ahead is filled: `zero` makes later syncs cheap,
            `fallocate` only reserves, `none` does neither (btrfs, zfs).
        cache_bytes: Bodies written last are kept in RAM up to this.
        buffer_sync_ms: In `buffer` mode, the longest time between syncs in the background.
        idle_sync_ms: After this pause an empty frame notes how far the log is durable.
        recent_entries_max: How many entries may be found without the index file; about 150 bytes
            of RAM each.
        compact_bytes_s: Pace of copying what still counts in mostly dead segments, bytes a second;
            raised while the disk holds much too much. 0: only wholly dead segments are dropped.
        snapshot_log_bytes: After so many bytes of log, or four times the size of a snapshot if that
            is more, or what is as slow to replay, the next snapshot is written. 0: none is.
        batch_bytes_max: What is committed between two looks at the free space may take so much;
            new bodies are refused while there is less, or less than two segments.
        salvage_command: The whole command that the message of a refused open names.
    """

    persist: Persist = "sync_all"
    segment_bytes: int = 64 << 20
    prealloc: Prealloc = "zero"
    cache_bytes: int = 16 << 20
    buffer_sync_ms: int = 1000
    idle_sync_ms: int = 50
    recent_entries_max: int = 131_072
    compact_bytes_s: int = 8 << 20
    snapshot_log_bytes: int = 256 << 20
    batch_bytes_max: int = 0
    salvage_command: str = ""

    def __post_init__(self) -> None:
        if not SEGMENT_BYTES_MIN <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise ValueError(
                f"segment_bytes must be {SEGMENT_BYTES_MIN}…{SEGMENT_BYTES_MAX}:"
                f" {self.segment_bytes}"
            )
        if self.recent_entries_max < 1:
            raise ValueError(f"recent_entries_max must be at least 1: {self.recent_entries_max}")
        if self.persist not in ("sync_all", "sync_data", "buffer"):
            raise ValueError(f"persist must be sync_all, sync_data or buffer: {self.persist!r}")
        if self.prealloc not in ("zero", "fallocate", "none"):
            raise ValueError(f"prealloc must be zero, fallocate or none: {self.prealloc!r}")

    @property
    def low_bytes(self) -> int:
        """Free space below which new bodies are refused."""
        return max(2 * self.segment_bytes, self.batch_bytes_max)

    @property
    def enough_bytes(self) -> int:
        """Free space from which they are taken again."""
        return max(3 * self.segment_bytes, self.batch_bytes_max + self.segment_bytes)

    @property
    def short_bytes(self) -> int:
        """Space that a batch of short records may need."""
        return min(self.segment_bytes // 4, _SHORT_BYTES_MAX)


def seal_bytes(segment_bytes: int) -> int:
    """Return the end behind which a frame is the last of a segment of this size."""
    return segment_bytes - segment_bytes // 16


class Room(Enum):
    """What the disk has room for."""

    OK = "ok"
    ACKS_ONLY = "acks_only"  # short records that end or change entries; no new bodies
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Position:
    """Where the log stands; never goes back.

    Attributes:
        store_uuid: 16 bytes, made with the store.
        epoch: Of the newest writer; 0: none ever.
        last_lsn: Of the last committed record; 0: none.
        log_clock_ms: Wall clock of the last committed batch.
    """

    store_uuid: bytes
    epoch: int
    last_lsn: int
    log_clock_ms: int


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """Counts since the open, unless said otherwise; read them as often as you like.

    Attributes:
        entry_count: Live entries, also those not committed yet.
        segment_count, log_bytes, live_bytes: Of the live segments.
        needed_count: Deletes that still hold down an older PUT.
        batch_count, record_count, written_bytes: Committed.
        sync_count: Syncs of segments.
        roll_count, drop_count: Segments begun and dropped.
        moved_count, moved_bytes: Copies made by compaction, and the bytes of their frames.
        victim: Id of the segment under compaction; 0: none.
        spare_made_count: Segments made ahead.
        cache_entry_count, cache_bytes: Bodies in RAM that are committed.
        body_hit_count, body_read_count: Bodies served from RAM, and from disk.
        body_damaged_count: Bodies whose CRC did not match, at the open and since.
        recovered_record_count, cut_bytes: What the open replayed, and cut from a torn tail.
        recent_count, bucket_count: Entries found without the index file, and its buckets.
        snapshot_count: Snapshots written.
        snapshot_bytes, snapshot_lsn: Size of the newest, and the LSN it begins behind; 0: none.
        snapshot_ms: How long the last one took to be written.
        is_building_index: Whether old entries are still searched for without one.
        room: See `Store.room`.
        is_failed: Whether the store has failed for good.
    """

    entry_count: int
    segment_count: int
    log_bytes: int
    live_bytes: int
    needed_count: int
    batch_count: int
    record_count: int
    written_bytes: int
    sync_count: int
    roll_count: int
    drop_count: int
    moved_count: int
    moved_bytes: int
    victim: int
    spare_made_count: int
    cache_entry_count: int
    cache_bytes: int
    body_hit_count: int
    body_read_count: int
    body_damaged_count: int
    recovered_record_count: int
    cut_bytes: int
    recent_count: int
    bucket_count: int
    snapshot_count: int
    snapshot_bytes: int
    snapshot_lsn: int
    snapshot_ms: int
    is_building_index: bool
    room: Room
    is_failed: bool


@dataclass(slots=True)
class Counters:
    """Plain sums behind `StoreStatistics`, each added to in one place."""

    batches: int = 0
    records: int = 0
    written_bytes: int = 0
    syncs: int = 0
    rolls: int = 0
    drops: int = 0
    moved: int = 0
    moved_bytes: int = 0
    spares_made: int = 0
    body_hits: int = 0
    body_reads: int = 0
    bodies_damaged: int = 0
    recovered_records: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0
    snapshot_lsn: int = 0
    snapshot_ms: int = 0
    cut_bytes: int = 0
