"""What opencode asks its user, in words, and how an answer is said to it.

Whether something may be done is answered once, always or not at all. What a question of the model
is answered with is only said in the terminal.
"""

from typing import Any, Final

from bullpen.agents.providers.values import mapping, text
from bullpen.model.dialogs import Decision, Dialog, decision_of

__all__ = ["dialog_of", "reply_of"]

_REPLIES: Final = {Decision.YES: "once", Decision.ALWAYS: "always", Decision.NO: "reject"}


def dialog_of(asked: dict[str, Any]) -> Dialog:
    """Return what is asked, in words."""
    questions = asked.get("questions")
    if isinstance(questions, list):
        texts = [text(mapping(each).get("question")) for each in questions]
        return Dialog(id=text(asked.get("id")), text="\n".join(filter(None, texts)))
    patterns = asked.get("patterns")
    named = [each for each in patterns if text(each)] if isinstance(patterns, list) else []
    command = text(mapping(asked.get("metadata")).get("command"))
    what = [command] if command else named
    return Dialog(
        id=text(asked.get("id")),
        text="\n".join([f"Permission required: {text(asked.get('permission'))}", *what]),
        answers=tuple(each.value for each in Decision),
    )


def reply_of(said: str) -> str | None:
    """Return an answer as opencode wants it; None if it is none of what can be answered."""
    decision = decision_of(said)
    return _REPLIES[decision] if decision is not None else None
