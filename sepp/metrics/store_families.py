"""The metrics of the storage engine: one for each count it keeps.

The key is the field of `StoreStatistics`. A field that stands in neither table fails a test, so
that nothing the engine counts stays unseen.
"""

from typing import Final

from sepp.metrics.families import Family, Unit


def _rows(kind: str, *rows: tuple[str, str, str, str, Unit]) -> dict[str, Family]:
    assert kind in ("counter", "gauge")
    return {
        field: Family(name, otel, "counter" if kind == "counter" else "gauge", text, (), unit)
        for field, name, otel, text, unit in rows
    }


STORE_GAUGES: Final = _rows(
    "gauge",
    ("entry_count", "sepp_store_entries", "sepp.store.entries", "Entries, of any table.", ""),
    ("segment_count", "sepp_store_segments", "sepp.store.segments", "Segments of the log.", ""),
    ("log_bytes", "sepp_store_log_bytes", "sepp.store.log", "Size of the log.", "By"),
    (
        "live_bytes",
        "sepp_store_live_bytes",
        "sepp.store.live",
        "What in the log still counts; the rest is waiting to be dropped.",
        "By",
    ),
    (
        "needed_count",
        "sepp_store_needed_deletes",
        "sepp.store.needed_deletes",
        "Deletes in the log that still hold down an older record.",
        "",
    ),
    ("cache_entry_count", "sepp_store_cached_bodies", "sepp.store.cached_bodies", "In RAM.", ""),
    ("cache_bytes", "sepp_store_cache_bytes", "sepp.store.cache", "Bodies in RAM.", "By"),
    (
        "recovered_record_count",
        "sepp_store_recovered_records",
        "sepp.store.recovered_records",
        "Records read at the start.",
        "",
    ),
    (
        "cut_bytes",
        "sepp_store_cut_bytes",
        "sepp.store.cut",
        "Torn tail cut off at the start.",
        "By",
    ),
    (
        "recent_count",
        "sepp_store_recent_entries",
        "sepp.store.recent_entries",
        "Entries found without the index file.",
        "",
    ),
    (
        "bucket_count",
        "sepp_store_index_buckets",
        "sepp.store.index_buckets",
        "Buckets of the index file.",
        "",
    ),
    (
        "is_building_index",
        "sepp_store_index_building",
        "sepp.store.index_building",
        "1 while the index file is built and old entries are searched for without it.",
        "",
    ),
    (
        "snapshot_bytes",
        "sepp_store_snapshot_bytes",
        "sepp.store.snapshot",
        "Size of the newest snapshot; 0: there is none.",
        "By",
    ),
    (
        "snapshot_lsn",
        "sepp_store_snapshot_lsn",
        "sepp.store.snapshot_lsn",
        "Last record before the newest snapshot.",
        "",
    ),
    (
        "snapshot_ms",
        "sepp_store_snapshot_duration_milliseconds",
        "sepp.store.snapshot_duration",
        "How long the last snapshot took to be written, in the background.",
        "ms",
    ),
    (
        "victim",
        "sepp_store_victim_segment",
        "sepp.store.victim_segment",
        "Number of the segment whose rest is being copied; 0: none.",
        "",
    ),
    ("is_failed", "sepp_store_failed", "sepp.store.failed", "1 once the store has failed.", ""),
)

STORE_COUNTERS: Final = _rows(
    "counter",
    ("batch_count", "sepp_store_batches_total", "sepp.store.batches", "Batches written.", ""),
    ("record_count", "sepp_store_records_total", "sepp.store.records", "Records written.", ""),
    (
        "written_bytes",
        "sepp_store_written_bytes_total",
        "sepp.store.written",
        "Bytes added to the log.",
        "By",
    ),
    ("sync_count", "sepp_store_syncs_total", "sepp.store.syncs", "Syncs of segments.", ""),
    ("roll_count", "sepp_store_rolls_total", "sepp.store.rolls", "Segments begun.", ""),
    ("drop_count", "sepp_store_drops_total", "sepp.store.drops", "Segments dropped.", ""),
    (
        "moved_count",
        "sepp_store_moved_records_total",
        "sepp.store.moved_records",
        "Records copied.",
        "",
    ),
    (
        "moved_bytes",
        "sepp_store_moved_bytes_total",
        "sepp.store.moved",
        "What was copied out of mostly dead segments.",
        "By",
    ),
    (
        "spare_made_count",
        "sepp_store_spares_made_total",
        "sepp.store.spares_made",
        "Segments made ahead.",
        "",
    ),
    (
        "snapshot_count",
        "sepp_store_snapshots_total",
        "sepp.store.snapshots",
        "Snapshots written.",
        "",
    ),
    (
        "body_hit_count",
        "sepp_store_body_hits_total",
        "sepp.store.body_hits",
        "Bodies served from RAM.",
        "",
    ),
    (
        "body_read_count",
        "sepp_store_body_reads_total",
        "sepp.store.body_reads",
        "Bodies read from the log.",
        "",
    ),
    (
        "body_damaged_count",
        "sepp_store_body_damaged_total",
        "sepp.store.body_damaged",
        "Bodies that cannot be read, at the start and since.",
        "",
    ),
)

ROOM: Final = Family(
    "sepp_store_room",
    "sepp.store.room",
    "gauge",
    "1 for what the disk has room for: everything, short records only, or nothing.",
    ("room",),
)
