"""The port between the protocol and whatever moves its messages.

A transport knows nothing of ids, methods or who waits for what: it takes messages to send and
hands up messages received, both in order. It owns its resources and is used once. To write one,
implement `open`, `send` and `close`; `docs/howto/write-a-transport.md` does so in twenty lines and
`bullpen.testing.conformance` holds the suite it has to pass.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

from bullpen.connection.errors import TransportReused
from bullpen.jsonrpc.wire import Message

__all__ = ["Clock", "Decode", "Receiver", "Timer", "Transport"]


class Timer(Protocol):
    """Something due later that can be called off."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Where time comes from: an event loop is one, `bullpen.testing.ManualClock` another."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer: ...


Decode = Callable[[bytes], Message]
"""Turns a frame into the message it carries; never raises."""


class Receiver(Protocol):
    """What a transport hands its messages to: one connection."""

    decode: Decode
    """How this receiver wants frames decoded, by transports that have frames."""

    def receive(self, message: Message, size: int) -> None:
        """Take one message. `size` is its bytes on the wire, 0 where there is no wire.

        It returns at once: nothing a user wrote runs inside, except hooks that must not wait.
        """
        ...

    def receive_burst(self, messages: Iterable[Message], sizes: Iterable[int]) -> None:
        """Take the messages that came in one go; the same as one by one, and cheaper."""
        ...

    def receive_end(self, cause: Exception | None) -> None:
        """Learn, once, that no message will come any more: cleanly (None) or because of `cause`."""
        ...

    def run_worker(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a worker of the transport's own; what is left of it after `close` is cancelled."""
        ...


class Transport(ABC):
    """Moves the messages of one connection."""

    is_congested: bool = False
    """Whether senders who can wait should wait for `drain`."""

    _is_used = False

    async def start(self, receiver: Receiver) -> None:
        """Open the transport for this receiver. A transport can be started once.

        Raises:
            TransportReused: it was started before.
            TransportError: the other end cannot be reached.
        """
        if self._is_used:
            raise TransportReused(self)
        self._is_used = True
        await self.open(receiver)

    @abstractmethod
    async def open(self, receiver: Receiver) -> None:
        """Get ready and return soon; from now on messages may be handed to the receiver."""

    @abstractmethod
    def send(self, message: Message) -> None:
        """Take one message to send after those taken before. Never waits.

        A response may use room that is closed to others, so that answering never has to wait.

        Raises:
            UnserializableError: the message cannot be put on this wire.
            SendBufferFull: too much waits to be read by the peer.
            TransportClosed: it is not open.
        """

    @abstractmethod
    async def close(self) -> None:
        """Send what was taken, if that can be done soon, then release everything. Idempotent."""

    async def drain(self) -> None:
        """Wait until the transport is no longer congested, or closed."""

    def pause(self) -> None:
        """Stop handing up messages, where that is possible."""

    def resume(self) -> None:
        """Hand up messages again."""
