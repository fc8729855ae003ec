"""Who is to be told by post what becomes of a task, as requests to the daemon, which keeps it.

Posting is the business of the server beside the daemon, and only that server may ask.
"""

from bullpen.connection import TypedRequest
from bullpen.model.push import PushAddress

__all__ = ["EndPush", "ListPush", "RemovePush", "SavePush"]


class SavePush(TypedRequest[bool]):
    """Keep an address to post to, new or changed; whether there was room for it."""

    METHOD = "push.save"
    address: PushAddress


class ListPush(TypedRequest[tuple[PushAddress, ...]]):
    """The addresses of a task; without one all that were not told how their task ended."""

    METHOD = "push.list"
    task_id: str = ""


class EndPush(TypedRequest[None]):
    """Note that nothing more is to be told to an address."""

    METHOD = "push.end"
    task_id: str
    id: str


class RemovePush(TypedRequest[None]):
    """Forget an address; it need not be known."""

    METHOD = "push.remove"
    task_id: str
    id: str
