"""What a wrapper that was killed has left behind is taken away, and nothing of anybody else."""

import asyncio
from pathlib import Path

import pytest

from bullpen.agents.instances import Instance, Instances
from bullpen.agents.processes import start_of
from bullpen.agents.registry import AgentRegistry
from bullpen.api.runtime import Paths
from tests.daemon.harness import running_daemon, until
from tests.daemon.wrapping import wrapped


def leave(name: str, pid: int) -> set[Path]:
    """Leave what a wrapper keeps as long as it runs; return what that is."""
    directory = Paths.resolve().agents
    agent_id = name[0] * 64
    entry = AgentRegistry().register(agent_id, "dummy", None, pid=pid)
    socket = directory / f"{name}.sock"
    Instances(directory).write(
        Instance(
            name=name,
            profile="dummy",
            pid=pid,
            start=start_of(pid) or "1",
            agent_id=entry.agent_id,
            socket=str(socket),
        )
    )
    socket.touch()
    given = directory / name
    given.mkdir(exist_ok=True)
    (given / "settings.json").touch()
    return {
        AgentRegistry().directory / f"{agent_id}.json",
        directory / f"{name}.json",
        *(socket, given),
    }


@pytest.mark.requirement("S-12", "talk:crash")
async def test_what_killed_wrappers_have_left_is_taken_away(home: Path) -> None:
    first = await asyncio.create_subprocess_exec("true")
    await first.wait()
    second = await asyncio.create_subprocess_exec("sleep", "600")
    third = await asyncio.create_subprocess_exec("sleep", "600")

    async def are_gone(files: set[Path]) -> bool:
        return not any(each.exists() for each in files)

    try:
        before = await asyncio.to_thread(leave, "before", first.pid)  # while there was no daemon
        async with running_daemon() as (_, __):
            await until(lambda: are_gone(before), 20.0)
            living = await asyncio.to_thread(leave, "living", third.pid)
            async with wrapped("killed", wrapper_pid=second.pid):
                killed = await asyncio.to_thread(leave, "killed", second.pid)
                second.kill()
                await second.wait()
                assert all(each.exists() for each in killed)
            await until(lambda: are_gone(killed), 20.0)
            assert all(each.exists() for each in living)
    finally:
        for each in (second, third):
            if each.returncode is None:
                each.kill()
                await each.wait()
