"""What a store says of itself, put together from the counters of its parts."""

from collections.abc import Mapping

from segstore.bodies import BodyCache
from segstore.hash_index import HashIndex
from segstore.options import Counters, Room, StoreStatistics
from segstore.segment import Segment
from segstore.usage import Usage


def collect(
    counters: Counters,
    segments: Mapping[int, Segment],
    usage: Usage,
    cache: BodyCache,
    index: HashIndex,
    *,
    entry_count: int,
    room: Room,
    is_failed: bool,
) -> StoreStatistics:
    """Return the statistics of now; a step for each segment, never a scan of entries."""
    return StoreStatistics(
        entry_count=entry_count,
        segment_count=len(segments),
        log_bytes=sum(segment.end for segment in segments.values()),
        live_bytes=sum(usage.live_bytes.values()),
        needed_count=sum(map(usage.needed_count, segments)),
        batch_count=counters.batches,
        record_count=counters.records,
        written_bytes=counters.written_bytes,
        sync_count=counters.syncs,
        roll_count=counters.rolls,
        drop_count=counters.drops,
        moved_count=counters.moved,
        moved_bytes=counters.moved_bytes,
        victim=usage.victim,
        spare_made_count=counters.spares_made,
        cache_entry_count=len(cache),
        cache_bytes=cache.byte_count,
        body_hit_count=counters.body_hits,
        body_read_count=counters.body_reads,
        body_damaged_count=counters.bodies_damaged,
        recovered_record_count=counters.recovered_records,
        cut_bytes=counters.cut_bytes,
        recent_count=index.recent_count(),
        bucket_count=index.bucket_count(),
        snapshot_count=counters.snapshots,
        snapshot_bytes=counters.snapshot_bytes,
        snapshot_lsn=counters.snapshot_lsn,
        snapshot_ms=counters.snapshot_ms,
        is_building_index=index.is_building(),
        room=room,
        is_failed=is_failed,
    )
