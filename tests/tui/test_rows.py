"""Who has a line on the board, in which order, and that no line is ever broken."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.appearance import cell_width
from bullpen.model.states import Activity, HealthStatus, Presence, Provider
from bullpen.model.views import AgentState, PanePlace, PaneState, Summary
from bullpen.testing.daemon import agent_state, pane_state
from bullpen.tui.lines import STATE_WIDTH, columns_for, line_spans, plain, totals
from bullpen.tui.rows import (
    Filter,
    Heading,
    Line,
    Row,
    board_lines,
    next_waiting,
    parse_filter,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)

texts = st.text(max_size=40)
names = st.text(min_size=1, max_size=30)
places = st.builds(
    PanePlace,
    tmux_socket=st.sampled_from(["/tmp/a", "/tmp/b"]),
    session_name=st.sampled_from(["blog", "work", "a\nb"]),
    window_index=st.integers(0, 3),
    pane_index=st.integers(0, 3),
    current_command=texts,
    title=texts,
)
agents = st.builds(
    lambda name, activity, place, title, cwd, age: agent_state(
        *(name, activity), place=place, title=title, cwd=cwd, since=NOW - timedelta(seconds=age)
    ),
    *(names, st.sampled_from(Activity), st.none() | places, texts, texts),
    st.floats(-10, 1e8),
)
panes = st.builds(
    lambda number, place, presence: pane_state(f"%{number}", place=place, presence=presence),
    *(st.integers(0, 50), places, st.sampled_from(Presence)),
)


def unique(given_agents: list[AgentState]) -> list[AgentState]:
    return list({each.name: each for each in given_agents}.values())


def rows(lines: list[Line]) -> list[Row]:
    return [line for line in lines if isinstance(line, Row)]


@given(st.lists(agents, max_size=12), st.lists(panes, max_size=6))
def test_everybody_has_one_line_below_one_heading(
    some: list[AgentState], others: list[PaneState]
) -> None:
    some = unique(some)
    lines = board_lines(some, others)
    assert sorted(row.agent.name for row in rows(lines) if row.agent) == sorted(
        agent.name for agent in some
    )
    bare = [each for each in others if each.presence is Presence.UNMANAGED]
    assert sum(row.pane is not None for row in rows(lines)) == len(bare)
    headings = [line for line in lines if isinstance(line, Heading)]
    assert len({heading.title for heading in headings}) == len(headings)
    assert sum(heading.agents for heading in headings) == len(some)
    assert sum(heading.waiting for heading in headings) == sum(
        agent.activity.is_waiting for agent in some
    )
    assert not lines or isinstance(lines[0], Heading)
    is_outside = [row.place is None for row in rows(lines)]
    assert is_outside == sorted(is_outside)


@given(st.lists(agents, max_size=4), st.lists(panes, max_size=2), st.integers(0, 200), st.data())
def test_a_line_is_as_wide_as_the_terminal_and_printable(
    some: list[AgentState], others: list[PaneState], width: int, data: st.DataObject
) -> None:
    lines = board_lines(unique(some), others, known=lambda path: (path, path[:5]))
    columns = columns_for(width, lines)
    for line in lines:
        spans = line_spans(line, columns, NOW, is_selected=data.draw(st.booleans()))
        text = plain(spans)
        assert cell_width(text) == width
        assert text.isprintable()


@given(st.lists(agents, max_size=8))
def test_the_next_who_waits_goes_round_by_all_of_them(some: list[AgentState]) -> None:
    lines = board_lines(unique(some))
    waiting = [row.key for row in rows(lines) if row.is_waiting]
    key, seen = None, []
    for _ in waiting:
        key = next_waiting(lines, key)
        seen.append(key)
    assert seen == waiting
    assert next_waiting(lines, key) == (waiting[0] if waiting else None)


@given(texts)
def test_anything_can_be_typed_into_the_filter(text: str) -> None:
    lines = board_lines([agent_state("codex-1", pane="%1")], wanted=parse_filter(text))
    assert len(lines) in (0, 2)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ["a", "b", "c"]),
        ("  ", ["a", "b", "c"]),
        ("CART", ["a"]),
        ("cart shop", ["a"]),
        ("cart blog", []),
        ("blog", ["b"]),
        ("topic", ["c"]),
        ("provider:", ["a", "b", "c"]),
        ("provider:co", ["a", "b"]),
        ("provider:codex provider:claude", ["b", "c"]),
        ("state:waiting", ["b", "c"]),
        ("state:waiting_input", ["c"]),
        ("state:running", ["a"]),
        ("provider:codex state:running", []),
        ("note:x", []),
        ("%2", ["b"]),
    ],
)
def test_the_filter_finds_who_is_meant(text: str, found: list[str]) -> None:
    some = [
        agent_state(
            *("a", Activity.RUNNING),
            pane="%1",
            provider=Provider.COPILOT,
            title="The cart",
            cwd="/shop",
        ),
        agent_state(
            *("b", Activity.WAITING_APPROVAL),
            pane="%2",
            provider=Provider.CODEX,
            tmux_session="blog",
        ),
        agent_state("c", Activity.WAITING_INPUT, provider=Provider.CLAUDE, cwd="/c"),
    ]
    lines = board_lines(
        some, wanted=parse_filter(text), known=lambda path: (path, "topic" if path == "/c" else "")
    )
    assert sorted(row.agent.name for row in rows(lines) if row.agent) == found


def test_panes_without_an_agent_are_found_by_words_only() -> None:
    pane = pane_state("%7", title="notes")
    assert len(board_lines([], [pane], wanted=parse_filter("notes"))) == 2
    assert board_lines([], [pane], wanted=Filter(states=("idle",))) == []


def test_servers_are_told_apart_where_there_are_several() -> None:
    one = agent_state("a", pane="%1")
    there = PanePlace(tmux_socket="/tmp/other", session_name="work")
    other = agent_state("b", pane="%1", place=there)
    headings = [line.title for line in board_lines([one, other]) if isinstance(line, Heading)]
    assert headings == ["work (/tmp/other)", "work (/tmp/tmux-0/default)"]


@pytest.mark.parametrize(
    ("width", "shown"), [(60, ""), (72, "codex"), (80, "codex /x"), (100, "codex /x fix")]
)
def test_columns_give_way_from_the_right(width: int, shown: str) -> None:
    lines = board_lines([agent_state("it", provider=Provider.CODEX)], known=lambda _: ("/x", "fix"))
    text = plain(line_spans(lines[1], columns_for(width, lines), NOW))
    behind = text[2 + STATE_WIDTH :].partition("it")[2]
    assert " ".join(behind.split()) == shown


def test_the_numbers_name_every_state_and_whichever_source_is_not_well() -> None:
    some = [
        agent_state("a", Activity.WAITING_INPUT),
        agent_state("b", Activity.WAITING_APPROVAL),
        agent_state("c", Activity.ERROR),
    ]
    well = Summary(sources={"poller": HealthStatus.HEALTHY, "gemini": HealthStatus.HEALTHY})
    assert plain(totals(some, well)) == "3 agents  ◆ 2 waiting  ✗ 1 error  ✓ 2 sources healthy"
    ill = Summary(sources={"poller": HealthStatus.DOWN, "gemini": HealthStatus.HEALTHY})
    assert plain(totals([], ill)) == "0 agents  ✗ 1 source down"
