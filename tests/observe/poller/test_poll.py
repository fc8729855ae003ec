"""When the poller tells of a pane: whatever is new, what must be told twice, and little else."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.states import Activity, Provider, SignatureClass
from bullpen.model.views import PanePlace, SignatureInputs
from bullpen.observe.hysteresis import idle_confirmation
from bullpen.observe.pane import PaneVerdict
from bullpen.observe.poll import (
    Pace,
    PaneWatch,
    PollReport,
    ProcessMark,
    Sight,
    place_of,
    report_of,
)
from bullpen.observe.reports import PaneReport
from bullpen.observe.signature import Refusal, Signature
from bullpen.terminal.rules.engine import Evidence, Loser, Verdict
from tests.terminal.tmux.listed import pane

START = datetime(2026, 1, 1, tzinfo=UTC)
PACE = Pace.of(1.0, refresh_seconds=10.0)
REFRESH_LOOKS = 10


def sight(
    activity: Activity | None = Activity.IDLE,
    *,
    provider: Provider = Provider.CLAUDE,
    rule: str = "prompt",
    ready: bool = False,
    evidence: str = "",
    **changes: Any,
) -> Sight:
    if activity is None:
        nobody = Signature(None, SignatureClass.NONE, 0.0, "nothing speaks for an agent")
        judged = PaneVerdict(nobody, None)
    else:
        signature = Signature(
            provider, SignatureClass.HEURISTIC, 1.0, "the process in front is 'x'"
        )
        verdict = Verdict(
            provider, activity, ready, "because", "empty", rule, (Evidence("bottom", evidence, 3),)
        )
        judged = PaneVerdict(signature, verdict)
    return Sight(judged=judged, place=changes.pop("place", PanePlace()), **changes)


def watch() -> PaneWatch:
    return PaneWatch(PACE, last_output_at=START)


def told(looks: list[Sight], *, seconds: float = 1.0) -> list[bool]:
    """Return of each look whether it is told of."""
    follower = watch()
    return [
        follower.see(each, START + timedelta(seconds=seconds * number))
        for number, each in enumerate(looks)
    ]


sights = st.builds(
    sight,
    st.sampled_from([None, None, Activity.IDLE, Activity.RUNNING, Activity.WAITING_APPROVAL]),
    ready=st.booleans(),
    rule=st.sampled_from(["prompt", "spinner"]),
    evidence=st.sampled_from(["1s", "2s"]),
    place=st.sampled_from([PanePlace(), PanePlace(current_path="/x"), PanePlace(width=9)]),
)
runs = st.lists(st.tuples(sights, st.integers(1, 15)), min_size=1, max_size=8).map(
    lambda runs: [each for each, count in runs for _ in range(count)]
)
gaps = st.sampled_from([0.5, 1.0, 3.0])


@given(looks=runs)
def test_whatever_is_new_is_told_at_once(looks: list[Sight]) -> None:
    decided = told(looks)
    last: object = None
    for each, is_told in zip(looks, decided, strict=True):
        if each.shown != last:
            assert is_told
        last = each.shown


@given(looks=runs, gap=gaps)
def test_nothing_goes_untold_for_longer_than_the_refresh(looks: list[Sight], gap: float) -> None:
    since = 0.0
    for is_told in told(looks, seconds=gap):
        since = 0.0 if is_told else since + gap
        assert since < 10.0


@pytest.mark.requirement("HYS-4")
@given(looks=runs)
def test_the_first_two_looks_without_an_agent_are_told(looks: list[Sight]) -> None:
    streak = 0
    for each, is_told in zip(looks, told(looks), strict=True):
        streak = streak + 1 if each.doing is None else 0
        if streak in (1, 2):
            assert is_told


@given(looks=runs, gap=gaps)
def test_what_an_agent_does_is_told_twice_and_again_when_it_is_to_be_believed(
    looks: list[Sight], gap: float
) -> None:
    decided = told(looks, seconds=gap)
    confirm = idle_confirmation(timedelta(seconds=1)).total_seconds()
    first, is_confirmed = 0, False
    for number, each in enumerate(looks):
        if each.doing != looks[first].doing:
            first, is_confirmed = number, False
        if number - first < 2:
            assert decided[number]
        if not is_confirmed and (number - first) * gap >= confirm:
            assert decided[number]
            is_confirmed = True


@given(each=sights, count=st.integers(1, 200))
def test_a_pane_that_stays_as_it_is_is_hardly_told_of(each: Sight, count: int) -> None:
    assert sum(told([each] * count)) <= 3 + count / REFRESH_LOOKS


@given(looks=runs)
def test_how_often_the_same_was_seen_is_counted(looks: list[Sight]) -> None:
    follower = watch()
    streak = 0
    before: object = ()
    for number, each in enumerate(looks):
        now = START + timedelta(seconds=number)
        streak = streak + 1 if each.doing == before else 1
        before = each.doing
        follower.see(each, now)
        assert follower.streak == streak
        assert follower.no_agent_streak == (streak if each.doing is None else 0)
        assert follower.since == now - timedelta(seconds=streak - 1)


@pytest.mark.parametrize(
    "change",
    [
        {"ready": True},
        {"rule": "other"},
        {"activity": Activity.RUNNING},
        {"provider": Provider.CODEX},
        {"place": PanePlace(title="a new title")},
        {"place": PanePlace(is_visible=True)},
        {"place": PanePlace(height=9)},
        {"processes": (ProcessMark(1, "2"),)},
        {"agent": ProcessMark(1, "2")},
        {"is_front_shell": True},
    ],
    ids=str,
)
def test_each_thing_a_reader_could_see_is_worth_telling(change: dict[str, Any]) -> None:
    quiet = [sight()] * 6
    assert told([*quiet, sight()])[-1] is False
    assert told([*quiet, sight(**change)])[-1] is True


@pytest.mark.parametrize(
    "change",
    [
        {"evidence": "Thinking… 13s"},
        {"place": PanePlace(title="⠐ Fix it")},
    ],
    ids=str,
)
def test_what_changes_with_every_look_is_not(change: dict[str, Any]) -> None:
    before = sight(evidence="Thinking… 12s", place=PanePlace(title="⠂ Fix it"))
    assert told([*[before] * 6, sight(**{"place": before.place, **change})])[-1] is False


def test_a_title_of_nothing_but_a_spinner_is_no_title() -> None:
    looks = [sight(place=PanePlace(title=title)) for title in "⠂⠐⠂⠐⠂⠐⠂⠐"]
    assert sum(told(looks)) == 3


def test_a_clock_that_is_set_back_keeps_nothing_untold() -> None:
    follower = watch()
    for number in range(6):
        follower.see(sight(), START + timedelta(seconds=number))
    assert follower.see(sight(), START - timedelta(hours=1))


def test_of_whom_a_pane_was_is_remembered_when_nobody_is_in_it() -> None:
    follower = watch()
    providers = []
    for each in (sight(None), sight(provider=Provider.GEMINI), sight(None)):
        follower.see(each, START)
        providers.append(follower.provider)
    assert providers == [Provider.OTHER, Provider.GEMINI, Provider.GEMINI]


# ---------------------------------------------------------------------------------- what is told


def test_a_report_tells_who_does_what_and_why() -> None:
    follower = watch()
    losers = tuple(Loser(f"rule{number}", Activity.ERROR, "outranked") for number in range(9))
    seen = sight(
        Activity.WAITING_APPROVAL,
        rule="approval",
        evidence="❯ 1. Yes",
        processes=(ProcessMark(7, "70"), ProcessMark(8, "80")),
        agent=ProcessMark(8, "80"),
    )
    assert seen.judged.verdict is not None
    verdict = msgspec.structs.replace(seen.judged.verdict, losers=losers)
    seen = msgspec.structs.replace(seen, judged=PaneVerdict(seen.judged.signature, verdict))
    follower.see(seen, START)
    follower.see(seen, START + timedelta(seconds=1))
    report = report_of(seen, follower)
    assert report.provider is Provider.CLAUDE
    assert report.signature.confidence == 1.0
    assert report.screen is not None
    assert (report.screen.rule, report.screen.evidence[0].text) == ("approval", "❯ 1. Yes")
    assert len(report.screen.losers) == 5
    assert (report.pids, report.agent) == ((7, 8), ProcessMark(8, "80"))
    assert (report.streak, report.since, report.no_agent_streak) == (2, START, 0)
    assert seen.event_type == "activity.waiting_approval"


@pytest.mark.requirement("PL-6", "SIG-9")
def test_a_report_of_nobody_tells_why_somebody_was_refused() -> None:
    follower = watch()
    refused = Signature(
        None,
        SignatureClass.NONE,
        0.0,
        "the title is 'Claude', but a title alone is no evidence",
        SignatureInputs(title_match=True),
        Refusal.GUARD_REJECTED,
    )
    seen = Sight(judged=PaneVerdict(refused, None), place=PanePlace(), is_agent_gone=True)
    follower.see(seen, START)
    report = report_of(seen, follower)
    assert seen.event_type == "pane.unmanaged"
    assert report.signature.refusal == "signature_guard_rejected"
    assert (report.no_agent_streak, report.is_agent_gone, report.screen) == (1, True, None)
    assert report.pids is None


def test_a_report_comes_back_from_json_as_it_was_also_for_whoever_knows_less_of_it() -> None:
    follower = watch()
    seen = sight(processes=(ProcessMark(7, "70"),))
    follower.see(seen, START)
    report = report_of(seen, follower)
    builtins = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(report)))
    assert msgspec.convert(builtins, PollReport) == report
    assert msgspec.convert(builtins, PaneReport).pids == (7,)


@pytest.mark.requirement("TR-13")
def test_a_pane_of_a_linked_window_is_where_it_can_be_seen_and_also_elsewhere() -> None:
    place = place_of(
        [
            pane(session_id="$1", session_name="one", session_attached=0),
            pane(session_id="$2", session_name="two", window_is_active=False),
            pane(session_id="$3", session_name="three", window_index=4),
            pane(session_id="$3", session_name="three", window_index=5),
        ],
        "/tmp/s",
    )
    assert (place.session_name, place.window_index, place.is_visible) == ("three", 4, True)
    assert place.also_in == ("one", "two")
    hidden = place_of([pane(session_attached=0, session_name="one")], "/tmp/s")
    assert (hidden.session_name, hidden.is_visible, hidden.tmux_socket) == ("one", False, "/tmp/s")


@pytest.mark.requirement("TTL-6", "TTL-7")
def test_the_name_of_the_machine_is_no_title() -> None:
    names = frozenset(["box.example", "box"])
    for title in names:
        assert place_of([pane(title=title)], "/tmp/s", names).title == ""
    assert place_of([pane(title="box of tricks")], "/tmp/s", names).title == "box of tricks"
