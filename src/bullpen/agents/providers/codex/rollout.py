"""Codex's session files: what each line says about the thread.

A file begins with `session_meta`. Turns begin with `task_started` and end with `task_complete`,
which holds the error if there was one, or with `turn_aborted`; other versions call them
`turn_started` and `turn_complete`, and write an `error` of its own before the end. Tools are called
and answered in `response_item`, and told again as `item_completed` in the newer of two formats.

What is not in these files: that somebody is asked for permission. `entered_review_mode` is the
`/review` command and has nothing to do with it.
"""

from datetime import datetime
from typing import Any, Final

import msgspec

from bullpen.agents.providers.codex.facts import (
    CodexFact,
    clip,
    mapping,
    parse_object,
    parse_time,
    text,
)
from bullpen.agents.providers.codex.failures import failed_turn
from bullpen.agents.providers.codex.hooks import QUESTION_TOOL

__all__ = ["Rollout", "SessionMeta", "read_meta"]

_CALLS: Final = ("custom_tool_call", "function_call", "local_shell_call")
_OUTPUTS: Final = ("custom_tool_call_output", "function_call_output")
_TOOL_ITEMS: Final = ("CommandExecution", "DynamicToolCall", "FileChange", "McpToolCall")
_NOBODYS: Final = ("thread_title", "subagent", "memory_consolidation")
_FULL_PERCENT: Final = 100
MOST_OPEN_CALLS: Final = 256  # of one turn; nobody counts on their number


class SessionMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says about its thread as a whole."""

    thread_id: str
    cwd: str = ""
    originator: str = ""
    """The program it was begun with, such as `codex-tui` or `codex_exec`."""
    source: str = ""
    version: str = ""
    is_hidden: bool = False
    """It is nobody's: it finds a title, or does a part of another thread's turn."""


def read_meta(line: bytes) -> SessionMeta | None:
    """Return what the first line of a file says; None if it is none that begins one."""
    entry = parse_object(line)
    if entry is None or entry.get("type") != "session_meta":
        return None
    payload = mapping(entry.get("payload"))
    payload = mapping(payload["meta"]) if "meta" in payload else payload
    thread_id = text(payload.get("id"))
    if not thread_id:
        return None
    source = payload.get("source")
    return SessionMeta(
        thread_id=thread_id,
        cwd=text(payload.get("cwd")),
        originator=clip(payload.get("originator")),
        source=text(source),
        version=clip(payload.get("cli_version")),
        is_hidden=text(payload.get("thread_source")) in _NOBODYS
        or "subagent" in mapping(source)
        or bool(payload.get("parent_thread_id")),
    )


class Rollout:
    """Reads the lines of one file in their order, from wherever it begins.

    What a tool does outside of a turn is not told: it goes on in the background while the agent
    waits for its next prompt.
    """

    def __init__(self, meta: SessionMeta) -> None:
        self.meta = meta
        self.cwd = meta.cwd
        self.unreadable = 0  # lines that are no JSON
        self._has_turn = True  # as long as no line has said otherwise
        self._has_begun = False  # a turn has, before our eyes
        self._error: tuple[str, str] | None = None  # told before the end of the turn
        self._calls: set[str] = set()
        self._is_limit_reached = False

    def feed(self, line: bytes) -> CodexFact | None:
        """Return what a line says has happened; None if that is nothing to us."""
        entry = parse_object(line)
        if entry is None:
            self.unreadable += 1
            return None
        at, payload = parse_time(entry.get("timestamp")), mapping(entry.get("payload"))
        match entry.get("type"):
            case "event_msg":
                return self._event(payload, at)
            case "response_item":
                return self._response(payload, at)
            case "turn_context":
                self.cwd = text(payload.get("cwd")) or self.cwd
            case "session_meta":  # again, when a thread was taken up in another place
                self.cwd = text(payload.get("cwd")) or self.cwd
        return None

    def _event(self, payload: dict[str, Any], at: datetime | None) -> CodexFact | None:
        turn_id = text(payload.get("turn_id")) or None
        match payload.get("type"):
            case "task_started" | "turn_started":
                self._begin_turn()
                return self._fact("turn.started", at, turn_id)
            case "task_complete" | "turn_complete":
                return self._complete(payload, at, turn_id)
            case "turn_aborted":
                return self._abort(payload, at, turn_id)
            case "error":
                self._error = self._failure(payload.get("message"), payload.get("codex_error_info"))
                return self._fact(self._error[0], at, turn_id, error=self._error[1])
            case "item_completed":
                return self._item(mapping(payload.get("item")), at)
            case "token_count":
                self._is_limit_reached = _is_limit_reached(mapping(payload.get("rate_limits")))
            case "thread_name_updated":
                title = clip(payload.get("thread_name"))
                return self._fact("session.named", at, title=title) if title else None
        return None

    def _begin_turn(self) -> None:
        self._has_turn = self._has_begun = True
        self._error = None
        self._calls.clear()

    def _end_turn(self) -> None:
        self._begin_turn()
        self._has_turn = False

    def _complete(
        self, payload: dict[str, Any], at: datetime | None, turn_id: str | None
    ) -> CodexFact:
        said = mapping(payload.get("error"))
        error = (
            self._failure(said.get("message"), said.get("codex_error_info"))
            if said
            else self._error
        )
        self._end_turn()
        if error is None:
            return self._fact("turn.completed", at, turn_id)
        return self._fact(error[0], at, turn_id, error=error[1])

    def _abort(
        self, payload: dict[str, Any], at: datetime | None, turn_id: str | None
    ) -> CodexFact | None:
        reason = text(payload.get("reason"))
        if reason == "replaced":  # the turn that replaces it has begun, or is about to
            return None
        self._end_turn()
        return self._fact("turn.interrupted", at, turn_id, reason=reason)

    def _failure(self, message: object, info: object) -> tuple[str, str]:
        event_type, short = failed_turn(message, info)
        return ("turn.rate_limited" if self._is_limit_reached else event_type), short

    def _response(self, payload: dict[str, Any], at: datetime | None) -> CodexFact | None:
        kind = payload.get("type")
        if kind == "message" and payload.get("role") == "assistant":
            self._error = None  # it went on after all
        call_id = text(payload.get("call_id"))
        if kind in _CALLS:
            return self._call(text(payload.get("name")) or "shell", call_id, at)
        if kind in _OUTPUTS:
            return self._end_call(call_id, at, "tool.completed")
        return None

    def _call(self, name: str, call_id: str, at: datetime | None) -> CodexFact | None:
        if not self._has_turn:
            return None
        self._error = None
        if len(self._calls) < MOST_OPEN_CALLS:
            self._calls.add(call_id)
        event_type = "question.asked" if name == QUESTION_TOOL else "tool.started"
        return self._fact(event_type, at, call_id or None, tool=clip(name))

    def _item(self, item: dict[str, Any], at: datetime | None) -> CodexFact | None:
        if item.get("type") not in _TOOL_ITEMS:
            return None
        has_failed = text(item.get("status")) in ("declined", "failed")
        event_type = "tool.failed" if has_failed else "tool.completed"
        return self._end_call(text(item.get("id")), at, event_type)

    def _end_call(self, call_id: str, at: datetime | None, event_type: str) -> CodexFact | None:
        """Tell the end of a call: once, though two lines say it, if we have seen it begin."""
        if not self._has_turn or (self._has_begun and call_id not in self._calls):
            return None
        self._calls.discard(call_id)
        return self._fact(event_type, at, call_id or None)

    def _fact(
        self, event_type: str, at: datetime | None, source_event_id: str | None = None, **said: str
    ) -> CodexFact:
        return CodexFact(
            event_type=event_type,
            thread_id=self.meta.thread_id,
            at=at,
            source_event_id=source_event_id,
            payload={key: value for key, value in said.items() if value},
        )


def _is_limit_reached(limits: dict[str, Any]) -> bool:
    if limits.get("rate_limit_reached_type"):
        return True
    windows = (mapping(limits.get(name)) for name in ("primary", "secondary"))
    used = (window.get("used_percent") for window in windows)
    return any(isinstance(each, int | float) and each >= _FULL_PERCENT for each in used)
