"""What tests of the door into panes share: programs in panes of a tmux of one's own."""

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bullpen.daemon.doors.pane import Paces
from bullpen.daemon.doors.tmux import TmuxDoor
from bullpen.mail.doors import Handed, Handover
from bullpen.model.observations import PaneInstanceId
from bullpen.model.states import Activity, Provider
from bullpen.model.views import PanePlace, PaneState
from bullpen.terminal.rules.load import shipped_rules
from bullpen.testing.tmux import PrivateTmux
from tests.daemon.doors.talk import Ear, delivery

AGENT = "claude"
SECONDS = 60.0
TUI = Path(__file__).parents[1] / "programs" / "tui.py"
BRISK = Paces(ready=1.0, settle=0.0, seen=10.0, follow=0.05, hold=0.2, unseen=3.0)
"""As it is by default, but for what a test would have to wait for."""


class InPane:
    """An agent in a pane, the door to it, and what is heard of it."""

    def __init__(self, tmux: PrivateTmux, pane_id: str, provider: Provider, log: Path) -> None:
        self.tmux = tmux
        self.pane_id = pane_id
        self.provider = provider
        self.log = log
        self.ear = Ear()
        self.state: PaneState | None = None

    async def find(self, *, activity: Activity = Activity.IDLE, is_ready: bool = True) -> None:
        """See the pane as whoever watches panes would."""
        told = await self.tmux.run(
            *("display-message", "-p", "-t", self.pane_id),
            "#{pid}.#{start_time} #{pane_pid}",
        )
        server, pid = told.split()
        self.state = PaneState(
            pane_instance_id=PaneInstanceId(self.pane_id, 1, datetime.now(UTC), server),
            agent=AGENT,
            provider=self.provider,
            activity_state=activity,
            is_ready=is_ready,
            place=PanePlace(tmux_socket=self.tmux.target.socket_path, pane_pid=int(pid)),
            updated_at=datetime.now(UTC),
        )

    def seen_as(self, activity: Activity, *, is_ready: bool) -> None:
        assert self.state is not None
        self.state = msgspec.structs.replace(self.state, activity_state=activity, is_ready=is_ready)

    async def send(self, door: TmuxDoor, content: str, message_id: str = "m1") -> Handover:
        async with asyncio.timeout(SECONDS):
            return await door.hand_over(
                delivery(content, message_id=message_id, agent=AGENT), self.ear.note
            )

    async def refusal(self, door: TmuxDoor, content: str) -> str:
        """Send what cannot be typed now; return why not."""
        ear = Ear()
        async with asyncio.timeout(SECONDS):
            handover = await door.hand_over(
                delivery(content, message_id="m9", agent=AGENT), ear.note
            )
        assert handover.outcome is Handed.NOT_READY, handover
        assert ear.steps == []
        return handover.reason

    async def keys(self, *keys: str) -> None:
        await self.tmux.run("send-keys", "-t", self.pane_id, *keys)

    async def shows(self, text: str) -> None:
        await self.tmux.wait_for(self.pane_id, text)

    async def do(self, word: str) -> None:
        """Tell a scripted program what to do."""
        await asyncio.to_thread(_append, Path(f"{self.log}.do"), word)

    async def submitted(self) -> list[str]:
        """Return what the scripted program was given, in order."""
        return await asyncio.to_thread(_read, self.log)


def _append(path: Path, word: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{word}\n")


def _read(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _install(program: Path) -> None:
    program.parent.mkdir()
    program.symlink_to(TUI)


@asynccontextmanager
async def scripted(
    tmp_path: Path, *options: str, paces: Paces = BRISK
) -> AsyncIterator[tuple[InPane, TmuxDoor]]:
    """Run the difficult program, as Claude Code, in a pane that a shell remains in."""
    program = tmp_path / "bin" / "claude"
    await asyncio.to_thread(_install, program)
    log = tmp_path / "log"
    command = shlex.join([sys.executable, "-I", str(program), "--log", str(log), *options])
    tmux = PrivateTmux(width=100, height=40)
    async with tmux:
        pane_id = await tmux.new_pane(f"{command}; exec sh")
        agent = InPane(tmux, pane_id, Provider.CLAUDE, log)
        await agent.shows("? for shortcuts")
        await agent.find()
        async with opened(agent, paces) as door:
            yield agent, door


@asynccontextmanager
async def opened(agent: InPane, paces: Paces) -> AsyncIterator[TmuxDoor]:
    """Open the door to an agent."""
    rules = await asyncio.to_thread(shipped_rules)
    door = TmuxDoor(lambda _: agent.state, rules, agent.ear.on_turn, paces=paces)
    try:
        yield door
    finally:
        await door.aclose()
