"""What holds for each queue."""

import attrs
import pytest

from sepp.config.load import parse
from sepp.config.model import Config
from sepp.config.policy import QueuePolicy
from sepp.core.limits import Policy, QueueLimits


def policy(text: str, boot: str | None = None) -> QueuePolicy:
    config = parse(text, "f", {}).config
    return QueuePolicy(config, None if boot is None else parse(boot, "f", {}).config)


def test_defaults_of_the_configuration_are_those_of_core() -> None:
    made: Policy = QueuePolicy(Config())

    assert made.limits("any") == QueueLimits()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("max_lease_duration_ms", "7", 7),
        ("default_max_attempts", "7", 7),
        ("max_attempts_ceiling", "7", 7),
        ("default_priority", "7", 7),
        ("retry_delay_ms", "7", 7),
        ("retry_delay_max_ms", "7", 7),
        ("max_queue_depth", "0", 0),
        ("max_payload_bytes", "7", 7),
        ("max_custom_entries", "7", 7),
        ("max_custom_total_bytes", "7", 7),
        ("max_custom_key_bytes", "7", 7),
        ("max_schedule_horizon_ms", "7", 7),
        ("allowed_encodings", "[]", ()),
        ("allowed_encodings", "['a', 'b']", ("a", "b")),
        ("allowed_job_types", "['a', 'b']", ("a", "b")),
        ("dedup_window_ms", "7", 7),
    ],
)
def test_override_holds_for_its_queue_alone(name: str, text: str, value: object) -> None:
    made = policy(f"[[queues]]\nname = 'q'\n{name} = {text}")

    assert made.limits("q") == attrs.evolve(QueueLimits(), **{name: value})
    assert made.limits("other") == made.defaults == QueueLimits()


def test_every_limit_of_core_can_be_overridden() -> None:
    names = {field.name for field in attrs.fields(QueueLimits)}

    from sepp.config.model import OVERRIDES

    renamed = {"retry_is_exponential": "retry_backoff"}
    assert {renamed.get(name, name) for name in names} == set(OVERRIDES)


def test_backoff_is_merged_both_ways() -> None:
    made = policy(
        "[limits]\nretry_backoff = 'exponential'\n[[queues]]\nname = 'flat'\n"
        "retry_backoff = 'none'\n[[queues]]\nname = 'plain'"
    )

    assert made.defaults.retry_is_exponential
    assert made.limits("plain").retry_is_exponential
    assert not made.limits("flat").retry_is_exponential


def test_minus_one_lifts_the_global_depth_cap() -> None:
    made = policy(
        "[limits]\nmax_queue_depth = 5\n[[queues]]\nname = 'free'\nmax_queue_depth = -1\n"
        "[[queues]]\nname = 'plain'\n[[queues]]\nname = 'shut'\nmax_queue_depth = 0\n"
    )

    assert [made.limits(name).max_queue_depth for name in ("free", "plain", "shut", "x")] == [
        None,
        5,
        0,
        5,
    ]


def test_declared_queues_are_known_by_exact_name() -> None:
    made = policy("[server]\nstrict_queues = true\n[[queues]]\nname = 'Größe'")

    assert made.is_strict
    assert made.is_declared("Größe")
    assert not made.is_declared("größe")
    assert not made.is_declared("")
    assert list(made.queues) == ["Größe"]


def test_dedup_window_is_that_of_the_boot_whatever_is_configured_since() -> None:
    boot = "[storage]\ndedup_window_ms = 50\n[[queues]]\nname = 'a'\ndedup_window_ms = 60\n" \
           "[[queues]]\nname = 'b'\n"  # fmt: skip
    now = "[storage]\ndedup_window_ms = 51\n[[queues]]\nname = 'b'\ndedup_window_ms = 61\n" \
          "max_queue_depth = 3\n[[queues]]\nname = 'c'\ndedup_window_ms = 62\n"  # fmt: skip

    made = policy(now, boot)

    assert [made.limits(name).dedup_window_ms for name in "abcd"] == [60, 50, 50, 50]
    assert made.limits("b").max_queue_depth == 3
    # A removed entry keeps its window, and nothing else.
    assert not made.is_declared("a")
    assert made.limits("a") == attrs.evolve(made.defaults, dedup_window_ms=60)


def test_looking_up_names_takes_no_memory() -> None:
    made = policy("[[queues]]\nname = 'q'")

    assert made.limits("q") is made.limits("q")
    assert all(made.limits(f"made-up-{i}") is made.defaults for i in range(100))


def test_global_limits_are_at_hand() -> None:
    assert policy("[limits]\nmax_enqueue_batch = 3").global_limits.max_enqueue_batch == 3
