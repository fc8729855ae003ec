"""Hearing what an app server says to all its clients, without answering what it asks by oneself.

What it asks (to approve a command, above all) is the user's to answer. On a server that others use
too, not even "I do not know" may be said: that would be an answer in the user's name.
"""

from collections.abc import Callable

import msgspec

from bullpen.jsonrpc.codec import decode_frame
from bullpen.jsonrpc.wire import Batch, Malformed, Message, Notification, Request, Response

__all__ = ["decode_for_watching", "takes_nothing"]

_One = Request | Notification | Response | Malformed


def decode_for_watching(
    frame: bytes, on_request: Callable[[Request], None] = lambda _: None
) -> Message:
    """Return the message in a frame, so that there is nothing to answer.

    A connection owes every request an answer, if only that it is closing. Somebody who watches a
    server that others use must not give any, so a request becomes news of it; `on_request` has it
    as it came, to be answered if a person says so.
    """
    message = decode_frame(frame)
    if isinstance(message, Batch):
        return Batch(_as_news(each, on_request) for each in message)
    return _as_news(message, on_request)


def _as_news(message: _One, on_request: Callable[[Request], None]) -> _One:
    if isinstance(message, Request):
        on_request(message)
        return Notification(message.method, message.params)
    if isinstance(message, Malformed):
        return msgspec.structs.replace(message, is_response=True)  # which nobody answers
    return message


def takes_nothing(_message: Message, _context: object, _size: int) -> bool:
    """Leave every message to the handlers: the route that `decode_for_watching` needs."""
    return False
