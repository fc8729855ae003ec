"""Where Claude Code keeps its files, by its own rule."""

from pathlib import PurePosixPath

import pytest

from bullpen.agents.providers.claude.paths import (
    config_directory,
    is_session_id,
    project_name,
    transcript_path,
)
from tests.agents.claude.recorded import by_event


def test_the_directory_may_be_set() -> None:
    assert config_directory({}, "/home/dev") == PurePosixPath("/home/dev/.claude")
    for unset in ({"CLAUDE_CONFIG_DIR": ""}, {"OTHER": "x"}):
        assert config_directory(unset, "/home/dev") == PurePosixPath("/home/dev/.claude")
    assert config_directory({"CLAUDE_CONFIG_DIR": "/x"}, "/home/dev") == PurePosixPath("/x")


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/tmp/claude-lab/s1/my.proj_1", "-tmp-claude-lab-s1-my-proj-1"),
        ("/Users/dev/My Work", "-Users-dev-My-Work"),
        ("/é/ß", "----"),
        ("/😀", "---"),  # two halves
        ("/" + "c" * 199, "-" + "c" * 199),
        # A name of more than 200 is cut and has a checksum:
        ("/home/dev/" + "a" * 300, "-home-dev-" + "a" * 190 + "-m85kuz"),
        ("/" + "x/y" * 100, "-" + "x-y" * 66 + "x" + "-qp50kv"),
        ("/" + "b" * 400, "-" + "b" * 199 + "-wyrxgv"),
        ("/" + "😀é.Z" * 90, ("-" + "----Z" * 90)[:200] + "-ptuilr"),
    ],
)
def test_a_directory_is_named_as_the_program_does(cwd: str, name: str) -> None:
    assert project_name(cwd) == name


def test_a_recorded_transcript_is_where_we_look_for_it() -> None:
    for payload in by_event().values():
        config = PurePosixPath(payload["transcript_path"]).parents[2]
        assert transcript_path(config, payload["cwd"], payload["session_id"]) == PurePosixPath(
            payload["transcript_path"]
        )


def test_the_records_of_subagents_are_not_taken_for_sessions() -> None:
    assert is_session_id("32d0f5e3-5c6d-4249-9ab7-c4cac7d3bce7")
    for other in ("agent-a0f8112a236837be3", "", "32d0f5e3-5c6d-4249-9ab7-c4cac7d3bce7x"):
        assert not is_session_id(other)
