"""Following the turns that messages begin, and telling the daemon of their ends until it knows."""

import asyncio
import contextlib
import logging
from typing import Any

from bullpen.api.wrapping import Answered, Said, StepTaken
from bullpen.connection import RemoteError
from bullpen.errors import BullpenError
from bullpen.model.deliveries import Evidence, ReceiptState
from bullpen.model.states import Provider
from bullpen.terminal.replies import FailureKind, failure_on_screen, reply_on_screen
from bullpen.wrapper.attempts import AttemptBook, AttemptRecord
from bullpen.wrapper.injecting import BY, LONGEST_WAIT, Injector, Turn
from bullpen.wrapper.link import Link
from bullpen.wrapper.pace import Pace
from bullpen.wrapper.pulse import Pulse
from bullpen.wrapper.saying import Saying
from bullpen.wrapper.turns import LineTurn, ScreenTurn, TurnEnd
from bullpen.wrapper.watching import Watch

__all__ = ["Follower"]

logger = logging.getLogger("bullpen.wrapper")

ANSWER_SECONDS = 10.0  # for the daemon to take an answer
AGAIN_SECONDS = 0.5  # until it is told again
MOST_REFUSALS = 20  # of an end; then the daemon knows better
MOST_SAID = 2000  # characters of what was said before a turn failed


class Follower:
    """Knows which turn goes on, and what the daemon has not been told yet."""

    def __init__(
        self, watch: Watch, link: Link, book: AttemptBook, provider: Provider, pace: Pace
    ) -> None:
        self._watch = watch
        self._link = link
        self._book = book
        self._provider = provider
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._work: set[asyncio.Task[None]] = set()
        self._is_new = Pulse()
        self.injector: Injector | None = None
        """Which is told when a turn is over."""

    def tell(self, record: AttemptRecord, state: ReceiptState, evidence: Evidence) -> None:
        """Note a step, and tell it. If nobody is there, it is told by `attempts` later."""
        record.state, record.evidence = state, evidence
        step = StepTaken(attempt_id=record.request.attempt_id, state=state, evidence=evidence)
        self._link.tell(step)

    def follow(self, record: AttemptRecord, turn: Turn) -> None:
        """Begin to follow the turn of a message that was just submitted."""
        work = self._loop.create_task(self._follow(record, turn), name="turn")
        self._work.add(work)
        work.add_done_callback(self._work.discard)

    async def run(self) -> None:
        """Tell the ends of turns, each until the daemon has taken it. Runs until cancelled."""
        while True:
            if not await self._tell_ends():
                await self._is_new.wait(AGAIN_SECONDS if self._book.unacknowledged else None)

    async def drain(self, seconds: float) -> None:
        """Wait a while until all turns are over and told."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._work or self._book.unacknowledged:
                    if self._work:
                        await asyncio.wait(tuple(self._work))
                    await self._tell_ends()
                    if self._book.unacknowledged:
                        await asyncio.sleep(AGAIN_SECONDS / 10)

    async def aclose(self) -> None:
        """Follow nothing more."""
        work = list(self._work)
        for each in work:
            each.cancel()
        if work:
            await asyncio.wait(work)

    # ------------------------------------------------------------------------------------ following

    async def _follow(self, record: AttemptRecord, turn: Turn) -> None:
        try:
            end = await self._end(record, turn)
            answer = record.answer = self._answered(record, turn, end)
            record.state = ReceiptState.ANSWERED if answer.is_ok else ReceiptState.FAILED
        except Exception:  # the daemon must not wait for ever
            logger.exception("following %s failed", record.request.attempt_id)
            reason = Evidence(BY, "the wrapper failed")
            record.answer = Answered(
                attempt_id=record.request.attempt_id,
                is_ok=False,
                text="the wrapper failed to read the answer",
                how="error",
                evidence=reason,
            )
        finally:
            if isinstance(turn, LineTurn):
                turn.cut.close()
            if self.injector is not None and self.injector.turn is turn:
                self.injector.end_turn()
            self._is_new.beat()

    async def _end(self, record: AttemptRecord, turn: Turn) -> TurnEnd:
        watch, is_seen = self._watch, False
        saying = Saying(self._loop.time())
        while True:
            reading = watch.look_again()
            looked = self._look(turn)
            if turn.seen and not is_seen:
                is_seen = True
                self.tell(record, ReceiptState.SEEN, Evidence(BY, turn.seen, {"why": reading.why}))
            if isinstance(looked, TurnEnd):
                if not is_seen and looked.is_ok:
                    self.tell(record, ReceiptState.SEEN, Evidence(BY, looked.what))
                return looked
            waits = (looked, self._say(record, turn, saying))
            await watch.pulse.wait(min(each for each in (*waits, LONGEST_WAIT) if each is not None))

    def _look(self, turn: Turn) -> TurnEnd | float | None:
        watch, now = self._watch, self._loop.time()
        if watch.has_ended:
            return TurnEnd("exited", False, "the program has ended")
        last_output = watch.terminal.last_output
        if isinstance(turn, LineTurn):
            return turn.look(watch.reading, last_output, now, self._pace)
        looked = turn.look(watch.reading, watch.changed_at, last_output, now, self._pace)
        if isinstance(looked, TurnEnd) and looked.is_ok and not turn.seen:
            return self._unseen(turn, looked, now)
        return looked

    def _unseen(self, turn: ScreenTurn, end: TurnEnd, now: float) -> TurnEnd | float:
        """It stands at its prompt, and was never seen at work: was it that quick?"""
        if self._said_on_screen(turn):
            return end
        if (left := turn.begun_at + self._pace.silence - now) > 0:
            return left
        return TurnEnd("silence", False, "nothing on its screen shows that it took the message up")

    # ------------------------------------------------------------------------------- what was said

    def _say(self, record: AttemptRecord, turn: Turn, saying: Saying) -> float | None:
        """Tell what is said, if it is time to; return after how many seconds it may be again."""
        begun, end = self._loop.time(), self._watch.terminal.context.end
        if (wait := saying.due_in(end, begun)) != 0:
            return wait
        text = turn.so_far() if isinstance(turn, LineTurn) else self._whole_lines_said(turn)
        piece = saying.see(text, end, begun, self._loop.time())
        if piece is not None:
            said = Said(attempt_id=record.request.attempt_id, at=piece.at, text=piece.text)
            self._link.tell(said)
        return None

    def _whole_lines_said(self, turn: ScreenTurn) -> str:
        """What stands on the screen, without the line that is being written."""
        return self._said_on_screen(turn).rpartition("\n")[0].rstrip()

    def _answered(self, record: AttemptRecord, turn: Turn, end: TurnEnd) -> Answered:
        said = turn.text() if isinstance(turn, LineTurn) else self._said_on_screen(turn)
        if isinstance(turn, ScreenTurn) and end.is_ok:
            end = self._failure(end)
        evidence: dict[str, Any] = {"output_end": self._watch.terminal.context.end}
        if not end.is_ok and said:
            evidence["said"] = said[-MOST_SAID:]
        if end.is_ok and isinstance(turn, ScreenTurn) and not said:
            evidence["unread"] = "the reply is not to be found on the screen"
        return Answered(
            attempt_id=record.request.attempt_id,
            is_ok=end.is_ok,
            text=said if end.is_ok else end.what,
            how=end.how,
            evidence=Evidence(BY, end.what, evidence),
        )

    def _failure(self, end: TurnEnd) -> TurnEnd:
        """Look whether what ended well ended in an error, or was interrupted by somebody."""
        failure = failure_on_screen(self._watch.lines(), self._provider)
        if failure is None:
            return end
        how = {
            FailureKind.ERROR: "error",
            FailureKind.RATE_LIMIT: "rate_limit",
            FailureKind.INTERRUPTED: "interrupted",
        }[failure.kind]
        return TurnEnd(how, False, failure.line)

    def _said_on_screen(self, turn: ScreenTurn) -> str:
        width = self._watch.terminal.columns
        lines = self._watch.lines()
        return reply_on_screen(lines, turn.message, self._provider, width=width) or ""

    # -------------------------------------------------------------------------------------- telling

    async def _tell_ends(self) -> bool:
        """Tell what the daemon does not know; return whether it took anything."""
        has_told = False
        for record in self._book.unacknowledged:
            assert record.answer is not None
            try:
                await self._link.request(record.answer, seconds=ANSWER_SECONDS)
            except RemoteError as error:  # one that is just ending says so, too
                logger.warning("the daemon refused the end of a turn: %s", error)
                record.refusals += 1
                record.is_acknowledged = record.refusals >= MOST_REFUSALS
            except BullpenError:  # it is gone, or busy
                return has_told
            else:
                record.is_acknowledged = has_told = True
        return has_told
