"""Who waits for the response to one request."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from bullpen.connection.parking import Parking
from bullpen.connection.transport import Timer
from bullpen.errors import BullpenError
from bullpen.jsonrpc.wire import Response, decode_value

__all__ = ["Deliver", "OnResult", "RichWaiter", "Waiter"]

logger = logging.getLogger("bullpen.connection")

OnResult = Callable[[Any], None]
Deliver = Callable[[Response | BullpenError], None]
"""Called once, inside the reader, with a response or with the reason why there will be none."""


class Waiter(Parking):
    """Who waits for one response: a task that parks here."""

    __slots__ = ("deadline", "method", "response")

    is_plain = True

    def __init__(
        self, loop: asyncio.AbstractEventLoop, method: str, deadline: float | None = None
    ) -> None:
        # What Parking sets, without the call: this is made for every request.
        self._loop = loop
        self._asyncio_future_blocking = self.is_done = False
        self.wake = self.error = None
        self.response: Response
        self.method = method
        self.deadline = deadline  # of those under the default timeout, checked in one sweep

    def end(self, error: BullpenError) -> None:
        """Say that there will be no response."""
        self.fail(error)

    def release(self) -> None:
        """Let go of what was held for the wait."""


class RichWaiter(Waiter):
    """One with more to do than to wake a task: a timeout of its own, a hook, a delivery."""

    __slots__ = ("deliver", "on_result", "result_type", "timer")

    is_plain = False

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        method: str,
        deadline: float | None = None,
        *,
        on_result: OnResult | None = None,
        result_type: Any = Any,
        deliver: Deliver | None = None,
    ) -> None:
        super().__init__(loop, method, deadline)
        self.on_result = on_result
        self.result_type = result_type
        self.deliver = deliver
        self.timer: Timer | None = None

    def settle(self, response: Response) -> bool:
        """Do with a response what is to be done at once; return whether to wake a task."""
        self.release()
        if self.deliver is not None:
            self._deliver(response)
            return False
        if self.on_result is not None and response.error is UNSET:
            try:
                self.on_result(decode_value(response.result, self.result_type))
            except Exception as error:  # noqa: BLE001 - the hook is the caller's, and its failure
                self.fail(error)
                return False
        return True

    def end(self, error: BullpenError) -> None:
        self.release()
        if self.deliver is not None:
            self._deliver(error)
        else:
            self.fail(error)

    def release(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def _deliver(self, outcome: Response | BullpenError) -> None:
        try:
            self.deliver(outcome)  # type: ignore[misc]
        except Exception:  # what comes behind it in the reader is other people's
            logger.exception("the delivery of the response to %r failed", self.method)
