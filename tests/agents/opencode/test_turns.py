"""Whatever opencode's server says, what is told of turns is told once and holds no nonsense."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.agents.providers.opencode.turns import SessionReader, message_id, shown_session
from bullpen.agents.providers.turn_news import Sign

JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
IDS = st.sampled_from(["", "a", "b"]) | JUNK
KINDS = st.sampled_from(
    [
        "session.created",
        "session.status",
        "session.idle",
        "session.error",
        "message.updated",
        "message.part.updated",
        "permission.asked",
        "permission.replied",
        "question.rejected",
    ]
)
INFO = st.fixed_dictionaries(
    {"id": IDS, "role": st.sampled_from(["user", "assistant"]) | JUNK},
    optional={"parentID": IDS, "finish": JUNK, "error": JUNK},
)
PART = st.fixed_dictionaries(
    {"id": IDS, "messageID": IDS, "type": st.sampled_from(["text", "reasoning"]) | JUNK},
    optional={"text": JUNK, "synthetic": JUNK},
)
STATUS = st.fixed_dictionaries({"type": st.sampled_from(["busy", "idle", "retry"]) | JUNK})
SAID = JUNK | st.fixed_dictionaries(
    {"sessionID": IDS},
    optional={"info": INFO | JUNK, "part": PART | JUNK, "status": STATUS | JUNK, "id": IDS},
)
EVENTS = JUNK | st.fixed_dictionaries({"type": KINDS | JUNK, "properties": SAID})


@settings(max_examples=50)
@given(events=st.lists(EVENTS, max_size=12))
def test_no_event_is_a_surprise_and_no_turn_ends_twice(events: list[Any]) -> None:
    reader = SessionReader()
    news = [each for event in events for each in reader.hear(event)]
    ended = [each.turn_id for each in news if each.sign is Sign.ENDED]
    assert len(ended) == len(set(ended))


@settings(max_examples=50)
@given(
    messages=st.lists(
        JUNK | st.fixed_dictionaries({"info": INFO, "parts": st.lists(PART) | JUNK}), max_size=5
    ),
    statuses=JUNK,
    dialogs=st.lists(JUNK),
)
def test_what_was_looked_up_is_told_once(messages: Any, statuses: Any, dialogs: Any) -> None:
    reader = SessionReader()
    reader.begin(statuses, dialogs)
    reader.recall(messages, {"a", "b"}, is_over=True)
    assert reader.recall(messages, {"a", "b"}, is_over=True) == []


@settings(max_examples=50)
@given(listed=st.lists(JUNK | INFO), title=st.text() | st.just("OC | a"), used=st.text())
def test_any_list_of_sessions_can_be_looked_through(listed: Any, title: str, used: str) -> None:
    shown = shown_session(listed, title, used)
    assert shown is None or shown.session_id


@pytest.mark.requirement("door:opencode")
def test_an_id_is_made_as_opencode_makes_its_own() -> None:
    # Of a message that opencode 1.18.33 made at that time.
    assert message_id(1794763111443, "G0CyNJGIkkf1ag") == "msg_1e037bc13001G0CyNJGIkkf1ag"
