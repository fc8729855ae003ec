"""Turns as the record of a session of Copilot CLI tells them: asked, said, ended.

The end of a turn whose last message wants no more tools is the end of what was asked; an abort and
an error come after a turn that had no such message. Events of a subagent are none of this.
"""

from typing import Any, Final

from bullpen.agents.providers.lenient import decode_leniently
from bullpen.agents.providers.told import ToldTurn
from bullpen.agents.providers.values import mapping, text
from bullpen.model.turns import Turn, TurnEnd

__all__ = ["RecordTurns"]

_TOO_MANY: Final = 429
_STEERING: Final = "steering"


class RecordTurns:
    """Reads the lines of one session's record, in their order."""

    def __init__(self) -> None:
        self.told = ToldTurn("copilot")
        self._is_final = False  # the last message wants no tools

    def read(self, line: bytes) -> tuple[Turn, ...]:
        try:
            event = mapping(decode_leniently(line))
        except ValueError:
            return ()
        if event.get("agentId"):
            return ()
        data = mapping(event.get("data"))
        match event.get("type"):
            case "session.start" | "session.resume":
                self.told.session_id = text(data.get("sessionId")) or self.told.session_id
            case "user.message":
                return self._asked(data)
            case "assistant.turn_start":
                self._is_final = False
            case "assistant.message":
                self._say(data)
            case "assistant.turn_end" if self._is_final:
                self._is_final = False
                return (self.told.end(TurnEnd.DONE),)
            case "abort":
                return (self.told.end(TurnEnd.INTERRUPTED, ""),)
            case "session.error":
                return (self.told.end(_failure(data), text(data.get("message"))),)
        return ()

    def pause(self) -> tuple[Turn, ...]:
        return ()

    def _asked(self, data: dict[str, Any]) -> tuple[Turn, ...]:
        prompt = text(data.get("content"))
        if data.get("delivery") == _STEERING:
            return (self.told.joined(prompt),)
        return (self.told.prompt(prompt, text(data.get("interactionId"))),)

    def _say(self, data: dict[str, Any]) -> None:
        self.told.think(text(data.get("reasoningText")))
        self.told.text = text(data.get("content"))
        self._is_final = not data.get("toolRequests")


def _failure(data: dict[str, Any]) -> TurnEnd:
    is_limit = data.get("errorType") == "rate_limit" or data.get("statusCode") == _TOO_MANY
    return TurnEnd.RATE_LIMITED if is_limit else TurnEnd.FAILED
