"""Turns as hooks tell them: what the agent was asked, and how that ended.

A hook is only believed as far as it tells all of it. Copilot's says that a turn has ended, not with
what words; Gemini's says neither how nor exactly what; Codex's of a failure may be followed by
another try. There the program's journal tells (`agents.journals`), and `is_end` says when to look.
What happens inside a subagent is no turn of the agent's.
"""

from typing import Any, Final

from bullpen.agents.providers.claude.prompts import plain_prompt
from bullpen.agents.providers.copilot.hooks import own_name
from bullpen.agents.providers.values import mapping, text
from bullpen.model.states import Provider
from bullpen.model.turns import Turn, TurnEnd

__all__ = ["CUT", "is_amid", "is_end", "journal_of_hook", "turn_of_hook"]

CUT: Final = "bullpen_cut"
"""In a payload that the shim has cut: its texts may not be whole."""

_ENDS: Final = {
    Provider.CLAUDE: ("Stop", "StopFailure"),
    Provider.CODEX: ("Stop", "Interrupt", "PostModelRequest"),
    Provider.COPILOT: ("agentStop", "errorOccurred"),
    Provider.GEMINI: ("AfterAgent",),
}
_BEGINS: Final = {
    Provider.CLAUDE: "UserPromptSubmit",
    Provider.CODEX: "UserPromptSubmit",
    Provider.COPILOT: "userPromptSubmitted",
    Provider.GEMINI: "BeforeAgent",
}
_AMID: Final = {Provider.CLAUDE: ("PreToolUse", "PostToolUse", "PostToolUseFailure")}
_LEAVES: Final = {
    Provider.CLAUDE: "SessionEnd",
    Provider.CODEX: "SessionEnd",
    Provider.COPILOT: "sessionEnd",
    Provider.GEMINI: "SessionEnd",
}


def turn_of_hook(provider: Provider, payload: Any) -> Turn | None:
    """Return what a hook's payload tells of a turn; None if that is nothing, or not all of it.

    Texts are those of the program, to the character. Nothing that a payload holds makes it fail.
    """
    said = mapping(payload)
    name = _name(provider, said)
    if not name or text(said.get("agent_id")):
        return None
    told = Turn(
        by=f"{provider.value}_hooks",
        session_id=text(said.get("session_id")) or text(said.get("sessionId")),
        turn_id=text(said.get("turn_id")) or text(said.get("prompt_id")),
    )
    if name == _BEGINS[provider]:
        prompt = said.get("prompt")
        return _asked(told, plain_prompt(prompt)) if isinstance(prompt, str) else None
    if name == _LEAVES[provider]:
        reason = text(said.get("reason"))
        what = f"its session has ended ({reason})" if reason else "its session has ended"
        return _ended(told, TurnEnd.INTERRUPTED, what)
    return None if CUT in said else _end(provider, name, said, told)


def is_end(provider: Provider, payload: Any) -> bool:
    """Whether a turn is over, or may be, whatever else the payload tells of it."""
    said = mapping(payload)
    name = _name(provider, said)
    if name == "PostModelRequest" and said.get("status") != "failed":
        return False
    return name in _ENDS.get(provider, ()) and not text(said.get("agent_id"))


def is_amid(provider: Provider, payload: Any) -> bool:
    """Whether a turn is under way, and its journal may have what was said in it so far."""
    said = mapping(payload)
    return _name(provider, said) in _AMID.get(provider, ()) and not text(said.get("agent_id"))


def journal_of_hook(payload: Any) -> str:
    """Return where the program keeps the journal of the session; empty if it does not say."""
    said = mapping(payload)
    path = text(said.get("transcript_path")) or text(said.get("transcriptPath"))
    return path if path.startswith("/") and "\0" not in path else ""


def _end(provider: Provider, name: str, said: dict[str, Any], told: Turn) -> Turn | None:
    words = said.get("last_assistant_message")
    match provider, name:
        case ((Provider.CLAUDE | Provider.CODEX), "Stop") if isinstance(words, str):
            return _ended(told, TurnEnd.DONE, words)
        case Provider.CLAUDE, "StopFailure":
            is_limit = text(said.get("error")) == "rate_limit"
            end = TurnEnd.RATE_LIMITED if is_limit else TurnEnd.FAILED
            return _ended(told, end, text(words) or text(said.get("error")))
        case Provider.CODEX, "Interrupt":
            return _ended(told, TurnEnd.INTERRUPTED, "")
    return None


def _name(provider: Provider, said: dict[str, Any]) -> str:
    name = text(said.get("hook_event_name")) or text(said.get("hookName"))
    if provider is Provider.COPILOT:
        name = own_name(name)
    return name if provider in _BEGINS else ""


def _asked(told: Turn, prompt: str) -> Turn:
    return Turn(by=told.by, prompt=prompt, session_id=told.session_id, turn_id=told.turn_id)


def _ended(told: Turn, end: TurnEnd, words: str) -> Turn:
    return Turn(by=told.by, end=end, text=words, session_id=told.session_id, turn_id=told.turn_id)
