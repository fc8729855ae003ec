"""Who may send what to whom. It decides from what it is given and remembers nothing.

The sender is who the daemon says he is, never what the message claims. A refusal has a reason of
its own, so that the sender knows what would have to change. The order of the checks is: form and
size, who speaks with whom, chains of causes, rate; the rate last, so that what is refused for good
does not use it up.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from bullpen.mail.errors import MessageRefused
from bullpen.model.messages import (
    MAX_MESSAGE_BYTES,
    MAX_THINKING_BYTES,
    Message,
    message_size,
)
from bullpen.model.reasons import Reason

__all__ = [
    "GUEST",
    "USER",
    "Authority",
    "Bucket",
    "Member",
    "Policy",
    "RateLimit",
    "Refusal",
    "continue_chain",
    "is_guest",
    "rate_refusal",
    "take",
]

USER = "user"
"""The person, as an address."""

GUEST = "a2a"
"""Who asks through a server of ours and is neither an agent of ours nor the user."""


def is_guest(name: str) -> bool:
    """Whether somebody is a guest: he looks for answers where he asked, and has no mailbox.

    A guest with a name is `a2a:` and that name.
    """
    return name == GUEST or name.startswith(f"{GUEST}:")


class Authority(IntEnum):
    """Whose word counts for more."""

    PEER = 1
    BOSS = 2
    HUMAN = 3


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules say of one agent."""

    peers: frozenset[str] | None = None
    """With whom it may exchange messages, in both directions; None is everybody."""
    authority: Authority = Authority.PEER


class Refusal(NamedTuple):
    """Why a message is not let through."""

    reason: Reason
    message: str
    data: Mapping[str, Any] = MappingProxyType({})

    def error(self) -> MessageRefused:
        """Return it as an error to raise."""
        return MessageRefused(self.reason, self.message, **self.data)


class RateLimit(msgspec.Struct, frozen=True):
    """How many messages a sender may send: so many at once, and then so many per second."""

    per_second: float = 20.0
    burst: float = 100.0


class Bucket(msgspec.Struct, frozen=True):
    """What is left of a sender's rate, at a time. A new sender has a full one."""

    tokens: float
    at: datetime


class Taken(NamedTuple):
    """A bucket after a message, and how long to wait if it was one too many."""

    bucket: Bucket
    wait_seconds: float = 0.0


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a room."""

    members: Mapping[str, Member] = MappingProxyType({})
    """Whoever is not listed has no restriction and no authority."""
    boss: str | None = None
    """The only agent that speaks with the user, if a team says so."""
    max_hops: int = 16
    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_thinking_bytes: int = MAX_THINKING_BYTES
    rate: RateLimit = RateLimit()
    user_rate: RateLimit = RateLimit(200.0, 1000.0)
    """A person's, who may have a script; what fills a mailbox is bounded there."""

    def authority(self, agent: str) -> Authority:
        """Return whose word an agent's is."""
        if agent == USER:
            return Authority.HUMAN
        if agent == self.boss:
            return Authority.BOSS
        authority = self.members.get(agent, Member()).authority
        return min(authority, Authority.BOSS)  # an agent is never a person

    def may_approve(self, agent: str) -> Refusal | None:
        """Return why somebody cannot answer what an agent asks its user; None if he can.

        No agent can, whatever its authority.
        """
        if self.authority(agent) is Authority.HUMAN:
            return None
        return Refusal(
            Reason.APPROVAL_FORBIDDEN,
            f"{agent} may not answer what an agent asks its user: that is for a person, or for "
            "who was given a token that may control",
            {"agent_id": agent, "needed": "control"},
        )

    def check(
        self, message: Message, recipient: str, *, answered: Message | None = None
    ) -> Refusal | None:
        """Return why a message is not let through to a recipient; None if it is.

        `answered` is the message that it answers, if there is one. The rate is not looked at: see
        `take`.
        """
        return (
            self._check_size(message)
            or self._check_partners(message.from_agent, recipient)
            or self._check_chain(message, recipient, answered)
        )

    def _check_size(self, message: Message) -> Refusal | None:
        try:
            size = message_size(message)
            thinking = len((message.thinking or "").encode())
        except (UnicodeEncodeError, TypeError, ValueError, RecursionError) as error:
            return Refusal(Reason.INVALID_MESSAGE, f"the message cannot be JSON: {error}")
        if thinking > self.max_thinking_bytes:
            return Refusal(
                Reason.THINKING_TOO_LARGE,
                f"the thinking has {thinking} bytes; {self.max_thinking_bytes} are allowed",
                {"size": thinking, "limit": self.max_thinking_bytes},
            )
        if size > self.max_message_bytes:
            return Refusal(
                Reason.MESSAGE_TOO_LARGE,
                f"the message has {size} bytes; {self.max_message_bytes} are allowed",
                {"size": size, "limit": self.max_message_bytes},
            )
        return None

    def _check_partners(self, sender: str, recipient: str) -> Refusal | None:
        if USER in (sender, recipient):
            other = recipient if sender == USER else sender
            if self.boss is not None and other not in (self.boss, USER):
                return Refusal(
                    Reason.BOSS_ONLY,
                    f"only {self.boss} speaks with the user, not {other}",
                    {"boss": self.boss, "agent_id": other},
                )
            return None  # no list comes between a person and an agent
        for agent, partner in ((sender, recipient), (recipient, sender)):
            peers = self.members.get(agent, Member()).peers
            if peers is not None and partner not in peers:
                return Refusal(
                    Reason.RECIPIENT_NOT_ALLOWED,
                    f"{agent} does not exchange messages with {partner}",
                    {"from": sender, "to": recipient},
                )
        return None

    def _check_chain(
        self, message: Message, recipient: str, answered: Message | None
    ) -> Refusal | None:
        if message.hops > self.max_hops:
            return Refusal(
                Reason.TOO_MANY_HOPS,
                f"{message.hops} messages led to this one; {self.max_hops} are allowed",
                {"hops": message.hops, "limit": self.max_hops},
            )
        returns = recipient == message.first_sender and message.hops >= 2
        is_answer = answered is not None and answered.from_agent == recipient
        if returns and not is_answer:
            return Refusal(
                Reason.MESSAGE_LOOP,
                f"it would come back to {recipient}, who began it, after {message.hops} messages",
                {"origin": message.first_sender, "hops": message.hops},
            )
        return None


def continue_chain(message: Message, cause: Message | None) -> Message:
    """Return a message with its chain of causes, which it does not say itself.

    `cause` is the message its sender was working on, or which it answers. What a person sends
    begins a new chain.
    """
    if cause is None or message.from_agent == USER:
        return msgspec.structs.replace(message, origin=None, hops=0)
    return msgspec.structs.replace(message, origin=cause.first_sender, hops=cause.hops + 1)


def take(bucket: Bucket | None, limit: RateLimit, now: datetime) -> Taken:
    """Return the sender's bucket after one more message, and for how long it comes too early.

    A message that comes too early takes nothing. A clock that went back gives nothing.
    """
    if bucket is None:
        bucket = Bucket(limit.burst, now)
    elapsed = max(0.0, (now - bucket.at).total_seconds())
    tokens = min(limit.burst, bucket.tokens + elapsed * limit.per_second)
    if tokens >= 1:
        return Taken(Bucket(tokens - 1, now))
    missing = 1 - tokens
    wait = missing / limit.per_second if limit.per_second > 0 else float("inf")
    return Taken(Bucket(tokens, now), wait)


def rate_refusal(sender: str, wait_seconds: float) -> Refusal:
    """Return the refusal of a message that came too early."""
    return Refusal(
        Reason.RATE_LIMITED,
        f"{sender} sends too much; in {wait_seconds:.1f} s there is room for the next message",
        {"agent_id": sender, "retry_after_seconds": wait_seconds},
    )
