"""Typing messages to the program, one at a time, and interrupting it.

For a program with a screen `terminal.injection` decides each move from what is seen. One that
prints lines is given the message as one line, at its prompt and at no other time.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from bullpen.agents.profile import InterruptBy, Profile
from bullpen.api.wrapping import InjectMessage, InjectReply
from bullpen.model.deliveries import Evidence, ReceiptState
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
)
from bullpen.terminal.keyboard import is_report
from bullpen.terminal.pty import PtyClosed
from bullpen.wrapper.attempts import AttemptBook, AttemptRecord
from bullpen.wrapper.pace import Pace
from bullpen.wrapper.reading import LineReader
from bullpen.wrapper.status import Status
from bullpen.wrapper.turns import LineTurn, ScreenTurn
from bullpen.wrapper.watching import Watch

__all__ = ["Injector", "Turn"]

logger = logging.getLogger("bullpen.wrapper")

BY = "pty"
READY_SECONDS = 0.1  # for which a box must have been ready: screens flicker
# Gemini draws its box a moment before it listens, which it does once it asks for bracketed paste.
UNBRACKETED_SECONDS = 3.0
# What somebody types is in the box a moment later, and later still if nothing has been shown since.
TYPED_SECONDS, UNSHOWN_SECONDS = 1.0, 5.0
ESCAPE, CONTROL_C = b"\x1b", b"\x03"
ESCAPE_SECONDS = 0.2  # between two of them; at once they are another key
SIGNAL_SECONDS = 0.5  # for a program to say something about being interrupted
PROMPT_SECONDS = 1.0  # for one that was interrupted at its prompt to show it again; it need not
SLOWEST_BYTES = 50_000  # that a program reads in a second, if it reads
LONGEST_WAIT = 60.0  # to look again, whatever was or was not told

Turn = LineTurn | ScreenTurn
Tell = Callable[[AttemptRecord, ReceiptState, Evidence], None]
Follow = Callable[[AttemptRecord, Turn], None]


class Injector:
    """Types messages. `tell` hears of each step, `follow` of what was submitted."""

    def __init__(
        self,
        watch: Watch,
        profile: Profile,
        book: AttemptBook,
        *,
        pace: Pace,
        tell: Tell,
        follow: Follow,
    ) -> None:
        self._watch = watch
        self._terminal = watch.terminal
        self._profile = profile
        self._book = book
        self._pace = pace
        self._tell = tell
        self._follow = follow
        self._loop = asyncio.get_running_loop()
        self._one = asyncio.Lock()
        self._work: set[asyncio.Task[None]] = set()
        self._pasted = ""  # our last message
        self._leftover = ""  # the same, if it was interrupted and may be back in the box
        self._is_stopped = False  # it was interrupted, and we have typed nothing since
        self._keyed_at: float | None = None  # when somebody typed, as far as it may not be shown
        self.turn: Turn | None = None
        """The one that is being followed."""

    async def inject(self, request: InjectMessage) -> InjectReply:
        """Type a message, or say what became of it if that was asked before.

        Whoever asked may go away meanwhile: what was begun is ended.
        """
        record = self._book.find(request.attempt_id)
        if record is None:
            record = self._book.open(request)
            work = self._loop.create_task(self._inject(record), name="inject")
            self._work.add(work)
            work.add_done_callback(self._work.discard)
        return await asyncio.shield(record.reply)

    async def aclose(self) -> None:
        """Type nothing more."""
        work = list(self._work)
        for each in work:
            each.cancel()
        if work:
            await asyncio.wait(work)

    async def press(self, data: bytes) -> None:
        """Press keys, and no message meanwhile."""
        self.note_keys(data)
        async with self._one:
            await self._write(data)

    def note_keys(self, data: bytes) -> None:
        """Somebody pressed keys: perhaps those that interrupt a turn."""
        if not is_report(data):
            self._keyed_at = self._loop.time()
        if self.turn is not None and (data == ESCAPE or CONTROL_C in data):
            self._note_interruption()

    async def interrupt(self) -> None:
        """Interrupt what the program is doing, in its own way."""
        self._note_interruption()
        self._is_stopped = True
        if self._profile.interrupt is InterruptBy.SIGNAL:
            if self._terminal.process is not None:
                self._terminal.process.interrupt()
            return
        await self._write(ESCAPE)
        if self._profile.interrupt is InterruptBy.ESCAPE_TWICE:
            await asyncio.sleep(ESCAPE_SECONDS)
            await self._write(ESCAPE)

    def _note_interruption(self) -> None:
        if self.turn is not None:
            self.turn.is_interrupted = True
            self._leftover = self._pasted

    @property
    def has_leftover(self) -> bool:
        """Whether nothing is in the way of the next message but one that was interrupted."""
        is_idle = self._watch.reading.activity is Activity.IDLE
        return is_idle and self.turn is None and self._watch.holds(self._leftover)

    # ------------------------------------------------------------------------------------ one of it

    async def _inject(self, record: AttemptRecord) -> None:
        reply = InjectReply(outcome="ended", reason="the wrapper has ended")
        try:
            async with self._one:
                reply = await self._typed(record)
        except PtyClosed as closed:
            reply = InjectReply(outcome="ended", reason=str(closed))
        except TimeoutError:
            reply = InjectReply(outcome="unsure", reason="the program does not read")
        except Exception:  # whoever asked must not wait for ever
            logger.exception("typing %s failed", record.request.attempt_id)
            reply = InjectReply(outcome="unsure", reason="the wrapper failed")
        finally:
            if reply.outcome != "submitted":
                if record.state is not ReceiptState.QUEUED:  # some of it was typed
                    reply = InjectReply(outcome="unsure", reason=reply.reason)
                if reply.outcome == "unsure":
                    record.state = ReceiptState.FAILED
                else:
                    self._book.forget(record)
            record.reply.set_result(reply)

    async def _typed(self, record: AttemptRecord) -> InjectReply:
        request = record.request
        deadline = self._loop.time() + request.ready_seconds
        was_ready = request.interrupts and self._watch.look_again().is_ready
        if request.interrupts:
            deadline += await self._make_way()
        if not await self._no_turn(deadline):
            return self._not_ready("it is at work on another message")
        if self._watch.is_painted:
            return await self._paste(record, deadline)
        if was_ready:
            deadline = self._loop.time() + PROMPT_SECONDS
        return await self._type_line(record, deadline, was_ready=was_ready)

    def _not_ready(self, reason: str) -> InjectReply:
        return InjectReply(outcome="not_ready", reason=reason)

    async def _make_way(self) -> float:
        """Interrupt what goes on; return for how long more to wait until it has stopped.

        An open dialog is left alone: to cancel it would be to decide it. A program that reads lines
        is interrupted at its prompt as well, once, for it may do something all the same.
        """
        reading = self._watch.look_again()
        is_idle = reading.status is Status.IDLE or reading.is_ready
        is_signalled = self._profile.interrupt is InterruptBy.SIGNAL and not self._watch.is_painted
        if self._watch.is_dialog or (is_idle and (self._is_stopped or not is_signalled)):
            return 0.0
        end = self._terminal.context.end
        await self.interrupt()
        deadline = self._loop.time() + SIGNAL_SECONDS
        while self._terminal.context.end == end and self._loop.time() < deadline:
            if self._watch.has_ended:
                break
            await self._watch.pulse.wait(deadline - self._loop.time())
        return self._pace.interrupt

    async def _no_turn(self, deadline: float) -> bool:
        """Wait until no earlier message is being answered."""
        while self.turn is not None and self._loop.time() < deadline:
            await self._watch.pulse.wait(deadline - self._loop.time())
        return self.turn is None

    def end_turn(self) -> None:
        """No message is being answered any more."""
        self.turn = None
        self._watch.pulse.beat()

    async def _write(self, data: bytes) -> None:
        async with asyncio.timeout(self._pace.echo + len(data) / SLOWEST_BYTES):
            await self._terminal.write(data)

    # ---------------------------------------------------------------------------------- on a screen

    async def _paste(self, record: AttemptRecord, deadline: float) -> InjectReply:
        request, now = record.request, self._loop.time()
        manners = msgspec.structs.replace(
            manners_of(self._profile.provider), ready_timeout=max(deadline - now, 0.0)
        )
        injection = Injection(self._prepare(request), manners, now, leftover=self._leftover)
        while True:
            if self._watch.has_ended:
                return InjectReply(outcome="ended", reason="the program has ended")
            if injection.stage is Stage.WAITING:
                # It may ask for bracketed paste only now: what is pasted is made when it is.
                injection.message = self._prepare(request)
            done = injection.step(self._sight(injection), self._loop.time())
            if isinstance(done, Outcome):
                return self._ended(record, injection, done)
            if isinstance(done, Typed):
                await self._press(record, injection, done)
                continue
            wake = injection.wake_at
            seconds = LONGEST_WAIT if wake is None else wake - self._loop.time()
            if injection.stage is Stage.WAITING and (ready_at := self._ready_at()) is not None:
                seconds = min(seconds, ready_at - self._loop.time())
            await self._watch.pulse.wait(max(seconds, 0.001))

    @property
    def _is_bracketed(self) -> bool:
        emulator = self._terminal.emulator
        return emulator is not None and emulator.modes.bracketed_paste

    def _prepare(self, request: InjectMessage) -> Prepared:
        return prepare(request.text, request.sender, is_bracketed=self._is_bracketed)

    def _ready_at(self) -> float | None:
        """When a box that looks ready is believed to be; None if it does not."""
        since = self._watch.ready_since
        if since is None:
            return None
        ready_at = since + (READY_SECONDS if self._is_bracketed else UNBRACKETED_SECONDS)
        if self._keyed_at is None:
            return ready_at
        is_shown = self._terminal.last_output > self._keyed_at
        return max(ready_at, self._keyed_at + (TYPED_SECONDS if is_shown else UNSHOWN_SECONDS))

    def _sight(self, injection: Injection) -> Sight:
        sight = self._watch.sight(injection.message.text, self._leftover)
        if injection.stage is Stage.WAITING and sight is Sight.READY:
            ready_at = self._ready_at()
            if ready_at is None or self._loop.time() < ready_at:
                return Sight.BUSY
        return sight

    async def _press(self, record: AttemptRecord, injection: Injection, typed: Typed) -> None:
        if typed.move is Move.PASTE:
            self._pasted, self._leftover, self._is_stopped = injection.message.text, "", False
            # Told before it is done: what was begun and not ended must not be begun again.
            record.state = ReceiptState.INJECTED
        await self._write(typed.data)
        if typed.move is Move.PASTE:
            what = "pasted into its prompt box"
            if injection.message.is_flattened:
                what += ", its lines joined"
            data = {"offset": self._terminal.context.end, "bytes": len(typed.data)}
            self._tell(record, ReceiptState.INJECTED, Evidence(BY, what, data))

    def _ended(self, record: AttemptRecord, injection: Injection, outcome: Outcome) -> InjectReply:
        if not outcome.is_delivered:
            kind = "unsure" if outcome.is_in_box else "not_ready"
            return InjectReply(outcome=kind, reason=outcome.reason)
        evidence = Evidence(
            BY,
            "the prompt box has let go of it",
            {"enters": injection.submits, "screen": self._watch.reading.why},
        )
        self._submitted(record, evidence)
        if record.request.wants_answer:
            self.turn = ScreenTurn(injection.message.text, self._loop.time())
            self._follow(record, self.turn)
        return InjectReply(outcome="submitted", evidence=evidence)

    def _submitted(self, record: AttemptRecord, evidence: Evidence) -> None:
        self._tell(record, ReceiptState.SUBMITTED, evidence)
        if not record.request.wants_answer:
            record.is_acknowledged = True  # there is no more to tell

    # ------------------------------------------------------------------------------------ as a line

    async def _type_line(
        self, record: AttemptRecord, deadline: float, *, was_ready: bool
    ) -> InjectReply:
        reader, context = self._watch.reader, self._terminal.context
        assert isinstance(reader, LineReader)
        request = record.request
        message = prepare(request.text, request.sender, is_bracketed=False)
        data = message.data + self._profile.submit_sequence.encode()
        is_ready = await self._until_prompt(deadline)
        if not is_ready and not (was_ready and self._reads_on(reader)):
            return self._line_not_ready()
        if (room := self._room()) is not None and len(data) > room:
            reason = f"a line of its terminal holds {room} bytes, and this has {len(data)}"
            return InjectReply(outcome="refused", reason=reason)
        turn = LineTurn(
            context.open_cut(), context, message.text, reader.status.prompt, reader.status.idle
        )
        reader.status.type_line(context.end)
        self._is_stopped = False
        record.state = ReceiptState.INJECTED
        self._watch.look()
        try:
            async with asyncio.timeout(self._pace.echo):
                await self._terminal.write(data)
        except TimeoutError:
            turn.cut.close()
            return InjectReply(outcome="unsure", reason="the program does not read")
        what = "typed at its prompt" + (", its lines joined" if message.is_flattened else "")
        offset = {"offset": turn.cut.begin, "bytes": len(data)}
        self._tell(record, ReceiptState.INJECTED, Evidence(BY, what, offset))
        return await self._line_submitted(record, turn)

    async def _line_submitted(self, record: AttemptRecord, turn: LineTurn) -> InjectReply:
        deadline = self._loop.time() + self._pace.echo
        while not turn.has_echo and self._loop.time() < deadline and not self._watch.has_ended:
            await self._watch.pulse.wait(deadline - self._loop.time())
        what = "echoed by its terminal" if turn.has_echo else "written to its terminal, not echoed"
        evidence = Evidence(BY, what, {"offset": turn.cut.begin})
        self._submitted(record, evidence)
        if record.request.wants_answer:
            self.turn = turn
            self._follow(record, turn)
        else:
            turn.cut.close()
        return InjectReply(outcome="submitted", evidence=evidence)

    async def _until_prompt(self, deadline: float) -> bool:
        while not self._watch.look().is_ready:
            left = deadline - self._loop.time()
            if left <= 0 or self._watch.has_ended:
                return False
            await self._watch.pulse.wait(left)
        return True

    def _reads_on(self, reader: LineReader) -> bool:
        """Whether one that was interrupted at its prompt is still there, and nobody writes."""
        return not self._watch.has_ended and not reader.has_draft

    def _line_not_ready(self) -> InjectReply:
        if self._watch.has_ended:
            return InjectReply(outcome="ended", reason="the program has ended")
        is_draft = self._watch.reading.prompt == "draft"
        return self._not_ready("somebody has begun to write" if is_draft else "the agent is busy")

    def _room(self) -> int | None:
        return None if self._terminal.process is None else self._terminal.process.line_limit
