"""What an app server asks its clients, in words, and how an answer is said to it.

A question goes to every client that takes part in the thread, and the first answer counts. When it
was answered, by whomever, the server says so.
"""

import json
from typing import Any, Final

from bullpen.agents.providers.codex.facts import mapping, text
from bullpen.model.dialogs import Decision, Dialog, chosen, decision_of

__all__ = ["Question", "Questions", "dialog_of", "result_of"]

COMMAND: Final = "item/commandExecution/requestApproval"
PATCH: Final = "item/fileChange/requestApproval"
INPUT: Final = "item/tool/requestUserInput"
RESOLVED: Final = "serverRequest/resolved"
ENDED: Final = "turn/completed"

MOST_QUESTIONS: Final = 64

_DECISIONS: Final = {
    Decision.YES: "accept",
    Decision.ALWAYS: "acceptForSession",
    Decision.NO: "decline",
}


class Question:
    """One question, from when it is asked until it was answered."""

    def __init__(self, request_id: Any, method: str, params: object) -> None:
        self.request_id = request_id
        self.method = method
        self.params = mapping(params)
        self.is_resolved = False

    @property
    def thread_id(self) -> str:
        """The thread in which it is asked."""
        return text(self.params.get("threadId"))

    @property
    def name(self) -> str:
        """What it is called among all that this agent asks."""
        return f"{text(self.params.get('itemId')) or 'codex'}:{json.dumps(self.request_id)}"


class Questions:
    """What a server asks just now."""

    def __init__(self) -> None:
        self._open: dict[str, Question] = {}

    def ask(self, request_id: Any, method: str, params: object) -> None:
        """Take a question."""
        question = Question(request_id, method, params)
        self._open[json.dumps(request_id)] = question
        if len(self._open) > MOST_QUESTIONS:
            self._close(next(iter(self._open)))

    def hear(self, method: str, params: object) -> None:
        """Take a notification: perhaps a question was answered, or will be no more."""
        said = mapping(params)
        if method == RESOLVED:
            self._close(json.dumps(said.get("requestId")))
        elif method == ENDED:
            thread_id = text(said.get("threadId"))
            for key, question in list(self._open.items()):
                if question.thread_id == thread_id:
                    self._close(key)

    def last_in(self, thread_id: str) -> Question | None:
        """Return what was asked last in a thread, and is not answered."""
        found = [each for each in self._open.values() if each.thread_id == thread_id]
        return found[-1] if found else None

    def forget(self) -> None:
        """Take it that nothing is asked: the server is out of hearing."""
        self._open.clear()

    def _close(self, key: str) -> None:
        if (question := self._open.pop(key, None)) is not None:
            question.is_resolved = True


def dialog_of(question: Question) -> Dialog | None:
    """Return what is asked, in words; None if it is not known how that is answered."""
    said = question.params
    match question.method:
        case "item/commandExecution/requestApproval" if command := _command(said):
            lines = ["Would you like to run the following command?", _reason(said), f"$ {command}"]
        case "item/fileChange/requestApproval":
            lines = ["Would you like to make the following edits?", _reason(said)]
        case "item/tool/requestUserInput" if (one := _only_one(said)) is not None:
            options = _options(one)
            return Dialog(
                id=question.name,
                text="\n".join([text(one.get("question")), *_numbered(options)]),
                answers=tuple(f"{number}: {each}" for number, each in enumerate(options, 1)),
                takes_text=not options or one.get("isOther") is True,
            )
        case _:
            return None
    decisions = [each for each in Decision if _is_possible(each, said)]
    return Dialog(
        id=question.name,
        text="\n".join(filter(None, lines)),
        answers=tuple(each.value for each in decisions),
    )


def result_of(question: Question, said: str) -> dict[str, Any] | None:
    """Return the answer as the server wants it; None if it is none of what can be answered."""
    if question.method in (COMMAND, PATCH):
        decision = decision_of(said)
        if decision is None or not _is_possible(decision, question.params):
            return None
        return {"decision": _DECISIONS[decision]}
    one = _only_one(question.params)
    if question.method != INPUT or one is None:
        return None
    options = _options(one)
    place = chosen(options, said)
    if place is None and options and one.get("isOther") is not True:
        return None
    answer = options[place] if place is not None else said.strip()
    return {"answers": {text(one.get("id")): {"answers": [answer]}}} if answer else None


def _is_possible(decision: Decision, said: dict[str, Any]) -> bool:
    """Whether a decision can be made. That something is not to be done can always be said."""
    available = said.get("availableDecisions")
    if decision is Decision.NO:
        return True
    if not isinstance(available, list):
        return decision is Decision.YES
    return _DECISIONS[decision] in available


def _command(said: dict[str, Any]) -> str:
    found = [text(mapping(each).get("command")) for each in _list(said.get("commandActions"))]
    return "\n  ".join(filter(None, found)) or text(said.get("command"))


def _reason(said: dict[str, Any]) -> str:
    reason = text(said.get("reason"))
    return f"Reason: {reason}" if reason else ""


def _only_one(said: dict[str, Any]) -> dict[str, Any] | None:
    questions = _list(said.get("questions"))
    found = mapping(questions[0]) if len(questions) == 1 else {}
    return found if text(found.get("id")) else None


def _options(one: dict[str, Any]) -> list[str]:
    labels = [text(mapping(each).get("label")) for each in _list(one.get("options"))]
    return labels if all(labels) else []


def _numbered(options: list[str]) -> list[str]:
    return [f"{number}. {each}" for number, each in enumerate(options, 1)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
