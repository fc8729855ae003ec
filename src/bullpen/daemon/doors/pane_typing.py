"""One message on its way into one pane, driven by what the pane shows."""

import asyncio

import msgspec

from bullpen.daemon.doors.pane import BY, Look, Paces, PaneGone, PaneTerminal
from bullpen.mail.doors import Handed, Handover, Note
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.states import Activity
from bullpen.terminal.injection import (
    Injection,
    Move,
    Outcome,
    Prepared,
    Sight,
    Stage,
    Typed,
    manners_of,
    prepare,
    sight_of,
)
from bullpen.terminal.replies import reply_on_screen

__all__ = ["BEGUN", "PaneTyping"]

BEGUN = (Activity.RUNNING, Activity.WAITING_APPROVAL, Activity.WAITING_INPUT)
"""What an agent is doing once it has begun a turn."""

_KEYS = {Move.SUBMIT: "Enter", Move.CLEAR: "C-u"}


class PaneTyping:
    """One message on its way into one pane."""

    def __init__(
        self, terminal: PaneTerminal, delivery: Delivery, note: Note, paces: Paces, *, leftover: str
    ) -> None:
        self._terminal = terminal
        self._message = delivery.message
        self._note = note
        self._paces = paces
        self._leftover = leftover
        self._loop = asyncio.get_running_loop()
        self._ready_since: float | None = None
        self._look: Look | None = None
        self.text = ""
        self.is_pasted = False
        self.has_begun = False
        """The agent was seen at work on it."""

    def broken_off(self, outcome: Handed, reason: str) -> Handover:
        """Say what became of it if something went wrong: once pasted, nobody knows."""
        return Handover(Handed.UNSURE if self.is_pasted else outcome, reason)

    async def run(self) -> Handover:
        """Type it, and return what came of that."""
        await self._terminal.check()
        look = await self._terminal.look()
        manners = msgspec.structs.replace(
            manners_of(self._terminal.provider),
            ready_timeout=self._paces.ready,
            echo_timeout=self._paces.echo,
            submit_timeout=self._paces.submit,
        )
        injection = Injection(self._prepare(), manners, self._loop.time(), leftover=self._leftover)
        outcome = await self._inject(injection, look)
        if not outcome.is_delivered:
            reason = self._why(injection, outcome)
            return Handover(Handed.UNSURE if outcome.is_in_box else Handed.NOT_READY, reason)
        data = {"enters": injection.submits, **self._shown()}
        await self._note(
            ReceiptState.SUBMITTED, Evidence(BY, "the prompt box has let go of it", data)
        )
        await self._wait_until_seen()
        return Handover(Handed.TAKEN)

    def _prepare(self) -> Prepared:
        typed = prepare(self._message.content, self._message.from_agent, is_bracketed=True)
        self.text = typed.text
        return typed

    async def _inject(self, injection: Injection, look: Look) -> Outcome:
        while True:
            sight = self._sight(injection, look)
            if injection.stage is Stage.SUBMITTED:
                sight = await self._judged(sight, look)
            done = injection.step(sight, self._loop.time())
            if isinstance(done, Outcome):
                return done
            if isinstance(done, Typed):
                await self._press(done.move, injection.message)
            await asyncio.sleep(self._paces.look)
            look = self._look = await self._terminal.look()

    def _sight(self, injection: Injection, look: Look) -> Sight:
        self._look = look
        if look.obstacle:
            return Sight.DIALOG  # nothing is to be pressed, whatever is on the screen
        sight = sight_of(look.verdict, look.box, self.text, leftover=self._leftover)
        if injection.stage is Stage.WAITING:
            return self._settled(sight)
        return sight

    async def _judged(self, sight: Sight, look: Look) -> Sight:
        """See behind a dialog: the agent may have begun, and asks for something already."""
        if sight in (Sight.DIALOG, Sight.ABSENT) and await self._is_in_conversation(look):
            return Sight.BUSY
        return sight

    def _settled(self, sight: Sight) -> Sight:
        """Believe a free box when it has been one for a while: screens flicker.

        Gemini shows its box before it takes anything, and then the beginning of a message is lost.
        """
        if sight is not Sight.READY:
            self._ready_since = None
            return sight
        now = self._loop.time()
        since = self._ready_since = self._ready_since or now
        is_young = self._terminal.age < self._paces.youth
        return (
            sight
            if now - since >= (self._paces.settle if is_young else self._paces.look)
            else Sight.BUSY
        )

    async def _press(self, move: Move, message: Prepared) -> None:
        if move is not Move.PASTE:
            await self._terminal.press(_KEYS[move])
            return
        await self._paste(message)
        data = {"bytes": len(message.text.encode()), **self._shown()}
        await self._note(ReceiptState.INJECTED, Evidence(BY, "pasted into its prompt box", data))

    async def _paste(self, message: Prepared) -> None:
        try:
            await self._terminal.paste(message.text)
        except PaneGone:
            raise
        except BaseException:
            self.is_pasted = True  # it may be
            raise
        self.is_pasted = True

    def _why(self, injection: Injection, outcome: Outcome) -> str:
        look = self._look
        if look is not None and look.obstacle:
            return look.obstacle
        if injection.submits or self.is_pasted or look is None or not look.verdict.not_ready:
            return outcome.reason
        return look.verdict.not_ready

    async def _wait_until_seen(self) -> None:
        """Look for a sign that the agent has it. There may be none; then its end will be one."""
        deadline = self._loop.time() + self._paces.seen
        look = self._look
        while look is not None:
            if look.verdict.activity in BEGUN:
                self.has_begun = True
                evidence = Evidence(BY, look.verdict.reason, self._shown())
                return await self._note(ReceiptState.SEEN, evidence)
            if await self._is_in_conversation(look):
                evidence = Evidence(BY, "it stands in the conversation", self._shown())
                return await self._note(ReceiptState.SEEN, evidence)
            if self._loop.time() >= deadline:
                return None
            await asyncio.sleep(self._paces.look)
            look = self._look = await self._terminal.look()
        return None

    async def _is_in_conversation(self, look: Look) -> bool:
        lines = await self._terminal.history()
        said = reply_on_screen(lines, self.text, self._terminal.provider, width=look.width)
        return said is not None

    def _shown(self) -> dict[str, object]:
        """What on the screen it is known by."""
        if self._look is None:
            return {}
        verdict = self._look.verdict
        return {"rule": verdict.rule or "", "lines": [each.text for each in verdict.evidence]}
