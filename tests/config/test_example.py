"""The example file and the reference say what the server does without a file."""

import re

import pytest

from sepp.config import reference
from sepp.config.example import render
from sepp.config.limits import Queue
from sepp.config.load import Loaded, parse
from sepp.config.model import KEYS, QUEUE_KEYS, Config
from sepp.config.sections import AdminKey, ApiKey
from tests.house.sources import ROOT


def read(text: str) -> Loaded:
    return parse(text, "example", {})


def test_example_equals_the_defaults() -> None:
    loaded = read(render())

    assert loaded.config == Config()
    assert (loaded.unknown, loaded.warnings) == ((), ())


def test_every_key_stands_in_the_example_under_its_section() -> None:
    for key in KEYS:
        block = render().partition(f"\n[{key.section}]\n")[2].partition("\n[")[0]
        pattern = rf"^(# )?{key.name} = \S" if key.entry is None else rf"^# \[\[{key.path}\]\]$"
        assert re.search(pattern, block, re.MULTILINE), key.path


def test_keys_without_a_default_are_commented_out_and_no_others() -> None:
    for key in KEYS:
        if key.entry is None:
            is_live = re.search(rf"^{key.name} = ", render(), re.MULTILINE) is not None
            assert is_live or key.default is None, key.path


def test_every_sample_is_valid_once_its_comment_mark_is_taken_away() -> None:
    live = re.sub(r"^# (\[\[.*|[a-z_]+ = .*)$", r"\1", render(), flags=re.MULTILINE)

    config = read(live).config

    assert config.server.tls_cert_path == "server.pem"
    assert config.admin.keys == (AdminKey(name="oncall", key="change-me"),)
    assert config.auth.api_keys == (ApiKey(name="billing", key="change-me"),)
    assert len(config.queues) == 1
    assert all(getattr(config.queues[0], name) is not None for name in Queue.__struct_fields__)


def test_explanation_names_bounds_choices_restart_and_what_has_no_effect() -> None:
    text = " ".join(render().replace("\n# ", " ").split())

    assert "[1…65535 bytes] max_queue_name_bytes" in text
    assert "[none | exponential] retry_backoff" in text
    assert "[sync_all | sync_data | buffer; restart] persist_mode" in text
    assert "no effect here] max_cached_files" in text


def test_example_is_a_file_people_can_read() -> None:
    assert max(map(len, render().splitlines())) <= 100
    assert render().endswith("\n")
    assert not re.search(r"\n\n\n|[ \t]\n", render())


def test_first_admin_key_stands_in_the_file_for_real() -> None:
    loaded = read(render('odd"\\key'))

    assert loaded.config.admin.keys == (AdminKey(name="admin", key='odd"\\key', role="admin"),)
    assert loaded.config.auth.api_keys is None


@pytest.mark.parametrize("key", [*KEYS, *QUEUE_KEYS], ids=lambda key: key.path)
def test_reference_has_a_row_for_every_key(key: object) -> None:
    from sepp.config.table import Key

    assert isinstance(key, Key)
    title = "[[queues]]" if key.section == "queues[]" else f"[{key.section}]"
    block = reference.render().partition(f"### {title}\n")[2].partition("###")[0]
    row = next(line for line in block.splitlines() if line.startswith(f"| `{key.name}` |"))

    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == 5
    assert cells[3].split(",")[0] == key.spec.mark
    assert cells[4].startswith(key.spec.text)


def test_operating_guide_holds_the_fresh_reference() -> None:
    text = (ROOT / "sepp" / "OPERATING.md").read_text(encoding="utf-8")

    assert reference.put_into(text) == text, "run tools/gen_config_reference"
