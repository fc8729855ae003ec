"""Agents elsewhere are kept as files that others read as well."""

import fcntl
import json
import os
import stat
from pathlib import Path

import pytest

from bullpen.agents.a2a.errors import AliasError
from bullpen.agents.a2a.external import (
    ExternalAgentRegistry,
    RegistryUnusable,
    alias_of,
    default_directory,
)
from bullpen.api import files
from bullpen.model.external import ExternalAgent

AGENT = ExternalAgent(
    name="Echo Agent",
    url="http://127.0.0.1:9",
    description="echoes",
    capabilities={"streaming": True},
    skills=({"id": "echo"},),
    alias="echo-agent",
    added_at="2026-01-01T00:00:00+00:00",
)
FIELDS = {"name", "url", "description", "capabilities", "skills", "alias", "added_at", "last_seen"}


@pytest.mark.requirement("S-128", "S-129")
def test_an_agent_is_a_file_of_eight_fields_that_only_we_may_read(home: Path) -> None:
    registry = ExternalAgentRegistry()
    registry.add(AGENT)
    path = home / ".a2a/external/echo-agent.json"
    assert set(json.loads(path.read_text())) == FIELDS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [each.name for each in path.parent.iterdir() if each.name[0] != "."] == [path.name]


@pytest.mark.requirement("S-128", "S-124")
def test_what_was_added_is_there_for_the_next_one_and_can_be_removed() -> None:
    ExternalAgentRegistry().add(AGENT)
    registry = ExternalAgentRegistry()
    assert registry.get("echo-agent") == AGENT
    assert registry.list_agents() == (AGENT,)
    assert registry.remove("echo-agent")
    assert not registry.remove("echo-agent")
    assert ExternalAgentRegistry().list_agents() == ()


def test_a_lock_that_nobody_lets_go_of_is_told_and_not_waited_for_without_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = ExternalAgentRegistry()
    registry.add(AGENT)
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.0)
    with (home / ".a2a/external/.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RegistryUnusable, match=r"somebody has held \.lock for 0 s"):
            registry.remove("echo-agent")
    assert registry.get("echo-agent") == AGENT


@pytest.mark.requirement("S-130")
def test_when_an_agent_was_seen_is_noted_as_long_as_it_is_kept() -> None:
    registry = ExternalAgentRegistry()
    registry.add(AGENT)
    assert registry.update_last_seen("echo-agent", "now")
    found = registry.get("echo-agent")
    assert found is not None
    assert (found.last_seen, found.added_at) == ("now", AGENT.added_at)
    registry.remove("echo-agent")
    assert not registry.update_last_seen("echo-agent", "later")
    assert registry.get("echo-agent") is None


def test_what_is_no_agent_is_passed_over(tmp_path: Path) -> None:
    registry = ExternalAgentRegistry(tmp_path)
    registry.add(AGENT)
    for name, content in {
        "garbage.json": "{",
        "list.json": "[]",
        "other.json": json.dumps({"name": "x", "url": "y", "alias": "another"}),
        "deep.json": "[" * 100_000,
    }.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "directory.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")  # at which a reader would wait for ever
    theirs = {"name": "T", "url": "http://t", "alias": "theirs", "unheard": "of"}
    (tmp_path / "theirs.json").write_text(json.dumps(theirs))
    assert [each.alias for each in registry.list_agents()] == ["echo-agent", "theirs"]


@pytest.mark.requirement("S-129")
def test_an_alias_is_made_of_the_name_unless_one_is_given() -> None:
    assert alias_of("Echo Agent") == "echo-agent"
    assert alias_of("Echo Agent", "Bob") == "bob"
    assert alias_of("Ä/B (v2)") == "äb-v2"


@pytest.mark.parametrize(
    "alias",
    ["../x", ".hidden", "a b", "user", "All", "a/b", "x" * 65, "-", "a\n"],
    ids=["up", "hidden", "space", "user", "all", "slash", "long", "dash", "newline"],
)
def test_what_could_not_be_an_address_or_a_file_is_no_alias(alias: str, tmp_path: Path) -> None:
    registry = ExternalAgentRegistry(tmp_path / "external")
    with pytest.raises(AliasError):
        alias_of("", alias)
    assert registry.get(alias) is None
    assert not registry.remove(alias)


def test_a_name_without_a_letter_needs_an_alias() -> None:
    with pytest.raises(AliasError):
        alias_of("!!!")


def test_where_nothing_can_be_written_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RegistryUnusable, match="cannot write"):
        ExternalAgentRegistry(tmp_path / "file" / "external").add(AGENT)


def test_they_are_where_synapse_was_told_they_are(home: Path) -> None:
    assert default_directory({}) == home / ".a2a/external"
    assert default_directory({"SYNAPSE_EXTERNAL_REGISTRY_DIR": "/x"}) == Path("/x")
