"""Channels by name: who connects and who serves are in one process and need not know each other."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bullpen.connection.errors import AddressError
from bullpen.connection.transport import Receiver
from bullpen.connection.transports.channel import ChannelTransport

__all__ = ["InprocTransport", "offer_inproc"]

_offered: dict[str, "_Offer"] = {}


class _Offer(NamedTuple):
    loop: asyncio.AbstractEventLoop
    accept: Callable[[ChannelTransport], object]
    has_room: Callable[[], bool]


class InprocTransport(ChannelTransport):
    """A channel to whoever serves under a name, in this process and event loop.

    Raises on opening:
        AddressError: nobody does, or not one more.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    async def open(self, receiver: Receiver) -> None:
        address = f"inproc:{self._name}"
        offer = _offered.get(self._name)
        if offer is None:
            raise AddressError(address, "nobody serves under this name")
        if offer.loop is not asyncio.get_running_loop():
            raise AddressError(address, "it is served in another event loop")
        if not offer.has_room():
            raise AddressError(address, "too many peers")
        far = ChannelTransport()
        self.join(far)
        offer.accept(far)
        await super().open(receiver)


@contextmanager
def offer_inproc(
    name: str, accept: Callable[[ChannelTransport], object], has_room: Callable[[], bool]
) -> Iterator[None]:
    """Have whoever connects to a name accepted, for the length of a block.

    Raises:
        AddressError: somebody serves under this name already.
    """
    if name in _offered:
        raise AddressError(f"inproc:{name}", "somebody serves under this name already")
    _offered[name] = _Offer(asyncio.get_running_loop(), accept, has_room)
    try:
        yield
    finally:
        del _offered[name]
