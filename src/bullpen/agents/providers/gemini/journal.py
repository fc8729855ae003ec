"""Turns as the record of a conversation of Gemini CLI tells them: asked, said, broken off.

That a turn has come to its end is not in the record: a tool is written down when it is over, so a
text may be followed by one for a long time. Whoever knows by other signs that the turn is over (a
hook, the screen) finds the exact words here. After a cancellation the program writes the whole
conversation once more; those lines are known by their content, which is a list.
"""

from typing import Any, Final

from bullpen.agents.providers.gemini.transcript import read_line
from bullpen.agents.providers.lenient import decode_leniently
from bullpen.agents.providers.told import ToldTurn
from bullpen.agents.providers.values import mapping, text
from bullpen.model.turns import Turn, TurnEnd

__all__ = ["ChatTurns"]

_ENDS: Final = {
    "turn.rate_limited": TurnEnd.RATE_LIMITED,
    "turn.failed": TurnEnd.FAILED,
    "turn.interrupted": TurnEnd.INTERRUPTED,
}


class ChatTurns:
    """Reads the lines of one conversation, in their order."""

    def __init__(self) -> None:
        self.told = ToldTurn("gemini")
        self._message_id = ""

    def read(self, line: bytes) -> tuple[Turn, ...]:
        try:
            entry = mapping(decode_leniently(line))
        except ValueError:
            return ()
        self.told.session_id = text(entry.get("sessionId")) or self.told.session_id
        match entry.get("type"):
            case "user":
                return self._asked(entry)
            case "gemini":
                self._say(entry)
            case "error" | "info":
                return self._broken_off(line, entry)
        return ()

    def pause(self) -> tuple[Turn, ...]:
        return ()

    def _asked(self, entry: dict[str, Any]) -> tuple[Turn, ...]:
        content = entry.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        prompt = "".join(text(mapping(part).get("text")) for part in parts)
        return (self.told.prompt(prompt, text(entry.get("id"))),) if prompt else ()

    def _say(self, entry: dict[str, Any]) -> None:
        if not isinstance(entry.get("content"), str):
            return  # what was said before, once more
        if text(entry.get("id")) != self._message_id:  # else it is written again with its tools
            self._message_id = text(entry.get("id"))
            thoughts = entry.get("thoughts")
            for thought in thoughts if isinstance(thoughts, list) else ():
                self.told.think(_thought(mapping(thought)))
        self.told.text = entry["content"]

    def _broken_off(self, line: bytes, entry: dict[str, Any]) -> tuple[Turn, ...]:
        fact = read_line(line, self.told.session_id)
        if fact is None:
            return ()
        end = _ENDS[fact.event_type]
        said = "" if end is TurnEnd.INTERRUPTED else text(entry.get("content"))
        return (self.told.end(end, said),)


def _thought(thought: dict[str, Any]) -> str:
    parts = (text(thought.get("subject")), text(thought.get("description")))
    return ": ".join(part for part in parts if part)
