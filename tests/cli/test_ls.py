"""`bullpen ls` shows every agent, once, with what it is doing and how that is known."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from inline_snapshot import snapshot

from bullpen.cli.ls import listing
from bullpen.model.appearance import cell_width
from bullpen.model.states import Activity, EvidenceMode, Provider, SourceKind
from bullpen.model.views import AgentState
from bullpen.testing.daemon import FakeDaemon, agent_state
from tests.cli.commands import show

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def agent(
    name: str, activity: Activity, minutes: int = 0, cwd: str = "/src", **facts: Any
) -> AgentState:
    return agent_state(name, activity, cwd=cwd, **facts, since=NOW - timedelta(minutes=minutes))


AGENTS = [
    agent("codex-1", Activity.RUNNING, 3, pane="%2", window=2, title="rename it"),
    agent(
        "claude-1",
        Activity.WAITING_APPROVAL,
        125,
        pane="%1",
        title="日本 \x1b[31m",
        evidence_mode=EvidenceMode.DETERMINISTIC,
        source=SourceKind.CLAUDE_HOOKS,
    ),
    agent("gemini-1", Activity.IDLE, 1, tty="/dev/pts/3", pid=77, cwd="/tmp"),
    agent("nightly", Activity.ERROR, 3000, pane="%9", tmux_session="aux", provider=Provider.OTHER),
]


def lines(agents: list[AgentState], **options: Any) -> list[str]:
    return listing(agents, NOW, find_branch=lambda _: "main", **options)


def plain(shown: list[str]) -> str:
    return "\n".join(map(click.unstyle, shown)) + "\n"


def test_agents_are_listed_by_the_tmux_session_they_are_in() -> None:
    assert plain(lines(AGENTS)) == snapshot("""\
aux
  nightly   other   ✗ error             ~   2d              aux:1.0 %9    /src  main
work
  claude-1  claude  ◆ waiting_approval  =   2h  日本 �[31m  work:1.0 %1   /src  main
  codex-1   codex   ● running           ~   3m  rename it   work:2.0 %2   /src  main
outside tmux
  gemini-1  gemini  ✓ idle              ~   1m              pts/3 pid 77  /tmp  main
4 agents, 1 waiting
""")


def test_they_can_be_listed_by_their_family_or_without_headings() -> None:
    assert plain(lines(AGENTS, group="provider")) == snapshot("""\
claude
  claude-1  claude  ◆ waiting_approval  =   2h  日本 �[31m  work:1.0 %1   /src  main
codex
  codex-1   codex   ● running           ~   3m  rename it   work:2.0 %2   /src  main
gemini
  gemini-1  gemini  ✓ idle              ~   1m              pts/3 pid 77  /tmp  main
other
  nightly   other   ✗ error             ~   2d              aux:1.0 %9    /src  main
4 agents, 1 waiting
""")
    assert plain(lines(AGENTS[:2], group="none")) == snapshot("""\
claude-1  claude  ◆ waiting_approval  =   2h  日本 �[31m  work:1.0 %1  /src  main
codex-1   codex   ● running           ~   3m  rename it   work:2.0 %2  /src  main
2 agents, 1 waiting
""")


@pytest.mark.requirement("TR-23")
def test_colours_do_not_disturb_the_columns() -> None:
    coloured = lines(AGENTS)
    assert any("\x1b[" in line for line in coloured)
    before = [line.partition("/src")[0] for line in plain(coloured).splitlines() if "/src" in line]
    assert len({cell_width(each) for each in before}) == 1


@pytest.mark.parametrize("width", [100, 90])
def test_the_title_gives_way_to_the_width_of_the_terminal(width: int) -> None:
    long = msgspec.structs.replace(AGENTS[0], title="a long title " * 10, cwd="/a/long/way/down")
    shown = plain(lines([*AGENTS, long], width=width)).splitlines()
    assert max(map(cell_width, shown)) == width
    assert "…" in shown[5]


def test_servers_are_told_apart_if_there_are_several() -> None:
    assert AGENTS[0].place is not None
    place = msgspec.structs.replace(AGENTS[0].place, tmux_socket="/tmp/other")
    other = msgspec.structs.replace(AGENTS[0], name="codex-2", place=place)
    shown = plain(lines([AGENTS[0], other])).splitlines()
    assert [line for line in shown if not line.startswith(" ")][:2] == [
        "work (/tmp/other)",
        "work (/tmp/tmux-0/default)",
    ]


def test_where_there_is_nobody_that_is_said() -> None:
    assert lines([]) == ["no agents"]


async def test_those_who_wait_are_listed_alone(daemon: FakeDaemon) -> None:
    for each in AGENTS:
        daemon.set_agent(each)
    done = await show("ls", "--waiting")
    assert "claude-1" in done.out
    assert "codex-1" not in done.out
    assert done.lines[-1] == "1 agent, 1 waiting"


async def test_a_family_is_listed_alone(daemon: FakeDaemon) -> None:
    for each in AGENTS:
        daemon.set_agent(each)
    done = await show("ls", "--provider", "codex", "--provider", "gemini", "--json")
    assert [each["name"] for each in done.json["agents"]] == ["codex-1", "gemini-1"]


@pytest.mark.requirement("CLI-1")
async def test_programs_get_all_of_it(daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/topic\n", encoding="utf-8")
    daemon.set_agent(agent("claude-1", Activity.IDLE, pane="%1", cwd=str(tmp_path)))
    said = (await show("ls", "--json")).json
    assert said["schema"] == 1
    assert said["branches"] == {str(tmp_path): "topic"}
    [shown] = said["agents"]
    assert shown["name"] == "claude-1"
    assert shown["activity"] == "idle"
    assert shown["place"]["session_name"] == "work"
    assert shown["evidence_mode"] == "heuristic"


async def test_the_branch_is_shown(daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/topic\n", encoding="utf-8")
    daemon.set_agent(agent("claude-1", Activity.IDLE, pane="%1", cwd=str(tmp_path)))
    assert "topic" in (await show("ls")).out


async def test_without_a_command_and_a_terminal_agents_are_listed(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent("claude-1", Activity.IDLE, pane="%1"))
    assert (await show()).out == (await show("ls")).out
