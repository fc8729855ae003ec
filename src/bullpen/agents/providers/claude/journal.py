"""Turns as the record of a session of Claude Code tells them: asked, said, ended.

A message of the model is written as several lines, one for each block, all with the reason it
stopped for; so its end waits for the next line that is none of it, or for a pause. What somebody
types while the agent works, and a wake-up then, is no prompt of its own: it is attached to the
turn. Lines of subagents, of commands and of what the program tells itself are none of this.
"""

from typing import Any, Final

from bullpen.agents.providers.claude.prompts import plain_prompt
from bullpen.agents.providers.lenient import decode_leniently
from bullpen.agents.providers.told import ToldTurn
from bullpen.agents.providers.values import mapping, text
from bullpen.model.turns import Turn, TurnEnd

__all__ = ["TranscriptTurns"]

_INTERRUPTED: Final = "[Request interrupted by user"
_FEEDBACK: Final = "Stop hook feedback:"
_COMMANDS: Final = ("<command-name>", "<command-message>", "<local-command-", "<bash-")
_FINISHED: Final = ("end_turn", "stop_sequence", "refusal")


class TranscriptTurns:
    """Reads the lines of one transcript, in their order."""

    def __init__(self) -> None:
        self.told = ToldTurn("claude_transcript")
        self._message_id = ""
        self._is_final = False  # the message, as far as it was read, is the last of its turn

    def read(self, line: bytes) -> tuple[Turn, ...]:
        try:
            value = mapping(decode_leniently(line))
        except ValueError:
            return ()
        if value.get("isSidechain") is True:
            return ()
        self.told.session_id = text(value.get("sessionId")) or self.told.session_id
        match value.get("type"):
            case "assistant":
                return self._assistant(value, mapping(value.get("message")))
            case "user":
                return (*self.pause(), *self._user(value))
            case "system":
                return self.pause()
            case "attachment":
                return self._attached(mapping(value.get("attachment")))
        return ()

    def pause(self) -> tuple[Turn, ...]:
        if not self._is_final:
            return ()
        self._is_final = False
        return (self.told.end(TurnEnd.DONE),)

    def _assistant(self, value: dict[str, Any], message: dict[str, Any]) -> tuple[Turn, ...]:
        is_other = text(message.get("id")) != self._message_id
        ended = self.pause() if is_other else ()
        blocks = _blocks(message)
        if value.get("isApiErrorMessage") is True:
            is_limit = text(value.get("error")) == "rate_limit"
            end = TurnEnd.RATE_LIMITED if is_limit else TurnEnd.FAILED
            return (*ended, self.told.end(end, _texts(blocks)))
        if message.get("model") == "<synthetic>":
            return ended
        if is_other:
            self._message_id, self.told.text = text(message.get("id")), ""
        self.told.text += _texts(blocks)
        for block in blocks:
            if block.get("type") == "thinking":
                self.told.think(text(block.get("thinking")))
        self._is_final = message.get("stop_reason") in _FINISHED
        return ended

    def _user(self, value: dict[str, Any]) -> tuple[Turn, ...]:
        blocks = _blocks(mapping(value.get("message")))
        said = _texts(blocks)
        if value.get("isMeta") is True:
            is_drained = said.startswith(_FEEDBACK)
            return (self._prompt(value, said),) if is_drained else ()
        if value.get("isCompactSummary") is True or not said:
            return ()
        if any(text(block.get("text")).startswith(_INTERRUPTED) for block in blocks):
            return (self.told.end(TurnEnd.INTERRUPTED, ""),)
        is_result = any(block.get("type") == "tool_result" for block in blocks)
        if is_result or said.lstrip().startswith(_COMMANDS):
            return ()
        return (self._prompt(value, said),)

    def _prompt(self, value: dict[str, Any], said: str) -> Turn:
        return self.told.prompt(plain_prompt(said), text(value.get("promptId")))

    def _attached(self, attachment: dict[str, Any]) -> tuple[Turn, ...]:
        if attachment.get("type") != "queued_command":
            return ()
        said = _texts(_blocks({"content": attachment.get("prompt")}))
        return (self.told.joined(plain_prompt(said)),) if said else ()


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [mapping(block) for block in content] if isinstance(content, list) else []


def _texts(blocks: list[dict[str, Any]]) -> str:
    return "".join(text(block.get("text")) for block in blocks if block.get("type") == "text")
