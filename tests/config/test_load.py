"""Reading the file: where it is, what it may look like, what it must not do to us."""

import os
from pathlib import Path

import pytest

from sepp.config.errors import ConfigError
from sepp.config.load import FILE_BYTES_MAX, identity, load, load_config, read
from sepp.config.model import Config


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(option: str | None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(option, environ or {})
    assert caught.value.key == ""
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_default_file_means_the_defaults(here: Path) -> None:
    loaded = load(None, {})

    assert loaded.config == Config()
    assert (loaded.path, loaded.identity) == ("./sepp.toml", None)


def test_missing_file_that_was_asked_for_is_named(here: Path) -> None:
    assert refusal("no/such.toml") == 'config file "no/such.toml" does not exist'
    assert "elsewhere.toml" in refusal(None, {"SEPP_CONFIG": "elsewhere.toml"})


def test_load_config_is_the_configuration_alone(here: Path) -> None:
    (here / "sepp.toml").write_text("[limits]\nmax_enqueue_batch = 9\n")

    assert load_config(None, {}).limits.max_enqueue_batch == 9


def test_file_that_exists_but_cannot_be_read_is_no_missing_file(here: Path) -> None:
    (here / "sepp.toml").mkdir()

    assert refusal(None) == 'cannot read config file "./sepp.toml": Is a directory'


@pytest.mark.parametrize("path", ["a\0b", "bad\nname", "x" * 5000])
def test_odd_path_is_refused_in_one_line(here: Path, path: str) -> None:
    message = refusal(path)

    assert message.isprintable()
    assert len(message) < 1300


def test_byte_order_mark_and_carriage_returns_are_no_matter(here: Path) -> None:
    (here / "sepp.toml").write_bytes(b"\xef\xbb\xbf[limits]\r\nmax_enqueue_batch = 4\r\n")

    assert load(None, {}).config.limits.max_enqueue_batch == 4


def test_text_that_is_not_utf8_is_refused_with_its_place(here: Path) -> None:
    (here / "sepp.toml").write_bytes(b"[server]\ndb_path = '\xff'\n")

    assert refusal(None) == 'config file "./sepp.toml" is not UTF-8 at byte 20'


@pytest.mark.parametrize(
    "text",
    [
        "listen_addr = ",
        "[server",
        "[server]\n[server]",
        "a = 1\na = 2",
        '[server]\ndb_path = "\\ud800"',
        "a = " + "[" * 100_000,
        "a = " + "{b=" * 100_000,
        "a." * 2_000 + "b = ",
        "a = 1" + "0" * 100_000,
        "a = \x01",
    ],
    ids=range(10),
)
def test_what_is_not_toml_is_refused_in_one_line(here: Path, text: str) -> None:
    (here / "sepp.toml").write_text(text)

    message = refusal(None)

    assert message.startswith('config file "./sepp.toml" ')
    assert len(message) < 300


def test_secret_in_a_broken_file_is_not_shown(here: Path) -> None:
    (here / "sepp.toml").write_text('[[admin.keys]]\nname = "a"\nkey = "s3cret" s3cret\n')

    assert "s3cret" not in refusal(None)


def test_file_of_absurd_size_is_not_parsed(here: Path) -> None:
    with (here / "sepp.toml").open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)

    assert "is larger than" in refusal(None)


def test_identity_is_that_of_the_file_behind_all_links(here: Path) -> None:
    (here / "one").write_text("")
    (here / "two").write_text("")
    (here / "current").symlink_to("one")
    (here / "sepp.toml").symlink_to("current")
    first = identity("sepp.toml")

    assert first == identity("one")
    assert load(None, {}).identity == first

    (here / "next").symlink_to("two")
    os.replace("next", "current")
    assert identity("sepp.toml") == identity("two") != first
    assert identity("nothing") is None
    assert identity("a\0b") is None


def test_reading_tells_which_file_was_read(here: Path) -> None:
    (here / "sepp.toml").write_text("# hello")

    file = read("sepp.toml")

    assert file is not None
    assert (file.text, file.identity) == ("# hello", identity("sepp.toml"))
    assert read("nothing") is None
