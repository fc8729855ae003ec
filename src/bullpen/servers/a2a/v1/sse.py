"""Streams of events, written by ourselves.

What the SDK uses looks for the end of its server for ever, in work of its own for each stream, and
closes no stream that it has not read out. Ours ends with the connection, and all it stands on with
it. While there is nothing to tell, a comment says that the stream is open.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import A2AError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

__all__ = ["begun", "events_of"]

logger = logging.getLogger("bullpen.a2a")

THEIRS = "EventSourceResponse"
QUIET_SECONDS = 15.0
COMMENT = b": nothing new\r\n\r\n"
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


def events_of(response: Response, streams: Sequence[AsyncGenerator[Any]] = ()) -> Response:
    """Return an answer with its events, if it has any, written by ourselves.

    `streams` are what they are made from, and closed at the end.
    """
    if type(response).__name__ != THEIRS:
        return response
    events: AsyncIterator[Any] = aiter(getattr(response, "body_iterator"))  # noqa: B009 - it is Any
    return _Events(events, streams)


async def begun(response: Response) -> Response:
    """Return an answer when its first event is there, if it has any.

    Raises:
        A2AError: there is an error instead, which can still be told as one.
    """
    if isinstance(response, _Events):
        await response.begin()
    return response


class _Events(Response):
    """Tells events until there are no more, or nobody is there to hear them."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[Any], streams: Sequence[AsyncGenerator[Any]]) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._events = events
        self._streams = streams
        self._first: asyncio.Future[Any] | None = None

    async def begin(self) -> None:
        """Wait for the first event."""
        self._first = asyncio.ensure_future(anext(self._events, None))
        try:
            await asyncio.wait([self._first])
            self._first.result()
        except BaseException:
            await _end(self._first)
            await self._close()
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        gone = asyncio.ensure_future(_until_gone(receive))
        following = self._first or asyncio.ensure_future(anext(self._events, None))
        try:
            await send(start)
            while not gone.done():
                await asyncio.wait(
                    [gone, following],
                    timeout=QUIET_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                data = COMMENT
                if following.done():
                    if (event := _event_of(following)) is None:
                        break
                    data = _encoded(event)
                    following = asyncio.ensure_future(anext(self._events, None))
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await _end(gone, following)
            await self._close()

    async def _close(self) -> None:
        for each in (self._events, *self._streams):
            if isinstance(each, AsyncGenerator):
                await each.aclose()


def _event_of(told: "asyncio.Future[Any]") -> Any:
    """Return the next event; an error is one, and the last."""
    try:
        return told.result()
    except A2AError as error:
        return {"event": "error", "data": json.dumps(build_rest_error_payload(error))}
    except Exception as error:
        logger.exception("a stream of events ends early")
        return {"event": "error", "data": json.dumps(build_rest_error_payload(error))}


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(*waiting: "asyncio.Future[Any]") -> None:
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    for each in waiting:
        if not each.cancelled():
            each.exception()  # it is looked at, so that nobody is told of it


def _encoded(event: Any) -> bytes:
    """Return an event as it is written. What it tells is JSON, which is one line."""
    if isinstance(event, str):
        event = {"data": event}
    if isinstance(event, dict):
        name = f"event: {event['event']}\r\n" if "event" in event else ""
        return f"{name}data: {event['data']}\r\n\r\n".encode()
    encoded: bytes = event.encode()
    return encoded
