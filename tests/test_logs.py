"""Log lines: who writes, in which form, and what never gets in or breaks."""

import json
import logging
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sepp import logs
from sepp.config.directives import DirectiveError
from sepp.config.sections import AdminKey, ApiKey
from tests.fakes.logs import captured

log = logs.get_logger("sepp.tests")
other = logs.get_logger("sepp.tests.deep")

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"


def everything() -> None:
    log.debug("one")
    log.info("two")
    log.warning("three")
    log.error("four")


def test_logger_of_a_target_is_one_object() -> None:
    assert logs.get_logger("sepp.tests") is log


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("trace", ["one", "two", "three", "four"]),
        ("debug", ["one", "two", "three", "four"]),
        ("info", ["two", "three", "four"]),
        ("warn", ["three", "four"]),
        ("error", ["four"]),
        ("off", []),
        ("off,sepp.tests=warn", ["three", "four"]),
        ("trace,sepp=error", ["four"]),
        ("info,sepp::tests=debug", ["one", "two", "three", "four"]),
        ("lsm_tree=warn,fjall=warn", ["four"]),
    ],
)
def test_only_the_level_of_the_target_and_above_is_written(level: str, written: list[str]) -> None:
    with captured(level) as entries:
        everything()

    assert [entry["message"] for entry in entries()] == written


def test_rust_log_wins_and_an_empty_one_does_not_count() -> None:
    with captured("off", rust_log="error") as entries:
        everything()
    assert len(entries()) == 1

    with captured("error", rust_log="") as entries:
        everything()
    assert len(entries()) == 1


def test_bad_directive_is_raised_and_changes_nothing() -> None:
    with captured("error") as entries:
        with pytest.raises(DirectiveError):
            logs.configure("info", "json", rust_log="loud", fd=1)
        everything()

    assert len(entries()) == 1


def test_logger_made_after_configure_follows_it_too() -> None:
    with captured("warn") as entries:
        logs.get_logger("sepp.tests.late").warning("here")
        logs.get_logger("sepp.tests.late").info("not here")

    assert [(entry["target"], entry["message"]) for entry in entries()] == [
        ("sepp.tests.late", "here")
    ]


def test_silent_level_is_one_empty_function() -> None:
    with captured("info"):
        assert log.debug is logs._off
        assert not log.is_debug
    with captured("debug"):
        assert log.is_debug
        assert log.debug is not logs._off
    assert log.error is logs._off


def test_json_line_has_the_four_parts_and_levels_in_capitals() -> None:
    with captured("debug") as entries:
        everything()
        log.info("queue server listening", addr="0.0.0.0:1", declared_queues=2, tls=False)

    lines = [json.loads(line) for line in entries.lines()]
    assert [line["level"] for line in lines] == ["DEBUG", "INFO", "WARN", "ERROR", "INFO"]
    last = lines[-1]
    assert list(last) == ["timestamp", "level", "target", "fields"]
    assert re.fullmatch(STAMP, last["timestamp"])
    assert last["target"] == "sepp.tests"
    assert last["fields"] == {
        "message": "queue server listening",
        "addr": "0.0.0.0:1",
        "declared_queues": 2,
        "tls": False,
    }


def test_text_line_is_time_level_target_message_and_fields() -> None:
    with captured("debug", "text") as entries:
        log.info("queue server listening", addr="[::1]:1", tls=False, n=1, x=None, f=0.5)
        other.warning("odd", text="a b", empty="", eq="a=b", names=("a", "b c"), quote='"')

    first, second = entries.lines()
    assert re.fullmatch(
        STAMP
        + r"  INFO sepp\.tests: queue server listening addr=\[::1\]:1 tls=false n=1 x=None f=0\.5",
        first,
    )
    assert second[28:] == (
        ' WARN sepp.tests.deep: odd text="a b" empty="" eq="a=b" names=[a,"b c"] quote="\\""'
    )


@pytest.mark.parametrize("form", ["text", "json"])
@given(value=st.text(st.characters()), form_of_name=st.sampled_from(["v", "w"]))
@settings(max_examples=50)
def test_no_text_can_make_a_second_line(form: str, value: str, form_of_name: str) -> None:
    with captured("info", form) as entries:
        log.info("event", **{form_of_name: value})
        log.info("event", **{form_of_name: [value]})

    assert len(entries.lines()) == 2
    assert all(line.isprintable() for line in entries.lines())


def test_json_gives_odd_values_a_form_every_reader_takes() -> None:
    with captured() as entries:
        log.info("odd", nan=float("nan"), inf=-float("inf"), raw=b"\xff", half="\ud800", s={1})

    (line,) = entries.lines()
    fields = json.loads(line, parse_constant=pytest.fail)["fields"]
    assert (fields["nan"], fields["inf"], fields["half"]) == ("nan", "-inf", "\ud800")
    assert isinstance(fields["raw"], str)
    assert isinstance(fields["s"], str)


@pytest.mark.parametrize("form", ["text", "json"])
def test_long_value_is_cut(form: str) -> None:
    with captured("info", form) as entries:
        log.info("long", v="x" * 1_000_000, w=["y" * 1_000_000])

    (line,) = entries.lines()
    assert len(line) < 2_500
    assert "(+998976)" in line


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_stay_out(form: str) -> None:
    with captured("info", form) as entries:
        log.info(
            "event",
            authorization="Bearer s3cret",
            api_key="s3cret",
            cookie="s3cret",
            entry=AdminKey(name="ops", key="s3cret"),
            entries=[ApiKey(name="ci", key="s3cret")],
        )

    assert "s3cret" not in entries.lines()[0]
    assert "ops" in entries.lines()[0]


@pytest.mark.parametrize("form", ["text", "json"])
def test_traceback_stays_on_its_line(form: str) -> None:
    with captured("info", form) as entries:
        try:
            raise ValueError("line one\nline two")
        except ValueError as fault:
            log.error("unexpected", exc_info=fault)

    (line,) = entries.lines()
    assert "ValueError: line one\\nline two" in line


def test_line_that_cannot_be_written_is_dropped_and_counted() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        sink = logs.configure("info", "text", fd=writer)
        log.info("nobody reads")
        log.info("nobody reads")
        assert sink.dropped_count == 2
    finally:
        logs.configure("off", "text")
        os.close(writer)


def test_lines_of_libraries_are_written_under_our_filter() -> None:
    library = logging.getLogger("some.package")
    with captured("info,some.package=warn") as entries:
        library.info("not this")
        library.warning("this\nand %s", "that")
        try:
            raise KeyError("gone")
        except KeyError:
            library.exception("broken")

    first, second = entries()
    assert (first["level"], first["target"], first["message"]) == (
        "WARN",
        "some.package",
        "this\nand that",
    )
    assert (second["level"], second["message"]) == ("ERROR", "broken")
    assert "KeyError" in second["exception"]


def test_record_with_an_event_and_fields_keeps_them_apart() -> None:
    with captured("info") as entries:
        extra = {"event": "torn tail", "fields": {"path": "a b", "bytes": 3}}
        logging.getLogger("segstore").warning("torn tail path=a b bytes=3", extra=extra)

    (entry,) = entries()
    assert (entry["message"], entry["path"], entry["bytes"]) == ("torn tail", "a b", 3)


def test_arguments_that_do_not_fit_do_not_raise_into_the_library() -> None:
    with captured("info") as entries:
        # Straight to the handler: the test runner's own raises on such a record.
        (bridge,) = [h for h in logging.getLogger().handlers if isinstance(h, logs._Bridge)]
        bridge.handle(
            logging.LogRecord("some.package", logging.WARNING, "", 0, "%s and %s", ("one",), None)
        )

    (entry,) = entries()
    assert (entry["message"], entry["arguments"]) == ("%s and %s", "('one',)")


def test_configuring_twice_writes_each_line_once() -> None:
    with captured("info"), captured("info") as entries:
        logging.getLogger("some.package").warning("once")
        log.info("once")

    assert len(entries()) == 2
