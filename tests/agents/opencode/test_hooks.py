"""What our plugin in opencode tells, and what of it means anything."""

from typing import Any

import pytest

from bullpen.agents.hooks import PROGRAMS
from bullpen.agents.providers.opencode.hooks import translate
from bullpen.model.states import Provider
from tests.agents.opencode.recorded import deliveries

EVENTS: dict[str, dict[str, Any]] = {
    "session.created": {"title": "New session"},
    "session.updated": {"title": "Fix the tests"},
    "session.status": {"status": "busy"},
    "session.error": {"error": "APIError", "status_code": 500},
    "permission.asked": {"request_id": "p", "tool": "bash", "what": "touch x"},
    "permission.replied": {"request_id": "p", "reply": "once"},
    "question.asked": {"request_id": "q", "what": "colour?"},
    "question.replied": {"request_id": "q"},
    "question.rejected": {"request_id": "q"},
    "disposed": {},
}


def told(event: str, **fields: Any) -> str | None:
    payload = {"hook_event_name": event, "session_id": "s", "timestamp": 1794755367987, **fields}
    fact = translate(payload)
    return fact.event_type if fact else None


@pytest.mark.parametrize(
    ("event", "fields", "event_type"),
    [
        ("session.created", {}, "session.started"),
        ("session.status", {"status": "busy"}, "turn.started"),
        ("session.status", {"status": "retry", "attempt": 2}, "turn.started"),
        ("session.status", {"status": "idle"}, "turn.completed"),
        ("session.status", {"status": "dancing"}, None),
        ("session.status", {}, None),
        ("session.error", {"error": "MessageAbortedError"}, "turn.interrupted"),
        ("session.error", {"error": "APIError", "status_code": 400}, "turn.failed"),
        ("session.error", {"error": "APIError", "status_code": 429}, "turn.rate_limited"),
        ("session.error", {}, "turn.failed"),
        ("permission.asked", {"request_id": "r"}, "approval.requested"),
        ("permission.replied", {"reply": "always"}, "approval.granted"),
        ("permission.replied", {"reply": "reject"}, "tool.failed"),
        ("question.asked", {}, "question.asked"),
        ("question.rejected", {}, "question.answered"),
        ("disposed", {}, "session.ended"),
        ("session.compacted", {}, None),
    ],
)
def test_each_event_has_its_meaning(
    event: str, fields: dict[str, Any], event_type: str | None
) -> None:
    assert told(event, **fields) == event_type


def test_what_is_asked_is_known_by_its_request() -> None:
    payload = {"hook_event_name": "permission.asked", "session_id": "s"}
    fact = translate(payload | EVENTS["permission.asked"])
    assert fact is not None
    assert fact.source_event_id == fact.request_id == "p"
    assert fact.payload == {"hook": "permission.asked", "tool": "bash", "what": "touch x"}


def test_all_that_was_recorded_is_understood() -> None:
    facts = [translate(each["payload"]) for each in deliveries() if "payload" in each]
    assert all(fact and fact.at and fact.source_event_id for fact in facts)
    assert {fact.cwd for fact in facts if fact} == {"/home/dev/project"}


def test_the_plugin_tells_nothing_else() -> None:
    assert set(PROGRAMS[Provider.OPENCODE].events) == set(EVENTS)
    assert all(told(event, **fields) for event, fields in EVENTS.items())


@pytest.mark.parametrize("payload", [None, [], {}, {"hook_event_name": "disposed"}])
def test_what_is_not_from_the_plugin_is_refused(payload: object) -> None:
    with pytest.raises(ValueError, match="not from the plugin"):
        translate(payload)
