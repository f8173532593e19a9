"""The catalogue: names by rule, nothing twice, nothing of the engine unseen."""

from dataclasses import fields

from segstore.options import StoreStatistics
from sepp.core.queue import Counters
from sepp.core.statistics import QueueStatistics
from sepp.metrics import families, store_families
from sepp.metrics.families import Family
from sepp.rpc.server import ServerStatistics

# As the specification has it: the original's names, types and labels.
ORIGINAL = {
    "sepp_requests_total": ("counter", ("method", "outcome")),
    "sepp_request_duration_milliseconds": ("histogram", ("method",)),
    "sepp_jobs_enqueued_total": ("counter", ("queue",)),
    "sepp_jobs_reserved_total": ("counter", ("queue",)),
    "sepp_jobs_acked_total": ("counter", ("queue",)),
    "sepp_jobs_nacked_total": ("counter", ("queue",)),
    "sepp_jobs_dead_lettered_total": ("counter", ("queue", "cause")),
    "sepp_jobs_deduplicated_total": ("counter", ("queue",)),
    "sepp_jobs_rejected_total": ("counter", ("queue", "reason")),
    "sepp_reserve_empty_total": ("counter", ("queue",)),
    "sepp_sweep_promotions_total": ("counter", ("queue",)),
    "sepp_sweep_lease_redeliveries_total": ("counter", ("queue",)),
    "sepp_sweep_dedup_expirations_total": ("counter", ("queue",)),
    "sepp_dead_letters_expired_total": ("counter", ()),
    "sepp_dead_letters_drained_total": ("counter", ()),
    "sepp_queue_ready": ("gauge", ("queue",)),
    "sepp_queue_scheduled": ("gauge", ("queue",)),
    "sepp_queue_inflight": ("gauge", ("queue",)),
    "sepp_queue_dead_lettered": ("gauge", ("queue",)),
    "sepp_commit_duration_milliseconds": ("histogram", ()),
    "sepp_command_queue_depth": ("gauge", ()),
}


def catalogue() -> list[Family]:
    found = []
    for module in (families, store_families):
        for value in vars(module).values():
            if isinstance(value, Family):
                found.append(value)
            elif isinstance(value, dict):
                found += [each for each in value.values() if isinstance(each, Family)]
    return found


def test_the_originals_catalogue_is_there() -> None:
    found = {each.name: (each.kind, each.labels) for each in catalogue()}

    assert {name: found.get(name) for name in ORIGINAL} == ORIGINAL


def test_prometheus_names_follow_from_opentelemetrys() -> None:
    suffixes = {"": "", "ms": "_milliseconds", "By": "_bytes"}

    for each in catalogue():
        total = "_total" if each.kind == "counter" else ""
        assert each.name == each.otel.replace(".", "_") + suffixes[each.unit] + total


def test_no_name_stands_twice_and_each_says_what_it_counts() -> None:
    names = [each.name for each in catalogue()]

    assert len(names) == len(set(names))
    assert [each.name for each in catalogue() if not each.text.endswith((".", "bug."))] == []


def test_every_count_of_the_engine_is_shown() -> None:
    counted = {field.name for field in fields(StoreStatistics)}

    assert counted == {
        *store_families.STORE_GAUGES,
        *store_families.STORE_COUNTERS,
        "room",
    }


def test_tables_name_fields_that_exist() -> None:
    queue = {field.name for field in QueueStatistics.__attrs_attrs__}
    front = {field.name for field in ServerStatistics.__attrs_attrs__}

    assert families.QUEUE_COUNTERS.keys() | families.QUEUE_GAUGES.keys() <= queue
    assert families.QUEUE_COUNTERS.keys() == set(Counters.__slots__) - {"dead_lettered"}
    assert families.FRONT_GAUGES.keys() | families.FRONT_COUNTERS.keys() == front - {"closed"}
