"""`bullpen wait` is level-triggered, and its exit codes are what the documents say."""

import asyncio

import pytest

from bullpen.api.errors import ApiError
from bullpen.api.methods import Wait, WaitReply
from bullpen.cli.group import run
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity
from bullpen.testing.daemon import FakeDaemon, agent_state
from bullpen.testing.tmux import eventually
from tests.cli.commands import execute, invoke, show


@pytest.mark.requirement("TR-60", "TR-65")
async def test_what_is_so_already_ends_at_once(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1", Activity.IDLE))
    done = await execute("wait", "claude-1", "--until", "idle")
    assert done == (0, "claude-1 is ✓ idle\n", "")


@pytest.mark.requirement("TR-60")
async def test_it_ends_when_it_becomes_so(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1"))
    waiting = asyncio.create_task(execute("wait", "claude-1", "--until", "waiting"))
    await eventually(lambda: any(isinstance(each, Wait) for each in daemon.requests))
    assert not waiting.done()
    daemon.set_agent(agent_state("claude-1", Activity.WAITING_APPROVAL))
    assert await waiting == (0, "claude-1 is ◆ waiting_approval\n", "")


@pytest.mark.requirement("TR-60")
async def test_it_ends_with_3_when_the_time_is_over(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1"))
    done = await execute("wait", "claude-1", "--until", "idle", "--timeout", "0.01")
    assert done == (3, "", "claude-1 is still ● running\n")


@pytest.mark.requirement("TR-60")
async def test_it_ends_with_4_when_the_agent_goes(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1"))
    waiting = asyncio.create_task(execute("wait", "claude-1", "--until", "idle"))
    await eventually(lambda: any(isinstance(each, Wait) for each in daemon.requests))
    daemon.remove_agent("claude-1")
    assert await waiting == (4, "", "claude-1 is gone\n")


@pytest.mark.requirement("TR-60")
async def test_who_was_not_there_is_gone_too(daemon: FakeDaemon) -> None:
    done = await execute("wait", "nobody", "--until", "idle")
    assert (done.code, done.out) == (4, "")
    assert done.err.startswith("bullpen: there is no agent or pane 'nobody'; `bullpen ls` ")
    assert (await execute("wait", "nobody", "--until", "gone")).code == 0


@pytest.mark.requirement("TR-60")
async def test_another_refusal_is_an_error(daemon: FakeDaemon) -> None:
    daemon.script("wait", ApiError(Reason.AGENT_AMBIGUOUS, "%1 could be any of a, b"))
    done = await execute("wait", "%1")
    assert done == (1, "", "bullpen: %1 could be any of a, b\n")


@pytest.mark.requirement("TR-60")
@pytest.mark.parametrize(
    "arguments",
    [
        ["wait"],
        ["wait", "claude-1", "--until", "asleep"],
        ["wait", "claude-1", "--timeout", "-1"],
        ["wait", "claude-1", "--timeout", "soon"],
        ["wait", "claude-1", "--timeout", "inf"],
        ["wait", "claude-1", "--timeout", "nan"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert capsys.readouterr().err.startswith("Usage: bullpen wait")


@pytest.mark.parametrize(("outcome", "code"), [("reached", 0), ("timeout", 3), ("gone", 4)])
async def test_quiet_says_nothing(outcome: str, code: int, daemon: FakeDaemon) -> None:
    daemon.script("wait", WaitReply(outcome, agent_state("claude-1")))
    assert await invoke("wait", "claude-1", "--quiet") == (code, "", "")
    assert await invoke("wait", "nobody", "-q") == (4, "", "")


async def test_programs_are_told_the_outcome(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1", Activity.ERROR))
    said = (await show("wait", "claude-1", "--json")).json
    assert (said["schema"], said["outcome"], said["agent"]["activity"]) == (1, "reached", "error")
    gone = await invoke("wait", "nobody", "--json")
    assert (gone.code, gone.json["outcome"]) == (4, "gone")


async def test_several_states_can_be_waited_for(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1", Activity.RATE_LIMITED))
    await show("wait", "claude-1", "--until", "idle", "--until", "rate_limited")
    last = daemon.requests[-1]
    assert isinstance(last, Wait)
    assert last.until == ("idle", "rate_limited")
