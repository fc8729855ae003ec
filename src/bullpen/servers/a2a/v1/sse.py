"""Streams of events, written by ourselves.

What the SDK uses looks for the end of its server for ever, in work of its own for each stream; ours
ends with the connection. While there is nothing to tell, a comment says that the stream is open.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from sse_starlette.event import ensure_bytes
from sse_starlette.sse import EventSourceResponse
from starlette.responses import Response, StreamingResponse

__all__ = ["events_of"]

SEPARATOR = "\r\n"
QUIET_SECONDS = 15.0
COMMENT = b": nothing new\r\n\r\n"


def events_of(response: Response) -> Response:
    """Return an answer with its events, if it has any, written by ourselves."""
    if not isinstance(response, EventSourceResponse):
        return response
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(
        _written(aiter(response.body_iterator)), media_type="text/event-stream", headers=headers
    )


async def _written(events: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    following = asyncio.ensure_future(anext(events))
    try:
        while True:
            done, _ = await asyncio.wait([following], timeout=QUIET_SECONDS)
            if not done:
                yield COMMENT
                continue
            try:
                event = following.result()
            except StopAsyncIteration:
                return
            yield ensure_bytes(event, SEPARATOR)
            following = asyncio.ensure_future(anext(events))
    finally:
        following.cancel()
        await asyncio.wait([following])
        if not following.cancelled():
            following.exception()  # it is looked at, so that nobody is told of it
        if hasattr(events, "aclose"):
            await events.aclose()
