"""What can go wrong with an agent elsewhere.

A2AError
├── CardError           what it says of itself makes no sense
├── PeerUnreachable     it does not answer, or not with anything that makes sense
├── PeerRefused         it answered, and said no
├── UnknownAgentError   nobody has added an agent of that alias
└── AliasError          an alias that cannot be one
"""

from bullpen.errors import BullpenError

__all__ = [
    "A2AError",
    "AliasError",
    "CardError",
    "PeerRefused",
    "PeerUnreachable",
    "UnknownAgentError",
]

BUSY = frozenset({409, 425, 429, 503})  # said before anything was taken


class A2AError(BullpenError):
    """Something went wrong with an agent elsewhere."""


class CardError(A2AError):
    """What an agent says of itself makes no sense, or it speaks nothing that we do."""

    def __init__(self, url: str, reason: object) -> None:
        super().__init__(f"the card of {url} cannot be used: {reason}")
        self.url = url
        self.reason = str(reason)


class PeerUnreachable(A2AError):
    """An agent does not answer. If `was_sent`, it may have taken what it was asked."""

    def __init__(self, url: str, reason: object, *, was_sent: bool) -> None:
        super().__init__(f"{url} does not answer: {reason}")
        self.url = url
        self.reason = str(reason)
        self.was_sent = was_sent


class PeerRefused(A2AError):
    """An agent said no, and has not taken it. If it `is_busy`, it may say yes later."""

    def __init__(self, url: str, code: int, reason: str) -> None:
        super().__init__(f"{url} refused it: {reason or 'it does not say why'} ({code})")
        self.url = url
        self.code = code
        """The status of HTTP, or the code of JSON-RPC, which is below zero."""
        self.reason = reason

    @property
    def is_busy(self) -> bool:
        """Whether it is worth asking again."""
        return self.code in BUSY

    @property
    def is_unknown_task(self) -> bool:
        """Whether it does not know the task it was asked about."""
        return self.code in (404, -32001)


class UnknownAgentError(A2AError):
    """Nobody has added an agent of that alias. It can be discovered by its address."""

    def __init__(self, alias: str) -> None:
        super().__init__(f"there is no external agent {alias}")
        self.alias = alias


class AliasError(A2AError):
    """A name that cannot be the alias of an agent. Another can be given."""

    def __init__(self, alias: str, reason: str) -> None:
        super().__init__(f"{alias!r} cannot be an alias: {reason}")
        self.alias = alias
