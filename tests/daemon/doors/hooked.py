"""A daemon as far as hooks can tell: it hears reports, and has both doors through hooks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bullpen.agents.hooks import shim
from bullpen.agents.journals import Ears
from bullpen.api.methods import HookAnswer, HookAsk, HookReport, HookTook
from bullpen.api.talk import AwaitWake, WakeReply
from bullpen.connection import Connection, listen_unix
from bullpen.daemon.doors.hooks import DrainDoor, WakeDoor
from bullpen.mail.doors import Door, Handover
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.states import Activity
from bullpen.model.turns import Turn
from tests.daemon.doors.talk import delivery

__all__ = ["AGENT", "SECRET", "Hooked", "listening", "patient_shim"]

AGENT = "claude-1"
SECRET = "bp_test_0000"
SECONDS = 30.0


class Hooked:
    """Both doors for one agent, and everything that is heard of it."""

    def __init__(self) -> None:
        self.activity = Activity.IDLE
        self.mail: list[Delivery] = []
        self.reports: list[dict[str, Any]] = []
        self.asked: list[HookAsk] = []
        self.secrets: list[str] = []
        self.steps: list[ReceiptState] = []
        self.turns: list[Turn] = []
        self.ears = Ears(self._on_turn)
        self.wake = WakeDoor(activity_of=lambda _: self.activity, on_change=self._stir)
        self.drain = DrainDoor(has_mail=self._has_mail, on_change=self._on_ask)
        self.handed: list[Handover] = []
        self._changed = asyncio.Event()
        self._couriers: set[asyncio.Task[None]] = set()

    @property
    def events(self) -> list[str]:
        return [each.get("hook_event_name", "") for each in self.reports]

    async def note(self, state: ReceiptState, _evidence: Evidence) -> None:
        self.steps.append(state)

    async def hand_over(self, door: Door, content: str, message_id: str = "m1") -> Handover:
        """Hand a message over as soon as the door leads somewhere."""
        await self.until(lambda: door.reaches(AGENT))
        sent = delivery(content, message_id=message_id, agent=AGENT)
        return await door.hand_over(sent, self.note)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds, looking when anything was heard."""
        async with asyncio.timeout(SECONDS):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def post(self, content: str, message_id: str) -> None:
        """Let a message wait for the agent's next question."""
        self.mail.append(delivery(content, message_id=message_id, agent=AGENT))

    async def _has_mail(self, _agent: str) -> bool:
        return bool(self.mail)

    def _on_ask(self, agent: str) -> None:
        """Do what a courier does."""
        self._stir(agent)
        if self.mail and self.drain.reaches(agent):
            courier = asyncio.create_task(self._carry(self.mail.pop(0)))
            self._couriers.add(courier)
            courier.add_done_callback(self._couriers.discard)

    async def _carry(self, sent: Delivery) -> None:
        self.handed.append(await self.drain.hand_over(sent, self.note))
        self._changed.set()

    def _stir(self, _agent: str) -> None:
        self._changed.set()

    def _on_turn(self, _agent: str, turn: Turn) -> None:
        self.turns.append(turn)
        self._changed.set()

    # ----------------------------------------------------------------------------- what it answers

    async def report(self, request: HookReport, _: Any) -> bool:
        self.reports.append(request.payload)
        self.secrets.append(request.secret)
        await self.ears.hear(AGENT, request.provider, request.payload)
        self._changed.set()
        return True

    async def ask(self, request: HookAsk, context: Any) -> HookAnswer:
        self.asked.append(request)
        await self.report(request.report, context)
        return await self.drain.ask(request, AGENT)

    async def wait(self, request: AwaitWake, _: Any) -> WakeReply:
        self.secrets.append(request.secret)
        return await self.wake.wake(request, AGENT)

    async def took(self, request: HookTook, _: Any) -> bool:
        doors = (self.wake, self.drain)
        return any([await door.took(request.attempt_id) for door in doors])


@asynccontextmanager
async def listening(path: Path) -> AsyncIterator[Hooked]:
    """Listen where the daemon would."""
    hooked = Hooked()
    builder = (
        Connection.builder()
        .on_request(HookReport, hooked.report)
        .on_request(HookAsk, hooked.ask)
        .on_request(HookTook, hooked.took)
        .on_request(AwaitWake, hooked.wait)
    )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        async with listen_unix(str(path), builder):
            yield hooked
    finally:
        await hooked.ears.aclose()


def patient_shim(path: Path, seconds: float) -> Path:
    """Write a shim that waits longer for a daemon on a machine with too much to do."""
    source = Path(shim.__file__).read_text()
    for name, hurried in (("BUDGET", 0.1), ("ASK", 0.8), ("TAKE", 0.3), ("LAST", 1.0)):
        assert f"\n{name}_SECONDS = {hurried}" in source
        allowed = 3 * seconds if name == "LAST" else seconds
        source = source.replace(f"\n{name}_SECONDS = {hurried}", f"\n{name}_SECONDS = {allowed}")
    path.write_text(source)
    return path
