"""A place for a task to wait, from which it goes on at once when it is called.

A task that waits on a future goes on in the event loop's next round, by way of a callback put in
a queue. With thousands of responses in a read, that detour is most of what a response costs. Who
waits here is resumed on the spot: the reader collects whom to wake and, when everything that came
in one read has been routed, lets each run up to its next wait.

`Parking` speaks asyncio's protocol for things that can be awaited like a future.
"""

import asyncio
import contextvars
from collections.abc import Callable, Generator, Iterable
from typing import Any

__all__ = ["Parking", "resume_all"]


class Parking:
    """Where one task waits until it is called, or for good once it is done."""

    __slots__ = ("_asyncio_future_blocking", "_loop", "context", "error", "is_done", "wake")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop  # asyncio looks here for the loop of what a task waits for
        self._asyncio_future_blocking = False  # and at this mark to know that it can
        self.is_done = False
        self.wake: Callable[[Any], object] | None = None
        self.context: contextvars.Context | None = None
        self.error: BaseException | None = None

    def __await__(self) -> Generator[Any, None, None]:
        if not self.is_done:  # else there is nothing to wait for
            self._asyncio_future_blocking = True
            yield self
        elif self.error is not None:
            raise self.error

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def resume(self) -> None:
        """Let the waiting task run, now. Only where no other task is running."""
        wake = self.wake
        if wake is not None:
            self.wake = None
            self.context.run(wake, self)  # type: ignore[union-attr]
            del wake  # the task may have got an error, whose traceback holds this frame

    def resume_soon(self) -> None:
        """Let the waiting task run in the loop's next round."""
        self._loop.call_soon(self.resume)

    def fail(self, error: BaseException) -> None:
        """Have the waiting task get an error in the loop's next round."""
        if not self.is_done:
            self.is_done = True
            self.error = error
            self.resume_soon()

    # What a task calls on the thing it waits for

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        self.wake, self.context = callback, context

    def result(self) -> None:
        if self.error is not None:
            # Its traceback holds whoever waited, and they hold this: no circle may come of it.
            error, self.error = self.error, None
            try:
                raise error
            finally:
                del error

    def cancel(self, msg: Any = None) -> bool:
        if self.is_done:
            return False
        self.fail(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))
        return True


def resume_all(
    parked: Iterable[Parking], loop: asyncio.AbstractEventLoop, *, soon: bool = False
) -> None:
    """Let tasks run, in order: now if no task is running, else in the loop's next round."""
    if not soon and asyncio.current_task(loop) is None:
        for place in parked:
            wake = place.wake  # `resume`, without a call for each of thousands
            if wake is not None:
                place.wake = None
                place.context.run(wake, place)  # type: ignore[union-attr]
    else:
        for place in parked:
            place.resume_soon()
