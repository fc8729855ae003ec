"""What a daemon costs that watches fifty panes in which nothing happens.

Half of them are shells, half programs by an agent's name that show a prompt. All defaults, all
sources. Processor time is that of the daemon and of the tmux client it holds.
"""

import asyncio
import time

import psutil

from bench.figure import Figure
from bench.observe import AGENT, IDLE, daemon
from bullpen.testing.tmux import PrivateTmux

__all__ = ["run"]

PANES = 50
CPU_PERCENT = 1.0
RESIDENT_MIB = 60.0
WARM_UP_SECONDS = 8.0  # until every prompt is believed


async def run(quick: bool) -> list[Figure]:
    panes, warm_up, seconds = (4, 1.0, 2.0) if quick else (PANES, WARM_UP_SECONDS, 40.0)
    async with PrivateTmux(width=120, height=40) as tmux:
        await tmux.new_panes(panes // 2 - 1, "exec sh")  # one is there already
        agents = await tmux.new_panes(panes // 2, f"exec bash -c '{AGENT}'")
        await asyncio.sleep(1.0)
        for pane in agents:
            await tmux.show(pane, IDLE)
        async with daemon(tmux) as (pid, _, follower):
            await asyncio.sleep(warm_up)
            found = [each for each in await follower.ask("list_agents") if each["pane"]]
            if len(found) != len(agents):  # beside those of whoever else works on this machine
                raise AssertionError(f"{len(found)} agents are seen, not {len(agents)}")
            process = psutil.Process(pid)
            began, before = time.monotonic(), processor_seconds(process)
            await asyncio.sleep(seconds)
            used = processor_seconds(process) - before
            percent = 100 * used / (time.monotonic() - began)
            resident = process.memory_info().rss / 2**20
    return [
        Figure(
            row="idle-cost",
            what="of a core, watching 50 quiet panes",
            ours=percent,
            theirs=CPU_PERCENT,
            unit="%",
            against="the most it may be",
            at_most=1.0,
        ),
        Figure(
            row="idle-cost",
            what="resident, watching 50 quiet panes",
            ours=resident,
            theirs=RESIDENT_MIB,
            unit="MiB",
            against="the most it may be",
            at_most=1.0,
        ),
    ]


def processor_seconds(process: psutil.Process) -> float:
    """Return what a process and those it holds have used so far."""
    family = [process, *process.children(recursive=True)]
    used = [each.cpu_times() for each in family]
    ended = process.cpu_times()
    return sum(each.user + each.system for each in used) + (
        ended.children_user + ended.children_system
    )
