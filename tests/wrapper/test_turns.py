"""A turn is over when its prompt is back and stays, and never because it looked so for a moment."""

import pytest

from bullpen.model.states import Activity
from bullpen.terminal.context import OutputContext
from bullpen.wrapper.pace import Pace
from bullpen.wrapper.reading import Reading
from bullpen.wrapper.status import Status, compile_idle, status_of
from bullpen.wrapper.turns import LineTurn, ScreenTurn, TurnEnd

PACE = Pace(settle=0.3, unseen=2.0, prompt=0.04, other_prompt=0.4, silence=30.0)


def screen(activity: Activity, prompt: str = "empty", line: str = "") -> Reading:
    return Reading(
        activity=activity, status=status_of(activity), prompt=prompt, why="a rule", line=line
    )


def look(turn: ScreenTurn, activity: Activity, now: float, *, changed_at: float = 0.0) -> object:
    done = turn.look(screen(activity), changed_at, changed_at, now, PACE)
    return round(done, 3) if isinstance(done, float) else done


def test_a_screen_that_flickers_does_not_end_a_turn() -> None:
    turn = ScreenTurn("hello", 0.0)
    assert look(turn, Activity.RUNNING, 1.0) is None
    assert "at work" in turn.seen
    assert look(turn, Activity.IDLE, 2.0) == 0.3
    assert look(turn, Activity.RUNNING, 2.1) is None
    assert look(turn, Activity.IDLE, 2.2) == 0.3
    assert look(turn, Activity.IDLE, 2.4, changed_at=2.4) == 0.3  # something was painted
    done = look(turn, Activity.IDLE, 2.7, changed_at=2.4)
    assert isinstance(done, TurnEnd)
    assert (done.how, done.is_ok) == ("prompt_back", True)


def test_a_screen_that_never_stands_still_ends_a_turn_all_the_same() -> None:
    turn = ScreenTurn("hello", 0.0)
    look(turn, Activity.RUNNING, 0.0)
    assert look(turn, Activity.IDLE, 1.0, changed_at=1.0) == 0.3
    assert look(turn, Activity.IDLE, 2.7, changed_at=2.7) == 0.1
    assert isinstance(look(turn, Activity.IDLE, 2.81, changed_at=2.81), TurnEnd)


def test_one_that_was_never_seen_at_work_is_given_more_time() -> None:
    turn = ScreenTurn("hello", 0.0)
    assert look(turn, Activity.IDLE, 1.0) == 2.0
    assert not turn.seen
    assert isinstance(look(turn, Activity.IDLE, 3.0), TurnEnd)


def test_neither_a_dialog_nor_work_is_ended_by_silence() -> None:
    turn = ScreenTurn("hello", 0.0)
    for activity in (Activity.RUNNING, Activity.WAITING_APPROVAL, Activity.WAITING_INPUT):
        assert turn.look(screen(activity, "absent"), 0.0, 0.0, 1e6, PACE) is None
    done = turn.look(screen(Activity.UNKNOWN, "absent"), 0.0, 0.0, 30.0, PACE)
    assert isinstance(done, TurnEnd)
    assert done.how == "silence"


def test_an_error_on_the_screen_is_no_answer() -> None:
    turn = ScreenTurn("hello", 0.0)
    look(turn, Activity.RUNNING, 0.0)
    reading = screen(Activity.RATE_LIMITED, line="429: slow down")
    assert turn.look(reading, 0.0, 0.0, 1.0, PACE) == pytest.approx(0.3)
    done = turn.look(reading, 0.0, 0.0, 1.31, PACE)
    assert done == TurnEnd("rate_limit", False, "429: slow down")


def line_turn() -> tuple[LineTurn, OutputContext]:
    context = OutputContext()
    context.feed(b"ann> ")
    turn = LineTurn(context.open_cut(), context, "hello", "ann> ", compile_idle("> $"))
    return turn, context


IDLE, BUSY = Reading.of(Status.IDLE), Reading.of(Status.BUSY)


def test_the_prompt_of_before_is_believed_sooner_than_what_only_looks_like_one() -> None:
    turn, context = line_turn()
    context.feed(b"hello\r\na > ")
    assert turn.look(IDLE, 1.0, 1.0, PACE) == pytest.approx(0.4)
    context.feed(b"b\r\nann> ")
    assert turn.look(IDLE, 1.1, 1.1, PACE) == pytest.approx(0.04)
    assert isinstance(turn.look(IDLE, 1.1, 1.15, PACE), TurnEnd)
    assert turn.text() == "a > b"


def test_what_is_only_echoed_was_not_seen() -> None:
    turn, context = line_turn()
    assert turn.look(IDLE, 0.0, 1e6, PACE) is None  # the prompt of before is no end
    context.feed(b"hello\r\n")
    assert turn.has_echo
    assert not turn.seen
    assert turn.look(BUSY, 1.0, 1e6, PACE) is None  # it may take its time
    context.feed(b"well")
    assert turn.seen
    assert turn.look(BUSY, 2.0, 3.0, PACE) == 29.0
    assert isinstance(turn.look(BUSY, 2.0, 32.0, PACE), TurnEnd)
