"""The words of `codex app-server`, as far as somebody needs them who only watches.

It lists threads, each with a status, and tells when one changes. A server knows the status of a
thread only if it runs the thread itself: all others are `notLoaded`, which says nothing about what
they are doing. Status, source and times come in the shapes of several versions.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from bullpen.agents.providers.codex.facts import CodexFact, clip, mapping, text
from bullpen.agents.providers.codex.failures import failed_turn

__all__ = [
    "LIST",
    "LOADED",
    "READ",
    "Thread",
    "ThreadStatus",
    "initialize_params",
    "list_params",
    "parse_threads",
    "read_status",
    "read_thread",
    "translate",
    "version_of",
]

INITIALIZE: Final = "initialize"
INITIALIZED: Final = "initialized"
LIST: Final = "thread/list"
LOADED: Final = "thread/loaded/list"
READ: Final = "thread/read"

PAGE: Final = 50
# All but subagents. Without this, what `codex exec` runs is left out.
SOURCE_KINDS: Final = ("cli", "vscode", "exec", "appServer", "unknown")

NOT_LOADED: Final = "notLoaded"
ACTIVE: Final = "active"
_STATUSES: Final = ("idle", ACTIVE, "systemError")
_FLAGS: Final = ("waitingOnApproval", "waitingOnUserInput")  # the one that matters more first

# Of threads that work for another one, or for the program itself.
_NOBODYS: Final = ("thread_title", "subagent", "memory_consolidation")

_GONE: Final = ("thread/closed", "thread/deleted", "thread/archived")


class ThreadStatus(msgspec.Struct, frozen=True):
    """What a server says a thread is doing."""

    type: str = NOT_LOADED
    flags: tuple[str, ...] = ()
    """Why an active one does not go on."""

    @property
    def event_type(self) -> str | None:
        """What that is as an event; None if it does not tell."""
        if self.type == ACTIVE:
            return next(
                (f"thread.{flag}" for flag in _FLAGS if flag in self.flags), "thread.active"
            )
        return f"thread.{self.type}" if self.type in _STATUSES else None


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """A thread, as the server describes it."""

    thread_id: str
    status: ThreadStatus = ThreadStatus()
    name: str = ""
    cwd: str = ""
    preview: str = ""
    updated_at: float = 0.0
    """Seconds since the epoch; 0 if it was not said."""
    source: str = ""
    is_hidden: bool = False
    """It is nobody's: it finds a title, or does a part of another thread's turn."""


def initialize_params(version: str) -> dict[str, Any]:
    """Return how we introduce ourselves."""
    return {"clientInfo": {"name": "bullpen", "title": "bullpen", "version": version}}


def list_params(cwds: Sequence[str] = (), *, is_plain: bool = False) -> dict[str, Any]:
    """Return which threads we want listed: the latest, in certain directories if any are given.

    It is answered from what the server has noted, which costs it a fiftieth of looking through all
    session files. A plain list asks for nothing that a server of another version might not know.
    """
    params: dict[str, Any] = {"limit": PAGE, "sortKey": "updated_at"}
    if not is_plain:
        params["sourceKinds"] = list(SOURCE_KINDS)
        params["modelProviders"] = []  # for all of them
        params["useStateDbOnly"] = True
    if cwds:
        params["cwd"] = list(cwds)
    return params


def version_of(initialized: object) -> str:
    """Return the server's version by its answer to `initialize`; empty if it does not tell."""
    found = re.match(r"[^/]+/(\d\S*)", text(mapping(initialized).get("userAgent")))
    return found[1] if found is not None else ""


def parse_threads(result: object) -> list[Thread]:
    """Return the threads in the answer to `thread/list`, in their order."""
    data = mapping(result).get("data")
    threads = (read_thread(each) for each in data) if isinstance(data, list) else ()
    return [each for each in threads if each is not None]


def read_thread(value: object) -> Thread | None:
    """Return a thread, be it bare or in an object of its own; None if it has no id."""
    thread = mapping(value)
    thread = mapping(thread["thread"]) if "thread" in thread else thread
    thread_id = text(thread.get("id"))
    if not thread_id:
        return None
    source = thread.get("source")
    return Thread(
        thread_id=thread_id,
        status=read_status(thread.get("status")),
        name=clip(thread.get("name")),
        cwd=text(thread.get("cwd")),
        preview=clip(thread.get("preview")),
        updated_at=_seconds(thread.get("updatedAt")),
        source=text(source),
        is_hidden=thread.get("ephemeral") is True
        or text(thread.get("threadSource")) in _NOBODYS
        or "subAgent" in mapping(source)
        or bool(thread.get("parentThreadId")),
    )


def read_status(value: object) -> ThreadStatus:
    """Return the status of a thread, be it an object or a word."""
    if isinstance(value, str):
        return ThreadStatus(value)
    status = mapping(value)
    flags = status.get("activeFlags")
    known = tuple(filter(None, map(text, flags))) if isinstance(flags, list) else ()
    return ThreadStatus(text(status.get("type")) or NOT_LOADED, known)


def translate(method: str, params: object) -> CodexFact | None:
    """Return what a notification says has happened; None if that is nothing to us."""
    said = mapping(params)
    thread_id = text(said.get("threadId")) or text(mapping(said.get("thread")).get("id"))
    if not thread_id:
        return None
    if method == "thread/status/changed":
        status = read_status(said.get("status"))
        if status.event_type is None:
            return None
        return CodexFact(
            event_type=status.event_type,
            thread_id=thread_id,
            payload={"status": status.type, "flags": list(status.flags)},
        )
    if method == "thread/name/updated":
        title = clip(said.get("threadName"))
        return _fact("session.named", thread_id, title=title) if title else None
    if method in _GONE:
        return _fact("session.ended", thread_id, reason=method.partition("/")[2])
    return _translate_turn(method, thread_id, mapping(said.get("turn")))


def _translate_turn(method: str, thread_id: str, turn: dict[str, Any]) -> CodexFact | None:
    turn_id = text(turn.get("id")) or None
    if method == "turn/started":
        return CodexFact(event_type="turn.started", thread_id=thread_id, source_event_id=turn_id)
    if method != "turn/completed":
        return None
    match turn.get("status"):
        case "completed" | "interrupted" as status:
            event_type, payload = f"turn.{status}", {}
        case "failed":
            error = mapping(turn.get("error"))
            info = error.get("codexErrorInfo")
            event_type, message = failed_turn(error.get("message"), info)
            payload = {"error": message}
        case _:
            return None
    return CodexFact(
        event_type=event_type, thread_id=thread_id, source_event_id=turn_id, payload=payload
    )


def _fact(event_type: str, thread_id: str, **payload: str) -> CodexFact:
    return CodexFact(event_type=event_type, thread_id=thread_id, payload=dict(payload))


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
