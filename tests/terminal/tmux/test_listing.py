"""Whatever panes are called, the list of them is read right or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.terminal.tmux.errors import TmuxProtocolError
from bullpen.terminal.tmux.listing import PaneInfo, list_command, parse_panes
from tests.terminal.tmux.listed import pane, printed

MARK = "|0123456789abcdef|"
texts = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: MARK not in text)
panes = st.lists(
    st.builds(
        pane,
        pane_id=st.integers(0, 99).map("%{}".format),
        session_name=texts,
        window_name=texts,
        title=texts,
        current_path=texts,
        is_dead=st.booleans(),
        dead_status=st.none() | st.integers(0, 255),
    ),
    max_size=3,
)


@pytest.mark.requirement("TMX-4")
@given(panes)
def test_a_list_is_read_back_whatever_the_names_in_it(expected: list[PaneInfo]) -> None:
    output = b"".join(printed(each, MARK) for each in expected)
    assert parse_panes(output, MARK) == tuple(expected)


@pytest.mark.requirement("TMX-4")
def test_the_odd_names_people_use_are_read_back() -> None:
    odd = pane(
        session_name="a|b\tc\nd",
        window_name="\N{OX} ;#{pid}",
        title="%end 1 2 1\n%3",
        current_path="/tmp/ \n|",
    )
    assert parse_panes(printed(odd, MARK) + printed(pane("%4"), MARK), MARK) == (odd, pane("%4"))


def test_bytes_that_are_no_text_are_replaced() -> None:
    output = printed(pane(title="TITLE"), MARK).replace(b"TITLE", b"\xff\xfe")
    assert parse_panes(output, MARK)[0].title == "\N{REPLACEMENT CHARACTER}" * 2


@pytest.mark.parametrize(
    "output",
    [
        b"garbage\n",
        printed(pane(), MARK)[:-8],
        printed(pane(), MARK) + printed(pane("%4"), MARK)[:150],
        printed(pane(), MARK).replace(b"%3", b"3"),
        printed(pane(), MARK).replace(b"|80|", b"|wide|"),
        printed(pane(), MARK).replace(b"|80|", b"|"),
    ],
    ids=["garbage", "cut-in-mark", "second-cut", "bad-id", "no-number", "field-missing"],
)
def test_a_list_that_is_not_whole_is_an_error_and_no_shorter_list(output: bytes) -> None:
    with pytest.raises(TmuxProtocolError):
        parse_panes(output, MARK)


def test_an_empty_list_is_one() -> None:
    assert parse_panes(b"", MARK) == ()


def test_every_pane_of_the_server_is_asked_for() -> None:
    assert list_command(MARK)[:3] == ("list-panes", "-a", "-F")


def test_a_pane_is_visible_in_the_active_window_of_an_attached_session() -> None:
    assert pane().is_visible
    assert not pane(session_attached=0).is_visible
    assert not pane(window_is_active=False).is_visible
