"""Whatever a server of Codex says, what is told of turns is told once and holds no nonsense."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.agents.providers.codex.shown import ShownThread
from bullpen.agents.providers.codex.turns import MOST_THOUGHTS, TurnReader
from bullpen.agents.providers.turn_news import Sign
from bullpen.model.turns import TurnEnd

IDS = st.sampled_from(["", "t1", "t2"])
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
METHODS = st.sampled_from(
    [
        "turn/started",
        "turn/completed",
        "item/started",
        "item/completed",
        "thread/started",
        "thread/status/changed",
        "thread/goal/cleared",
        "thread/closed",
    ]
)
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(["userMessage", "agentMessage", "reasoning", "plan"]) | JUNK},
    optional={"id": IDS | JUNK, "text": JUNK, "content": JUNK, "summary": JUNK, "clientId": JUNK},
)
STATUSES = st.sampled_from(["inProgress", "completed", "interrupted", "failed"]) | JUNK
TURNS = st.fixed_dictionaries(
    {"id": IDS | JUNK}, optional={"status": STATUSES, "error": JUNK, "items": JUNK}
)
PARAMS = JUNK | st.fixed_dictionaries(
    {"threadId": IDS | JUNK, "turnId": IDS | JUNK},
    optional={"turn": TURNS | JUNK, "item": ITEMS | JUNK, "status": JUNK, "thread": TURNS | JUNK},
)


@settings(max_examples=50)
@given(said=st.lists(st.tuples(METHODS, PARAMS), max_size=12))
def test_no_notification_is_a_surprise_and_no_turn_ends_twice(said: list[tuple[str, Any]]) -> None:
    reader, shown = TurnReader(), ShownThread()
    news = []
    for method, params in said:
        shown.hear(method, params)
        if (heard := reader.hear(method, params)) is not None:
            news.append(heard)
    ended = [each.turn_id for each in news if each.sign is Sign.ENDED]
    assert len(ended) == len(set(ended))
    assert all(each.turn_id and each.session_id for each in news)
    assert shown.thread_id == "" or shown.thread_id not in shown.unknown


@settings(max_examples=50)
@given(turns=st.lists(TURNS | JUNK, max_size=5), is_active=st.booleans(), is_sure=st.booleans())
def test_what_was_looked_up_is_told_once(turns: list[Any], is_active: bool, is_sure: bool) -> None:
    reader = TurnReader()
    first = reader.recall("t1", turns, None, is_active=is_active, is_sure=is_sure)
    again = reader.recall("t1", turns, None, is_active=is_active, is_sure=is_sure)
    assert [each for each in again if each.turn is not None and each.turn.end] == []
    ended = [each.turn_id for each in first if each.sign is Sign.ENDED]
    assert len(ended) == len(set(ended))


def item(kind: str, method: str = "item/completed", **fields: Any) -> tuple[str, Any]:
    return method, {"threadId": "t", "turnId": "u", "item": {"type": kind, "id": "i", **fields}}


def ended(reader: TurnReader, **turn: Any) -> Any:
    turn = {"id": "u", "status": "completed", **turn}
    news = reader.hear("turn/completed", {"threadId": "t", "turn": turn})
    assert news is not None
    return news.turn


def test_an_answer_that_only_the_end_tells_is_taken_from_there() -> None:
    reader = TurnReader()
    said = {"type": "agentMessage", "id": "i", "text": "at last"}
    turn = ended(reader, items=[said])
    assert (turn.end, turn.text) == (TurnEnd.DONE, "at last")


def test_what_was_only_begun_to_be_said_is_no_answer() -> None:
    reader = TurnReader()
    reader.hear(*item("agentMessage", text="whole"))
    reader.hear(*item("agentMessage", "item/started", text="half"))
    assert ended(reader).text == "whole"


def test_thoughts_are_kept_up_to_their_limit() -> None:
    reader = TurnReader()
    for _ in range(3):
        reader.hear(*item("reasoning", summary=["x" * MOST_THOUGHTS]))
    assert len(ended(reader).thinking) == MOST_THOUGHTS


def test_a_server_that_failed_without_a_word_is_said_to_have() -> None:
    turn = ended(TurnReader(), status="failed")
    assert (turn.end, turn.text) == (TurnEnd.FAILED, "codex did not say why")
