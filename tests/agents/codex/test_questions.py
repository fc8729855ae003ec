"""What an app server asks its clients, and how that is answered."""

from typing import Any

import pytest

from bullpen.agents.providers.codex.questions import Question, Questions, dialog_of, result_of

COMMAND = {
    "kind": "command",
    "threadId": "t1",
    "turnId": "u1",
    "itemId": "call_47",
    "reason": "needs to run outside the sandbox",
    "command": "/bin/bash -lc 'touch esc.txt'",
    "commandActions": [{"type": "unknown", "command": "touch esc.txt"}],
    "availableDecisions": ["accept", {"acceptWithExecpolicyAmendment": {}}, "cancel"],
}
INPUT = {
    "threadId": "t1",
    "turnId": "u1",
    "itemId": "call_343",
    "questions": [
        {
            "id": "color",
            "question": "Which color?",
            "isOther": True,
            "options": [{"label": "Red (Recommended)"}, {"label": "Blue"}],
        }
    ],
}


def question(method: str, params: Any) -> Question:
    return Question(0, method, params)


@pytest.mark.requirement("a2a:approval")
def test_a_command_is_told_with_its_reason_and_allowed_or_not() -> None:
    asked = question("item/commandExecution/requestApproval", COMMAND)
    dialog = dialog_of(asked)
    assert dialog is not None
    assert dialog.text.split("\n") == [
        "Would you like to run the following command?",
        "Reason: needs to run outside the sandbox",
        "$ touch esc.txt",
    ]
    assert (dialog.answers, dialog.takes_text) == (("yes", "no"), False)
    assert result_of(asked, "Yes") == {"decision": "accept"}
    assert result_of(asked, "no") == {"decision": "decline"}
    for said in ("always", "1", "touch esc.txt", ""):
        assert result_of(asked, said) is None
    freely = {**COMMAND, "availableDecisions": ["accept", "acceptForSession", "decline"]}
    asked = question("item/commandExecution/requestApproval", freely)
    assert result_of(asked, "always") == {"decision": "acceptForSession"}


@pytest.mark.requirement("a2a:approval")
def test_a_question_is_answered_by_a_choice_or_with_other_words_where_it_takes_them() -> None:
    asked = question("item/tool/requestUserInput", INPUT)
    dialog = dialog_of(asked)
    assert dialog is not None
    assert dialog.text == "Which color?\n1. Red (Recommended)\n2. Blue"
    assert (dialog.answers, dialog.takes_text) == (("1: Red (Recommended)", "2: Blue"), True)
    for said, answer in (("2", "Blue"), ("blue", "Blue"), ("green", "green")):
        assert result_of(asked, said) == {"answers": {"color": {"answers": [answer]}}}
    assert result_of(asked, " ") is None
    [one] = INPUT["questions"]
    assert isinstance(one, dict)
    strict = question("item/tool/requestUserInput", {"questions": [one | {"isOther": False}]})
    assert result_of(strict, "green") is None


@pytest.mark.requirement("a2a:approval")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("mcpServer/elicitation/request", {"threadId": "t1"}),
        ("item/tool/requestUserInput", {"questions": [{"id": "a"}, {"id": "b"}]}),
        ("item/tool/requestUserInput", {"questions": "no"}),
        ("item/commandExecution/requestApproval", None),
    ],
    ids=["form", "two-questions", "no-questions", "nothing"],
)
def test_what_is_not_understood_is_not_answered(method: str, params: Any) -> None:
    assert dialog_of(question(method, params)) is None


@pytest.mark.requirement("a2a:approval")
def test_a_question_is_open_until_it_is_resolved_or_its_turn_ends() -> None:
    asked = Questions()
    asked.ask(0, "item/fileChange/requestApproval", {"threadId": "t1"})
    asked.ask(1, "item/fileChange/requestApproval", {"threadId": "t1"})
    asked.ask("1", "item/fileChange/requestApproval", {"threadId": "t2"})
    last = asked.last_in("t1")
    assert last is not None
    assert last.request_id == 1
    asked.hear("serverRequest/resolved", {"threadId": "t1", "requestId": 1})
    assert last.is_resolved
    first = asked.last_in("t1")
    assert first is not None
    assert first.request_id == 0
    asked.hear("turn/completed", {"threadId": "t1", "turn": {}})
    assert asked.last_in("t1") is None
    assert asked.last_in("t2") is not None
