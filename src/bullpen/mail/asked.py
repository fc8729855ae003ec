"""Tasks whose agents have asked something: what is answered goes on with them, and ends them.

An agent that asks by a message is free until somebody answers it, by a message too: the next turn
of the same task. The task is settled with the end of its last turn, so that at every door it has
one state.
"""

import contextlib
import logging
from collections.abc import Callable
from datetime import datetime

from bullpen.mail.errors import ImpossibleReceipt, MessageNotFound
from bullpen.mail.mailboxes import MAILBOX, Mailboxes
from bullpen.mail.receipts import outcome_of_reply
from bullpen.mail.signals import Signals
from bullpen.mail.tasks import turns_of
from bullpen.model.deliveries import Evidence
from bullpen.model.messages import Message, MessageType

__all__ = ["Asked"]

logger = logging.getLogger("bullpen.mail")


class Asked:
    """Follows tasks from one turn to the next."""

    def __init__(
        self, mailboxes: Mailboxes, signals: Signals, *, now: Callable[[], datetime]
    ) -> None:
        self._mailboxes = mailboxes
        self._signals = signals
        self._now = now

    async def note(self, message: Message) -> None:
        """Learn that a message was kept that belongs to a conversation."""
        if not message.reply_to:
            return
        outcome = outcome_of_reply(message.type)
        try:
            turn_id = message.id if outcome is None else message.reply_to
            thread = await self._mailboxes.thread(turn_id)
        except MessageNotFound:
            return
        for each in thread:
            if each.type is not MessageType.TASK_REQUEST or each.id == turn_id:
                continue
            if turn_id not in {turn.id for turn in turns_of(each, thread)}:
                continue
            if outcome is not None and message.from_agent == each.to_agent:
                what = f"it went on with {turn_id}, and ended with it"
                data = {"canceled": True} if await self._is_canceled(turn_id) else {}
                evidence = Evidence(MAILBOX, what, data)
                with contextlib.suppress(ImpossibleReceipt, MessageNotFound):
                    await self._mailboxes.settle(
                        each.id, each.to_agent, outcome, now=self._now(), evidence=evidence
                    )
            self._signals.tell(each.id)

    async def _is_canceled(self, message_id: str) -> bool:
        receipts = await self._mailboxes.receipts(message_id)
        return any(each.evidence.data.get("canceled") for each in receipts)
