"""Settings are merged into what a program or a test wrote, in one step and for the owner only."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.testing.programs.files import merge_json, merge_toml, write_private

scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8"))
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=8,
)
tables = st.dictionaries(st.text(st.characters(codec="utf-8")), values, max_size=4)


@given(settings=tables)
def test_any_settings_come_back_from_toml(
    settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("toml") / "config.toml"
    merge_toml(path, settings)
    assert (tomllib.loads(path.read_text("utf-8")) if settings else {}) == settings


def test_what_was_there_is_kept_and_what_is_needed_is_set(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('model = "old"\n[mcp_servers.mail]\ncommand = "mail"\nenv = {A = "1"}\n')
    merge_toml(path, {"model": "new", "projects": {"/a b": {"trust_level": "trusted"}}})
    assert tomllib.loads(path.read_text()) == {
        "model": "new",
        "mcp_servers": {"mail": {"command": "mail", "env": {"A": "1"}}},
        "projects": {"/a b": {"trust_level": "trusted"}},
    }


def test_lists_are_united_and_comment_lines_tolerated(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('// managed automatically\n{"trusted": ["/a"], "seen": 1}\n')
    merge_json(path, {"trusted": ["/b"]})
    merge_json(path, {"trusted": ["/b"]})
    assert json.loads(path.read_text()) == {"trusted": ["/a", "/b"], "seen": 1}


def test_a_file_that_needs_no_change_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('// mine\n{"seen": 1}\n')
    merge_json(path, {"seen": 1})
    assert path.read_text() == '// mine\n{"seen": 1}\n'


def test_files_are_for_the_owner_only_and_leave_no_temporary_behind(tmp_path: Path) -> None:
    path = tmp_path / "settings" / "config.json"
    write_private(path, "old")
    write_private(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_private(path, "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
