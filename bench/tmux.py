"""What it costs to see a hundred tmux panes, beside a tmux process for each of them.

A private server holds a hundred panes, 120 by 40, full of text. The cost is processor time of all
who have a part in it: this process, the processes it starts, our connection's and tmux's own. Both
do the same commands, so tmux's own share is in both.
"""

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable

import psutil

from bench.figure import Figure
from bullpen.terminal.tmux import Capture, PaneInfo, TmuxPanes, TmuxServer
from bullpen.terminal.tmux.changes import CaptureLedger
from bullpen.terminal.tmux.panes import capture_command
from bullpen.testing.tmux import PrivateTmux

__all__ = ["run"]

PANES = 100
TARGET = 1 / 20
TEXT = "for line in $(seq 90); do echo $line the quick brown fox jumps over the lazy dog; done"
PROGRAM = f"{TEXT}; exec sleep 100000"


class Everything(CaptureLedger):
    """A ledger that has every pane captured at every look."""

    def stale(self, panes: object, now: int) -> list[str]:
        del now
        assert isinstance(panes, tuple)
        return [pane.pane_id for pane in panes if isinstance(pane, PaneInfo)]


async def run(quick: bool) -> list[Figure]:
    rounds, ours_per_round, theirs_per_round = (1, 2, 1) if quick else (5, 40, 2)
    async with PrivateTmux(width=120, height=40) as tmux:
        pane_ids = ["%0", *await tmux.new_panes(PANES - 1, PROGRAM)]
        await tmux.wait_for(pane_ids[-1], "90 the quick")
        server = TmuxServer(tmux.target)
        panes, everything = TmuxPanes(server), TmuxPanes(server, ledger=Everything())

        async def capture() -> None:
            captures = await panes.capture(pane_ids)
            if not all(isinstance(each, Capture) for each in captures.values()):
                raise AssertionError("a pane could not be captured")

        async def processes() -> None:
            for pane_id in pane_ids:
                subprocess.run(  # noqa: ASYNC221  (nothing else is to run meanwhile)
                    [tmux.executable, "-u", *tmux.target.arguments, *capture_command(pane_id)],
                    check=True,
                    stdout=subprocess.PIPE,
                )

        for once in (capture, panes.look, everything.look, processes):
            await once()
        if not quick:
            await asyncio.sleep(2.1)  # tmux counts in seconds: now all is settled
            await panes.look()
        others = [psutil.Process(tmux.pid), *psutil.Process().children()]
        best: dict[str, float] = {}
        for _ in range(rounds):
            for name, once, times in (
                ("capture", capture, ours_per_round),
                ("changed", everything.look, ours_per_round),
                ("unchanged", panes.look, ours_per_round),
                ("processes", processes, theirs_per_round),
            ):
                seconds = await cost(once, times, others)
                best[name] = min(best.get(name, seconds), seconds)
        await server.aclose()
    return [
        Figure(
            row="tmux",
            what=what,
            ours=best[name] * 1000,
            theirs=best["processes"] * 1000,
            unit="ms",
            against="a process per pane",
            at_most=target,
        )
        for name, what, target in (
            ("capture", f"capture of {PANES} tmux panes", TARGET),
            ("changed", f"list and capture of {PANES} tmux panes", None),
            ("unchanged", f"a look at {PANES} tmux panes that did not change", None),
        )
    ]


async def cost(
    once: Callable[[], Awaitable[object]], times: int, others: list[psutil.Process]
) -> float:
    """Return the processor time of all, each time."""
    before = spent(others)
    for _ in range(times):
        await once()
    return (spent(others) - before) / times


def spent(others: list[psutil.Process]) -> float:
    """Return the processor time so far of this process, of children that ended, and of others."""
    children = psutil.Process().cpu_times()
    total = time.process_time() + children.children_user + children.children_system
    for process in others:
        used = process.cpu_times()
        total += used.user + used.system
    return total
