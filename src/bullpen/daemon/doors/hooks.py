"""Two doors through the hooks of an agent program, neither of which touches its terminal.

`WakeDoor` wakes Claude Code while it has nothing to do: a waiter of ours runs in its background and
is handed the message. `DrainDoor` hands one over at the end of a turn, as the answer to a hook that
asks what is to be done next.

Whoever was handed a message has to take it before a word of it is said, and by then it is written
down that it was put in. What nobody takes in time is withdrawn, and may be handed over in another
way: so nothing is said twice, whoever is killed in between.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from bullpen.api.methods import HookAnswer, HookAsk
from bullpen.api.talk import AwaitWake, WakeReply
from bullpen.mail.doors import Door, Handed, Handover, Note, Rung
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.states import Activity, Provider
from bullpen.terminal.injection import addressed

__all__ = ["DrainDoor", "WakeDoor"]

TAKE_SECONDS: Final = 3.0  # for who was handed a message; it takes milliseconds
ASK_SECONDS: Final = 0.5  # for a message to be handed over while the program waits for its hook
LOOK_SECONDS: Final = 0.05  # between two looks whether there still is one
LONGEST_WAKE_SECONDS: Final = 24 * 3600.0
MOST_IN_A_ROW: Final = 20  # then the agent is let go, and reached in another way
LONGEST_BYTES: Final = {Provider.CODEX: 10_000}
"""What a program takes as the answer of a hook. Codex cuts what is longer, and says so."""

_BUSY: Final = {
    Activity.STARTING: "it is starting",
    Activity.RUNNING: "it is working",
    Activity.WAITING_APPROVAL: "it asks for permission",
    Activity.WAITING_INPUT: "it asks a question",
    Activity.EXITED: "it has ended",
}
_ENDINGS: Final = ("Stop", "AfterAgent", "agentStop")


class _Letter(msgspec.Struct, frozen=True):
    """A message as it is said to the agent."""

    text: str
    attempt_id: str


class _Given(msgspec.Struct):
    """A letter that was handed out."""

    taken: asyncio.Future[None]
    is_noted: asyncio.Future[bool]
    """Whether it is written down, once it was taken."""


class _Counter:
    """Where letters are handed to whoever waits for one: one at a time for each agent."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[_Letter | None]] = {}
        self._given: dict[str, _Given] = {}

    def has(self, agent: str) -> bool:
        """Whether somebody waits for a letter to this agent."""
        return agent in self._waiting

    def dismiss(self, agent: str) -> None:
        """Send away who waits, with nothing."""
        if (waiting := self._waiting.pop(agent, None)) is not None and not waiting.done():
            waiting.set_result(None)

    async def wait(self, agent: str, seconds: float) -> _Letter | None:
        """Wait for a letter, in the place of who has waited before."""
        self.dismiss(agent)
        waiting: asyncio.Future[_Letter | None] = asyncio.get_running_loop().create_future()
        self._waiting[agent] = waiting
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError:
            return None
        finally:
            if self._waiting.get(agent) is waiting:
                del self._waiting[agent]

    async def give(self, agent: str, letter: _Letter, note: Note, evidence: Evidence) -> Handover:
        """Hand a letter to who waits; it is in when it was taken, and else it never was."""
        waiting = self._waiting.pop(agent, None)
        if waiting is None or waiting.done():
            return Handover(Handed.NOT_READY, "nobody waits for a message to it any more")
        loop = asyncio.get_running_loop()
        given = _Given(loop.create_future(), loop.create_future())
        self._given[letter.attempt_id] = given
        waiting.set_result(letter)
        try:
            async with asyncio.timeout(TAKE_SECONDS):
                await given.taken
            await note(ReceiptState.INJECTED, evidence)
            given.is_noted.set_result(True)
        except TimeoutError:
            return Handover(Handed.NOT_READY, "who waited for it has gone without it")
        finally:
            self._given.pop(letter.attempt_id, None)
            if not given.is_noted.done():
                given.is_noted.set_result(False)
        return Handover(Handed.TAKEN)

    async def took(self, attempt_id: str) -> bool:
        """Take a letter; True once that is written down, False if it was withdrawn."""
        given = self._given.get(attempt_id)
        if given is None or given.taken.done():
            return False
        given.taken.set_result(None)
        return await given.is_noted


class WakeDoor(Door):
    """Leads into agents whose waiter is connected, as long as they have nothing to do.

    One that works would be told in the midst of its turn, and without a sign that it was.
    """

    rung = Rung.OWN

    def __init__(
        self,
        *,
        activity_of: Callable[[str], Activity],
        on_change: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Nobody is connected yet.

        Args:
            activity_of: what an agent is doing.
            on_change: told of an agent whose waiter has come.
        """
        self._activity_of = activity_of
        self._on_change = on_change
        self._counter = _Counter()

    async def wake(self, request: AwaitWake, agent: str) -> WakeReply:
        """Answer a waiter of an agent: when there is something, or another has come, or in time."""
        seconds = min(max(request.timeout_seconds, 0.0), LONGEST_WAKE_SECONDS)
        waiting = self._counter.wait(agent, seconds)
        asyncio.get_running_loop().call_soon(self._on_change, agent)
        letter = await waiting
        return WakeReply(letter.text, letter.attempt_id) if letter else WakeReply()

    async def took(self, attempt_id: str) -> bool:
        """Answer `hook.took`; False if it is none of ours."""
        return await self._counter.took(attempt_id)

    def reaches(self, agent: str) -> bool:
        return self._counter.has(agent)

    def is_open(self, agent: str) -> str:
        return _BUSY.get(self._activity_of(agent), "")

    async def hand_over(self, delivery: Delivery, note: Note) -> Handover:
        evidence = Evidence("waiter", "its program was woken with it")
        return await self._counter.give(delivery.recipient, _letter(delivery), note, evidence)

    async def interrupt(self, agent: str) -> bool:
        del agent
        return False


class DrainDoor(Door):
    """Leads into agents whose turn is about to end, while their hook asks what comes next."""

    rung = Rung.HOOK

    def __init__(
        self,
        *,
        has_mail: Callable[[str], Awaitable[bool]],
        on_change: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Nobody asks yet.

        Args:
            has_mail: whether a message waits for an agent that had better come this way. If not,
                its program is not kept waiting.
            on_change: told of an agent that asks, and of one that was sent away without mail.
        """
        self._has_mail = has_mail
        self._on_change = on_change
        self._counter = _Counter()
        self._asking: dict[str, Provider] = {}
        self._in_a_row: dict[str, int] = {}

    async def ask(self, request: HookAsk, agent: str) -> HookAnswer:
        """Answer a hook that asks, after what it reports was heard. An empty name is nobody."""
        payload = request.payload if isinstance(request.payload, dict) else {}
        if not agent or payload.get("hook_event_name") not in _ENDINGS or payload.get("agent_id"):
            return HookAnswer()
        if payload.get("stop_hook_active") is not True:
            self._in_a_row.pop(agent, None)
        if self._in_a_row.get(agent, 0) >= MOST_IN_A_ROW or not await self._has_mail(agent):
            return HookAnswer()
        self._asking[agent] = request.provider
        asyncio.get_running_loop().call_soon(self._on_change, agent)
        look = asyncio.create_task(self._look(agent), name=f"drain:{agent}")
        try:
            letter = await self._counter.wait(agent, ASK_SECONDS)
        finally:
            self._asking.pop(agent, None)
            look.cancel()
            await asyncio.gather(look, return_exceptions=True)
        if letter is None:
            self._on_change(agent)
            return HookAnswer()
        self._in_a_row[agent] = self._in_a_row.get(agent, 0) + 1
        output = json.dumps({"decision": "block", "reason": letter.text})
        return HookAnswer(output, letter.attempt_id)

    async def _look(self, agent: str) -> None:
        """Let an agent go whose mail has gone another way meanwhile."""
        while self._counter.has(agent):
            await asyncio.sleep(LOOK_SECONDS)
            if not await self._has_mail(agent):
                self._counter.dismiss(agent)

    async def took(self, attempt_id: str) -> bool:
        """Answer `hook.took`; False if it is none of ours."""
        return await self._counter.took(attempt_id)

    def reaches(self, agent: str) -> bool:
        return self._counter.has(agent)

    def is_open(self, agent: str) -> str:
        return "" if self._counter.has(agent) else "its turn has not ended"

    async def hand_over(self, delivery: Delivery, note: Note) -> Handover:
        agent = delivery.recipient
        letter = _letter(delivery)
        provider = self._asking.get(agent, Provider.OTHER)
        limit = LONGEST_BYTES.get(provider)
        if limit is not None and len(letter.text.encode()) > limit:
            self._counter.dismiss(agent)
            reason = f"a hook of {provider} may not say more than {limit} bytes"
            return Handover(Handed.NOT_READY, reason)
        evidence = Evidence("hook", "the hook at the end of its turn said it")
        return await self._counter.give(agent, letter, note, evidence)

    async def interrupt(self, agent: str) -> bool:
        del agent
        return False


def _letter(delivery: Delivery) -> _Letter:
    message = delivery.message
    text = addressed(message.content, message.from_agent)
    return _Letter(text, f"{message.id}:{delivery.attempt}")
