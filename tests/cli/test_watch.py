"""`bullpen watch` tells every transition once, and survives what happens to a stream."""

import asyncio
import contextlib
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from bullpen.api.client import Resync
from bullpen.cli.watch import Transitions
from bullpen.model.states import Activity, EvidenceMode, HealthStatus, SourceKind
from bullpen.model.views import AgentState, Summary
from bullpen.testing.daemon import FakeDaemon, agent_state, pane_state
from bullpen.testing.tmux import eventually
from tests.cli.commands import PROGRAM, SECONDS, execute, invoke


class Watching:
    """A `bullpen watch` that runs."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS):
            return (await self.process.stdout.readline()).decode().rstrip("\n")

    async def json(self, type_: str = "") -> Any:
        """Return the next line, or the next of a type."""
        while True:
            said = msgspec.json.decode(await self.line())
            if not type_ or said["type"] == type_:
                return said

    async def end(self) -> int:
        async with asyncio.timeout(SECONDS):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def watch(*arguments: str) -> AsyncIterator[Watching]:
    command = [PROGRAM, "watch", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    try:
        yield Watching(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


@pytest.mark.requirement("IF-D4", "Q9")
async def test_each_transition_is_a_line(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1", Activity.IDLE, title="the parser"))
    async with watch() as watching:
        assert (await watching.line())[8:] == "  claude-1  ✓ idle  ~  is here  the parser"
        daemon.set_agent(agent_state("claude-1", Activity.IDLE, title="another title"))
        daemon.set_agent(
            agent_state(
                "claude-1",
                Activity.WAITING_APPROVAL,
                evidence_mode=EvidenceMode.DETERMINISTIC,
                source=SourceKind.CLAUDE_HOOKS,
            )
        )
        assert (await watching.line())[8:] == "  claude-1  ◆ waiting_approval  =  was idle"
        daemon.remove_agent("claude-1")
        assert (await watching.line())[8:] == "  claude-1  · exited    was waiting_approval"


@pytest.mark.requirement("IF-D4", "IF-D5", "IF-D6")
async def test_programs_get_everything_there_is_and_then_each_change(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1", Activity.IDLE))
    async with watch("--json") as watching:
        first = await watching.json()
        assert (first["schema"], first["type"], first["version"]) == (1, "resync", 1)
        assert [each["name"] for each in first["agents"]] == ["claude-1"]
        daemon.set_pane(pane_state("%1"))
        change = await watching.json()
        assert (change["type"], change["version"], change["kind"]) == ("state_changed", 2, "pane")
        assert change["pane"]["signature_class"] == "none"
        summary = await watching.json()
        assert (summary["type"], summary["summary"]["panes"]) == ("summary_changed", 1)
        daemon.set_agent(agent_state("claude-1", Activity.RUNNING))
        change = await watching.json("state_changed")
        assert (change["agent"]["activity"], change["previous_activity"]) == ("running", "idle")


@pytest.mark.requirement("Q9")
async def test_after_a_gap_everything_is_told_again(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1", Activity.IDLE))
    async with watch("--json") as watching, watch() as reading:
        await watching.json("resync")
        assert "✓ idle" in await reading.line()
        daemon.skip_versions(3)
        daemon.set_agent(agent_state("claude-1", Activity.RUNNING))
        assert (await watching.json("resync"))["agents"][0]["activity"] == "running"
        assert (await reading.line()).endswith("claude-1  ● running  ~  was idle")


@pytest.mark.requirement("Q9")
async def test_who_was_cut_off_goes_on_where_it_was(daemon: FakeDaemon) -> None:
    async with watch("--json") as watching:
        version = (await watching.json("resync"))["version"]
        daemon.hang_up()
        daemon.set_agent(agent_state("claude-1", Activity.IDLE))
        change = await watching.json("state_changed")
        assert (change["version"], change["key"]) == (version + 1, "claude-1")


async def test_a_daemon_that_goes_is_told_by_the_exit_code(daemon: FakeDaemon) -> None:
    async with watch("--json") as watching:
        await watching.json("resync")
        await daemon.stop()
        assert await watching.end() == 1
        assert watching.process.stderr is not None
        assert (await watching.process.stderr.read()).startswith(b"bullpen: no daemon is running")


@pytest.mark.parametrize("subject", ["claude-1", "%1", "work:1.0"])
async def test_one_agent_can_be_watched_alone(subject: str, daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1", Activity.IDLE, pane="%1"))
    daemon.set_agent(agent_state("codex-1", Activity.IDLE, pane="%2", index=1))
    async with watch("--json", "--agent", subject) as watching, watch("--agent", subject) as lines:
        first = await watching.json()
        assert [each["name"] for each in first["agents"]] == ["claude-1"]
        assert "claude-1" in await lines.line()
        daemon.set_agent(agent_state("codex-1", Activity.RUNNING, pane="%2", index=1))
        daemon.set_health(SourceKind.COPILOT, HealthStatus.DOWN)
        daemon.set_agent(agent_state("claude-1", Activity.ERROR, pane="%1"))
        assert (await watching.json())["agent"]["activity"] == "error"
        assert "✗ error" in await lines.line()


async def test_it_ends_after_so_many_changes(daemon: FakeDaemon) -> None:
    async with watch("--json", "--until-count", "2") as watching:
        await watching.json("resync")
        daemon.set_agent(agent_state("claude-1", Activity.IDLE))
        daemon.set_agent(agent_state("claude-1", Activity.RUNNING))
        assert await watching.end() == 0


async def test_it_ends_when_the_time_is_over(daemon: FakeDaemon) -> None:
    assert (await invoke("watch", "--timeout", "0.1")).code == 0
    assert (await invoke("watch", "--timeout", "0.1", "--until-count", "1")).code == 3


async def test_it_ends_quietly_when_nobody_reads_any_more(daemon: FakeDaemon) -> None:
    async with watch("--json") as watching:
        await watching.json("resync")
        transport = watching.process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
        transport.close()  # and nothing happens that could be written
        assert await watching.end() == 0
        assert watching.process.stderr is not None
        assert await watching.process.stderr.read() == b""


async def test_it_ends_quietly_when_it_cannot_write_any_more(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1", Activity.IDLE))
    shell = await asyncio.create_subprocess_exec(
        "bash", "-c", '"$0" watch --json | head -n 1', PROGRAM, stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(SECONDS):
        out, err = await shell.communicate()
    assert (len(out.splitlines()), err) == (1, b"")


async def test_ctrl_c_ends_it_quietly(daemon: FakeDaemon) -> None:
    import signal

    async with watch() as watching:
        await eventually(lambda: daemon.subscribers == 1)
        watching.process.send_signal(signal.SIGINT)
        assert await watching.end() == 130
        assert watching.process.stderr is not None
        assert await watching.process.stderr.read() == b""


async def test_without_a_daemon_none_is_started_if_that_is_said() -> None:
    done = await execute("watch", "--no-start")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("bullpen: no daemon is running")


def everything(*agents: AgentState) -> Resync:
    return Resync(version=1, panes=(), sessions=(), agents=agents, summary=Summary())


def test_who_left_while_nobody_told_is_told_to_have_left() -> None:
    transitions = Transitions()
    there = agent_state("claude-1", Activity.IDLE)
    assert len(list(transitions.of(everything(there)))) == 1
    assert list(transitions.of(everything(there))) == []
    [(_, name, row)] = transitions.of(everything())
    assert name == "claude-1"
    assert "was idle" in [cell.text for cell in row]
