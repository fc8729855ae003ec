"""What tests of doors share: a message on its way, and what is heard of an agent."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from bullpen.mail.doors import Door, Handover
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.messages import Message
from bullpen.model.states import Activity
from bullpen.model.turns import Turn, TurnEnd, Utterance

AGENT = "codex"
SECONDS = 60.0


def now() -> datetime:
    return datetime.now(UTC)


def delivery(
    content: str, *, message_id: str = "m1", attempt: int = 1, agent: str = AGENT
) -> Delivery:
    message = Message(
        id=message_id, from_agent="bob", to_agent=agent, content=content, timestamp=now()
    )
    return Delivery(
        number=1,
        message=message,
        recipient=agent,
        state=ReceiptState.QUEUED,
        accepted_at=now(),
        available_at=now(),
        attempt=attempt,
    )


class Ear:
    """Hears what a door tells, and writes down what it notes."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.said: list[Utterance] = []
        self.activities: list[tuple[Activity, bool]] = []
        self.steps: list[tuple[ReceiptState, Evidence]] = []
        self._stirred = asyncio.Event()

    def on_turn(self, _agent: str, turn: Turn) -> None:
        self.turns.append(turn)
        self._stirred.set()

    def on_said(self, _agent: str, said: Utterance) -> None:
        self.said.append(said)
        self._stirred.set()

    def on_activity(self, _agent: str, activity: Activity, is_ready: bool) -> None:
        self.activities.append((activity, is_ready))
        self._stirred.set()

    async def note(self, state: ReceiptState, evidence: Evidence) -> None:
        self.steps.append((state, evidence))

    @property
    def states(self) -> list[ReceiptState]:
        return [state for state, _ in self.steps]

    @property
    def ends(self) -> list[tuple[TurnEnd, str]]:
        return [(each.end, each.text) for each in self.turns if each.end is not None]

    @property
    def pieces(self) -> list[str]:
        """What was said, each piece; one that begins anew with a bar before it."""
        return [f"|{each.text}" if each.is_new else each.text for each in self.said]

    @property
    def prompts(self) -> list[str]:
        return [each.prompt for each in self.turns if each.prompt is not None]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds after what was told."""
        async with asyncio.timeout(SECONDS):
            while not condition():
                self._stirred.clear()
                await self._stirred.wait()

    async def until_open(self, door: Door, agent: str = AGENT) -> None:
        await self.until(lambda: door.reaches(agent) and door.is_open(agent) == "")

    async def hand_over(self, door: Door, content: str, message_id: str = "m1") -> Handover:
        async with asyncio.timeout(SECONDS):
            return await door.hand_over(delivery(content, message_id=message_id), self.note)
