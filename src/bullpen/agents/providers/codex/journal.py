"""Turns as Codex's session file tells them: asked, said, ended.

A prompt is an item of its own, and so is what a hook has answered at the end of a turn: then the
program goes on in the same turn, and what it had said before was the end of what it was asked
before. Files of older versions tell of messages in other words.
"""

from typing import Any, Final

from bullpen.agents.providers.codex.facts import mapping, parse_object, text
from bullpen.agents.providers.codex.failures import failed_turn
from bullpen.agents.providers.codex.rollout import read_meta
from bullpen.agents.providers.told import ToldTurn
from bullpen.model.turns import Turn, TurnEnd

__all__ = ["RolloutTurns"]

_RATE_LIMITED: Final = "turn.rate_limited"


class RolloutTurns:
    """Reads the lines of one session file, in their order."""

    def __init__(self) -> None:
        self.told = ToldTurn("codex_rollout")
        self._is_compaction = False
        self._error: tuple[TurnEnd, str] | None = None  # told before the end

    def read(self, line: bytes) -> tuple[Turn, ...]:
        entry = parse_object(line)
        if entry is None:
            return ()
        if entry.get("type") == "session_meta":
            meta = read_meta(line)
            self.told.session_id = meta.thread_id if meta else self.told.session_id
        if entry.get("type") != "event_msg":
            return ()
        payload = mapping(entry.get("payload"))
        match payload.get("type"):
            case "task_started" | "turn_started":
                self._begin(text(payload.get("turn_id")))
            case "task_complete" | "turn_complete":
                return self._completed(payload)
            case "turn_aborted" if payload.get("reason") != "replaced":
                return (self.told.end(TurnEnd.INTERRUPTED, ""),)
            case "error":
                self._error = _failure(payload.get("message"), payload.get("codex_error_info"))
            case "item_completed":
                return self._item(mapping(payload.get("item")))
            case "user_message":
                return self._asked(text(payload.get("message")))
            case "agent_message":
                self._say(text(payload.get("message")))
            case "agent_reasoning":
                self.told.think(text(payload.get("text")))
        return ()

    def pause(self) -> tuple[Turn, ...]:
        return ()

    def _begin(self, turn_id: str) -> None:
        self.told.forget()
        self.told.turn_id = turn_id
        self._error, self._is_compaction = None, False

    def _item(self, item: dict[str, Any]) -> tuple[Turn, ...]:
        match item.get("type"):
            case "UserMessage":
                return self._asked(_texts(item.get("content")))
            case "HookPrompt":
                ended = (self.told.end(TurnEnd.DONE),) if self.told.text else ()
                return (*ended, self.told.prompt(_texts(item.get("fragments"))))
            case "AgentMessage":
                self._say(_texts(item.get("content")))
            case "Reasoning":
                for summary in _list(item.get("summary_text")):
                    self.told.think(text(summary))
            case "ContextCompaction":
                self._is_compaction = True
        return ()

    def _asked(self, prompt: str) -> tuple[Turn, ...]:
        if self.told.has_prompt:
            return (self.told.joined(prompt),)  # while it works
        return (self.told.prompt(prompt),)

    def _say(self, said: str) -> None:
        self.told.text = said
        self._error = None  # it went on after all

    def _completed(self, payload: dict[str, Any]) -> tuple[Turn, ...]:
        self.told.turn_id = text(payload.get("turn_id")) or self.told.turn_id
        error = mapping(payload.get("error"))
        if error:
            self._error = _failure(error.get("message"), error.get("codex_error_info"))
        if self._error is not None:
            end, message = self._error
            return (self.told.end(end, message),)
        said = text(payload.get("last_agent_message")) or self.told.text
        if self._is_compaction and not said and not self.told.has_prompt:
            return ()
        return (self.told.end(TurnEnd.DONE, said),)


def _failure(message: object, info: object) -> tuple[TurnEnd, str]:
    kind, _ = failed_turn(message, info)
    end = TurnEnd.RATE_LIMITED if kind == _RATE_LIMITED else TurnEnd.FAILED
    return end, text(message)


def _texts(parts: object) -> str:
    return "".join(text(mapping(part).get("text")) for part in _list(parts))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
