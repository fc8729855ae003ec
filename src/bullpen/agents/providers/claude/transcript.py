"""The record that Claude Code writes of each session, line by line, as it goes.

A `TranscriptReader` takes the lines of one file in order and tells what each says. What the agent
does is in the content blocks and the stop reason, not in the type of a line. The record is silent
while somebody is asked for permission, so it never says that the agent waits, and a result beside
which other tools are not done says nothing. Nor do lines of subagents say anything about the
session.
"""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from bullpen.agents.providers.claude.errors import NotUnderstood
from bullpen.agents.providers.lenient import decode_leniently
from bullpen.model.events import SESSION_NAMED, activity_event
from bullpen.model.states import Activity

__all__ = ["TranscriptEvent", "TranscriptReader"]

INTERRUPTED: Final = "[Request interrupted by user"
REJECTED: Final = "User rejected tool use"
# What a command typed by the user leaves, which need not reach the model.
_COMMAND_TEXTS: Final = ("<command-name>", "<command-message>", "<local-command-", "<bash-")
_FINISHED: Final = ("end_turn", "stop_sequence", "refusal")
# Where the title is, the best last: of the program's making, or chosen by somebody.
_TITLES: Final = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
_TITLE_RANKS: Final = tuple(_TITLES)
_RUNNING = activity_event(Activity.RUNNING)
TOOLS_REMEMBERED: Final = 1000


class TranscriptEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What one line says."""

    event_type: str
    line_id: str
    """The program's own id of the line; empty for lines that have none."""
    at: datetime | None = None
    """When the program wrote it down, if it says."""
    cwd: str = ""
    title: str = ""
    """With `session.named`: what the session is called."""
    details: dict[str, Any] = {}


class TranscriptReader:
    """Tells what the lines of one record say, each after those before it."""

    def __init__(self) -> None:
        self._open_tools: dict[str, None] = {}  # begun, and without a result
        self._background_agents: set[str] = set()
        self._title_rank = -1

    def lose_track(self) -> None:
        """Take it that lines were missed: which tools are open is not known any more."""
        self._open_tools.clear()

    def read(self, line: bytes) -> TranscriptEvent | None:
        """Return what a line says about the session; None if that is nothing.

        Raises:
            NotUnderstood: it is no line of a transcript.
        """
        try:
            value = decode_leniently(line)
        except ValueError as error:
            raise NotUnderstood("a line of a transcript", str(error)) from error
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            raise NotUnderstood("a line of a transcript", "it has no type")
        kind = value["type"]
        if kind in _TITLES:
            return self._title(kind, value)
        if kind not in ("user", "assistant") or value.get("isSidechain") is True:
            return None
        message = value.get("message")
        if not isinstance(message, dict):
            return None
        said = self._assistant if kind == "assistant" else self._user
        told = said(value, message)
        if told is None:
            return None
        event_type, details = told
        return TranscriptEvent(
            event_type=event_type,
            line_id=_text(value, "uuid"),
            at=_time(value),
            cwd=_text(value, "cwd"),
            details={key: each for key, each in details.items() if each},
        )

    def _title(self, kind: str, value: dict[str, Any]) -> TranscriptEvent | None:
        title = _text(value, _TITLES[kind]).strip()
        rank = _TITLE_RANKS.index(kind)
        if not title or rank < self._title_rank:
            return None  # what somebody has chosen stays
        self._title_rank = rank
        return TranscriptEvent(
            event_type=SESSION_NAMED,
            line_id=_text(value, "uuid"),
            at=_time(value),
            title=title,
            details={"title": title, "by": kind},
        )

    def _assistant(
        self, value: dict[str, Any], message: dict[str, Any]
    ) -> tuple[str, dict[str, Any]] | None:
        if value.get("isApiErrorMessage") is True:
            self._open_tools.clear()
            error = _text(value, "error")
            failed = "turn.rate_limited" if error == "rate_limit" else "turn.failed"
            return failed, {"error": error, "status": value.get("apiErrorStatus")}
        tools = [block for block in _blocks(message) if block.get("type") == "tool_use"]
        if tools:
            for block in tools:
                self._begin(_text(block, "id"))
            return "tool.started", {"tool": _text(tools[-1], "name")}
        if message.get("stop_reason") not in _FINISHED or message.get("model") == "<synthetic>":
            return None
        self._open_tools.clear()
        if self._background_agents:
            return _RUNNING, {"background": True}
        return "turn.completed", {}

    def _user(
        self, value: dict[str, Any], message: dict[str, Any]
    ) -> tuple[str, dict[str, Any]] | None:
        if value.get("isMeta") is True or value.get("isCompactSummary") is True:
            return None
        blocks = _blocks(message)
        texts = [_text(block, "text") for block in blocks if block.get("type") == "text"]
        if any(text.startswith(INTERRUPTED) for text in texts):
            self._open_tools.clear()
            return "turn.interrupted", {}
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if results:
            return self._results(value.get("toolUseResult"), results)
        if not texts or texts[0].lstrip().startswith(_COMMAND_TEXTS):
            return None
        origin = value.get("origin")
        is_automatic = isinstance(origin, dict) and origin.get("kind") == "task-notification"
        if is_automatic:
            self._end_background(texts[0])
        self._open_tools.clear()
        return "prompt.submitted", {"is_automatic": is_automatic}

    def _begin(self, tool_use_id: str) -> None:
        self._open_tools[tool_use_id] = None
        if len(self._open_tools) > TOOLS_REMEMBERED:
            del self._open_tools[next(iter(self._open_tools))]

    def _results(
        self, outcome: object, results: list[dict[str, Any]]
    ) -> tuple[str, dict[str, Any]] | None:
        for block in results:
            self._open_tools.pop(_text(block, "tool_use_id"), None)
        if outcome == REJECTED:
            return None  # the line that says what became of the turn follows
        if isinstance(outcome, dict) and outcome.get("status") == "async_launched":
            self._begin_background(_text(outcome, "agentId"))
        if self._open_tools:
            return None  # they may wait for somebody
        is_error = results[-1].get("is_error") is True
        return "tool.failed" if is_error else "tool.completed", {}

    def _begin_background(self, agent_id: str) -> None:
        if agent_id and len(self._background_agents) < TOOLS_REMEMBERED:
            self._background_agents.add(agent_id)

    def _end_background(self, notification: str) -> None:
        self._background_agents = {
            agent_id
            for agent_id in self._background_agents
            if f"<task-id>{agent_id}</task-id>" not in notification
        }


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict)]


def _text(value: dict[str, Any], key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def _time(value: dict[str, Any]) -> datetime | None:
    try:
        at = datetime.fromisoformat(_text(value, "timestamp"))
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
