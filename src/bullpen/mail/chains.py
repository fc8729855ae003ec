"""Which messages led to which, so that agents that write to each other without an end are cut.

The number of hops limits how long a chain is, but not how broad: two agents that send on whatever
they get, answers too, make twice as many of each. So it is also counted how many messages two have
exchanged far down in the same chain. It is remembered as long as the daemon runs, and so far back.
"""

from collections import Counter, OrderedDict

from bullpen.mail.policy import Refusal
from bullpen.model.messages import Message
from bullpen.model.reasons import Reason

__all__ = ["Chains"]

DEEP = 4
"""So many hops down it is no longer the work that somebody asked for, or its progress."""
MOST_DEEP = 50
"""Messages from one to another, so deep in one chain."""
REMEMBERED = 20_000


class Chains:
    """What is known of the chains of late."""

    def __init__(self, most: int = MOST_DEEP) -> None:
        self._most = most
        self._roots: OrderedDict[str, str] = OrderedDict()
        self._counts: OrderedDict[str, Counter[tuple[str, str]]] = OrderedDict()

    def follow(self, message_id: str, cause_id: str | None) -> None:
        """Learn what led to a message; nothing did if it began a chain."""
        if cause_id is not None:
            self._roots[message_id] = self._roots.get(cause_id, cause_id)
        if len(self._roots) > REMEMBERED:
            self._roots.popitem(last=False)

    def check(self, message: Message, recipient: str, cause: Message | None) -> Refusal | None:
        """Return why one more message is one too many; None if it is not, and then it counts."""
        if cause is None or message.hops < DEEP:
            return None
        root = self._roots.get(cause.id, cause.id)
        counts = self._counts.setdefault(root, Counter())
        self._counts.move_to_end(root)
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)
        between = (message.from_agent, recipient)
        if counts[between] >= self._most:
            return Refusal(
                Reason.MESSAGE_LOOP,
                f"{message.from_agent} has sent {recipient} {self._most} messages that came of "
                "one, far down; somebody is to begin anew",
                {"origin": message.first_sender, "hops": message.hops},
            )
        counts[between] += 1
        return None
