"""`bullpen panes --once` tells agents from other programs in a real tmux, and what they do."""

import asyncio
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from bullpen.cli.group import bullpen, run
from bullpen.testing.tmux import PrivateTmux
from tests.terminal.recorded import SCREENS

pytestmark = pytest.mark.tmux


def program(name: str, screen: str) -> str:
    """Return the command of a pane that runs a program of this name and shows a recorded screen."""
    shown = shlex.quote(str(SCREENS / screen))
    return shlex.join(["bash", "-c", f"head -c -1 {shown}; exec -a {name} sleep 1000"])


@pytest.fixture
async def tmux() -> AsyncIterator[PrivateTmux]:
    async with PrivateTmux(width=120, height=40) as tmux:
        yield tmux


async def panes(tmux: PrivateTmux, *arguments: str) -> Result:
    words = ["panes", "--once", "--tmux-socket", tmux.target.socket_path, *arguments]
    result = await asyncio.to_thread(CliRunner().invoke, bullpen, words)
    assert result.exit_code == 0, result.output
    return result


async def seen(tmux: PrivateTmux, count: int) -> dict[str, tuple[str | None, str | None]]:
    """Return provider and activity by session, once every agent shows something."""
    async with asyncio.timeout(20):
        while True:
            listed = msgspec.json.decode((await panes(tmux, "--json")).stdout)["panes"]
            found = {each["session"]: (each["provider"], each["activity"]) for each in listed}
            if sum(activity is not None for _, activity in found.values()) == count and not any(
                activity in ("unknown", "starting") for _, activity in found.values()
            ):
                return found


async def test_each_agent_is_named_with_what_it_is_doing(tmux: PrivateTmux) -> None:
    approval = "claude/claude_approval_bash_120x40_1.txt"
    await tmux.new_session("asks", program("claude", approval))
    await tmux.new_session("works", program("codex", "codex/codex_running_queued_120x40_1.txt"))
    found = await seen(tmux, 2)
    assert found["asks"] == ("claude", "waiting_approval")
    assert found["works"] == ("codex", "running")
    assert found["main"] == (None, None)


@pytest.mark.requirement("TG-7", "SIG-8")
async def test_the_screen_of_an_agent_in_another_program_is_no_agent(tmux: PrivateTmux) -> None:
    approval = "claude/claude_approval_bash_120x40_1.txt"
    await tmux.new_session("pager", program("less", approval))
    await tmux.new_session("agent", program("claude", approval))
    found = await seen(tmux, 1)
    assert found["pager"] == (None, None)


async def test_those_who_wait_are_listed_alone(tmux: PrivateTmux) -> None:
    approval = "claude/claude_approval_bash_120x40_1.txt"
    await tmux.new_session("asks", program("claude", approval))
    await seen(tmux, 1)
    lines = (await panes(tmux, "--waiting")).stdout.splitlines()
    assert len(lines) == 2
    assert "claude" in lines[0]
    assert "◆ waiting_approval" in lines[0]
    assert lines[1] == "1 pane, 1 agent, 1 waiting"


async def test_a_server_that_is_not_there_is_said_to_be_so(home: Path) -> None:
    words = ["panes", "--once", "--tmux-socket", str(home / "none.sock")]
    result = await asyncio.to_thread(CliRunner().invoke, bullpen, words)
    assert result.exit_code == 1
    assert "there is no socket" in str(result.exception)


def test_a_server_is_named_only_for_one_look(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["panes", "--tmux-socket", "work"]) == 2
    assert "--tmux-socket is for --once" in capsys.readouterr().err
