"""What the wrapper was asked to type, and what became of each. Nothing is typed twice."""

import asyncio
import contextlib

from bullpen.api.wrapping import Answered, Attempt, InjectMessage, InjectReply
from bullpen.model.deliveries import Evidence, ReceiptState

__all__ = ["AttemptBook", "AttemptRecord"]

MOST_KEPT = 256  # attempts that are over; the daemon asks again for the last few at most
MOST_TOLD = 16  # of these, when the daemon comes back

_TYPED = (ReceiptState.INJECTED, ReceiptState.SUBMITTED, ReceiptState.SEEN)


class AttemptRecord:
    """One message, from being asked to type it until the daemon knows its end."""

    def __init__(self, request: InjectMessage) -> None:
        self.request = request
        self.state = ReceiptState.QUEUED
        self.evidence: Evidence | None = None
        self.reply: asyncio.Future[InjectReply] = asyncio.get_running_loop().create_future()
        self.answer: Answered | None = None
        self.is_acknowledged = False
        self.refusals = 0
        """How often the daemon would not hear its end."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of it has still to be told."""
        if not self.reply.done():
            return False
        return self.is_acknowledged or self.state not in (*_TYPED, ReceiptState.ANSWERED)

    @property
    def attempt(self) -> Attempt:
        """As the daemon is told when it comes back."""
        if self.answer is None:
            reason = self.reply.result().reason if self.reply.done() else ""
            return Attempt(
                attempt_id=self.request.attempt_id,
                state=self.state,
                text=reason if self.state is ReceiptState.FAILED else "",
                evidence=self.evidence,
            )
        return Attempt(
            attempt_id=self.answer.attempt_id,
            state=ReceiptState.ANSWERED if self.answer.is_ok else ReceiptState.FAILED,
            text=self.answer.text,
            evidence=self.answer.evidence,
        )


class AttemptBook:
    """All attempts that are not over, and the last of those that are."""

    def __init__(self) -> None:
        self._records: dict[str, AttemptRecord] = {}

    def find(self, attempt_id: str) -> AttemptRecord | None:
        """Return what is known of an attempt."""
        return self._records.get(attempt_id)

    def open(self, request: InjectMessage) -> AttemptRecord:
        """Begin a new one."""
        record = self._records[request.attempt_id] = AttemptRecord(request)
        over = [key for key, each in self._records.items() if each.is_over]
        for key in over[: max(len(self._records) - MOST_KEPT, 0)]:
            del self._records[key]
        return record

    def forget(self, record: AttemptRecord) -> None:
        """Let an attempt of which nothing was typed be made again."""
        with contextlib.suppress(KeyError):
            del self._records[record.request.attempt_id]

    @property
    def unacknowledged(self) -> tuple[AttemptRecord, ...]:
        """Those whose end the daemon does not know yet."""
        records = self._records.values()
        return tuple(each for each in records if each.answer and not each.is_acknowledged)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """What the daemon is told when it comes back.

        The last of those that are over are among them: it may not have heard the end.
        """
        over = [each for each in self._records.values() if each.is_over]
        forgotten = set(over[: max(len(over) - MOST_TOLD, 0)])
        return tuple(each.attempt for each in self._records.values() if each not in forgotten)
