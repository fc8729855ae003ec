"""What we say follows from what was observed, whoever said it and in whatever order it came."""

import random
from datetime import timedelta
from typing import Any

import pytest

from bullpen.model.observations import Observation
from bullpen.model.reasons import Reason
from bullpen.model.records import Restored
from bullpen.model.states import (
    Activity,
    BindingState,
    EvidenceMode,
    EvidenceTier,
    Presence,
    Provider,
    SignatureClass,
    SourceKind,
)
from bullpen.observe.explain import explain_pane
from bullpen.observe.projection import CasConflict, Projection
from tests.observe.projection.world import World, pane, transitions

RUNNING, IDLE, APPROVAL = Activity.RUNNING, Activity.IDLE, Activity.WAITING_APPROVAL


@pytest.fixture
def world() -> World:
    return World()


# ------------------------------------------------------------------------------------------- panes


@pytest.mark.requirement("PL-6", "DM-2", "DM-3", "BND-1")
def test_a_pane_without_an_agent_is_known_and_unmanaged(world: World) -> None:
    world.apply(world.look(pane(), None))
    state = world.pane(pane())
    assert state.presence is Presence.UNMANAGED
    assert state.evidence_mode is EvidenceMode.NONE
    assert state.signature_class is SignatureClass.NONE
    assert world.projection.agents() == ()


@pytest.mark.requirement("BND-3", "IF-D7", "IF-D8", "DET-8", "DET-10")
def test_a_pane_that_looks_like_an_agents_has_one(world: World) -> None:
    step = world.apply(world.look(pane(), APPROVAL))
    state = world.pane(pane())
    assert state.binding_state is BindingState.MANAGED_HEURISTIC
    assert (state.provider, state.activity_state) == (Provider.CLAUDE, APPROVAL)
    assert (state.signature_class, state.signature_confidence) == (SignatureClass.HEURISTIC, 1.0)
    assert state.signature_reason
    assert transitions(step) == [("claude-1", Activity.UNKNOWN, APPROVAL)]


@pytest.mark.requirement("HYS-4", "BND-7", "TG-5")
def test_an_agent_is_gone_after_two_looks_that_found_nobody(world: World) -> None:
    world.apply(world.look(pane(), APPROVAL))
    world.apply(world.look(pane(), None, is_gone=True))
    assert world.pane(pane()).presence is Presence.MANAGED
    step = world.apply(world.look(pane(), None, is_gone=True))
    assert world.pane(pane()).presence is Presence.UNMANAGED
    assert world.pane(pane()).signature_class is SignatureClass.NONE
    assert transitions(step) == [("claude-1", APPROVAL, Activity.EXITED)]


@pytest.mark.requirement("Q7")
@pytest.mark.parametrize("silence", [0.0, 10.0], ids=["fresh", "stale"])
def test_a_process_that_is_gone_ends_what_it_said_of_itself(world: World, silence: float) -> None:
    world.apply(world.look(pane(), RUNNING, pids=[7]), world.said("tool.started", pid=7))
    world.silent[SourceKind.CLAUDE_HOOKS] = world.now
    world.wait(silence)
    for _ in range(2):
        world.apply(world.look(pane(), None, is_gone=True))
    assert world.pane(pane()).presence is Presence.UNMANAGED
    assert world.pane(pane()).session_key is None
    [session] = [each for each in world.projection.sessions() if each.session_key == "claude:one"]
    assert session.presence is Presence.UNMANAGED


def test_a_screen_that_is_misread_does_not_end_an_agent_that_speaks(world: World) -> None:
    world.apply(world.look(pane(), RUNNING, pids=[7]), world.said("tool.started", pid=7))
    for _ in range(3):
        world.apply(world.look(pane(), None, is_gone=False))
    assert world.pane(pane()).presence is Presence.MANAGED


def test_a_closed_pane_is_forgotten_and_its_agent_leaves(world: World) -> None:
    world.apply(world.look(pane(), RUNNING))
    step = world.apply(world.closed(pane()))
    assert world.projection.panes() == ()
    assert step.removed_panes == (pane(),)
    assert transitions(step) == [("claude-1", RUNNING, Activity.EXITED)]


def test_names_are_given_in_order_and_used_again(world: World) -> None:
    world.apply(world.look(pane(0), RUNNING), world.look(pane(1), RUNNING))
    assert world.names() == ["claude-1", "claude-2"]
    world.apply(world.closed(pane(0)))
    world.apply(world.look(pane(2), RUNNING, provider=Provider.CODEX))
    world.apply(world.look(pane(3), RUNNING))
    assert sorted(world.names()) == ["claude-1", "claude-2", "codex-1"]


# ---------------------------------------------------------------------------------------- sessions


@pytest.mark.requirement("BND-4", "TG-6", "TTL-1", "SIG-1", "COR-2")
def test_an_agents_own_word_makes_the_pane_deterministic(world: World) -> None:
    world.apply(world.look(pane(), RUNNING, pids=[7]))
    world.apply(world.said("turn.completed", pid=7))
    state = world.pane(pane())
    assert state.binding_state is BindingState.MANAGED_DETERMINISTIC_FRESH
    assert state.signature_class is SignatureClass.DETERMINISTIC
    assert state.evidence_mode is EvidenceMode.DETERMINISTIC
    assert (state.activity_state, state.activity_source) == (IDLE, SourceKind.CLAUDE_HOOKS)
    assert state.session_key == "claude:one"


def test_a_pane_that_comes_to_be_known_later_is_found_then(world: World) -> None:
    world.apply(world.said("turn.completed", tmux_pane="%0", tmux_socket="/tmp/tmux/default"))
    assert world.names() == []
    world.apply(world.look(pane(), RUNNING))
    assert world.pane(pane()).session_key == "claude:one"


def test_a_pane_is_found_also_where_tmp_is_a_link(world: World) -> None:
    world.apply(world.look(pane(), RUNNING))
    there = "/private/tmp/tmux/default"  # so tmux tells it in its panes on macOS
    world.apply(world.said("turn.completed", tmux_pane="%0", tmux_socket=there))
    assert world.pane(pane()).session_key == "claude:one"
    wrapped = world.projection.records.wrapped
    wrapped.note("helper", [7], tmux_socket=there, pane_id="%0")
    assert wrapped.in_pane("/tmp/tmux/default", "%0") == "helper"
    assert wrapped.in_pane("/tmp/tmux/other", "%0") == ""
    assert wrapped.in_pane("/tmp/tmux/default", "%1") == ""


def test_an_agent_whose_pane_comes_to_be_known_later_is_the_same_agent(world: World) -> None:
    step = world.apply(world.said("session.started", tmux_pane="%0", pid=7))
    assert transitions(step) == [("claude-1", Activity.UNKNOWN, IDLE)]
    step = world.apply(world.look(pane(), IDLE, quiet=9, pids=[7]))
    assert transitions(step) == []
    assert [each.kind for each in step.changes if each.agent] == ["agent"]
    assert world.names() == ["claude-1"]
    assert world.agent().pane == pane()


@pytest.mark.requirement("COR-1", "COR-3", "TR-06")
def test_a_directory_leads_to_the_pane_with_the_programs_process(world: World) -> None:
    world.apply(
        world.look(pane(0), None, cwd="/home/ada/project"),
        world.look(pane(1), IDLE, provider=Provider.CODEX, has_process=False),
        world.look(pane(2), IDLE, provider=Provider.CODEX),
        world.look(pane(3), IDLE, provider=Provider.CLAUDE),
    )
    world.apply(codex(world, "codex:a", "thread.active", cwd="/home/ada/project/"))
    assert world.pane(pane(2)).session_key == "codex:a"
    assert world.pane(pane(2)).activity_state is RUNNING
    assert world.pane(pane(0)).presence is Presence.UNMANAGED
    assert world.pane(pane(3)).provider is Provider.CLAUDE


@pytest.mark.requirement("COR-4")
def test_of_two_threads_in_a_directory_the_active_one_has_the_pane(world: World) -> None:
    world.apply(world.look(pane(), IDLE, provider=Provider.CODEX))
    world.apply(codex(world, "codex:old", "thread.idle"))
    world.apply(codex(world, "codex:active", "thread.active"))
    assert world.pane(pane()).session_key == "codex:active"
    world.apply(codex(world, "codex:other", "thread.idle"))
    assert world.pane(pane()).session_key == "codex:active"


@pytest.mark.requirement("COR-4")
def test_of_two_idle_threads_the_newer_one_has_the_pane(world: World) -> None:
    world.apply(world.look(pane(), IDLE, provider=Provider.CODEX))
    newer = {"updated_at": "2026-11-15T11:59:00Z"}
    older = {"updated_at": "2026-11-15T11:00:00Z"}
    world.apply(codex(world, "codex:new", "thread.idle", payload=newer))
    world.apply(codex(world, "codex:old", "thread.idle", payload=older))
    assert world.pane(pane()).session_key == "codex:new"


@pytest.mark.requirement("COR-5")
def test_a_thread_without_a_pane_is_a_session_only(world: World) -> None:
    world.apply(codex(world, "codex:a", "thread.active", cwd="/elsewhere"))
    assert [each.session_key for each in world.projection.sessions()] == ["codex:a"]
    assert world.projection.panes() == ()
    assert world.names() == ["codex-1"]


def test_an_agent_that_another_one_started_does_not_speak_for_the_pane(world: World) -> None:
    world.apply(world.look(pane(), RUNNING, pids=[5, 7, 9]))
    world.apply(world.said("tool.started", pid=7))
    world.apply(world.said("turn.completed", session="claude:nested", pid=9))
    assert world.pane(pane()).session_key == "claude:one"
    assert world.pane(pane()).activity_state is RUNNING


def test_an_agent_below_another_that_says_nothing_does_not_speak_for_the_pane(
    world: World,
) -> None:
    def look() -> Observation:
        return world.look(pane(), RUNNING, provider=Provider.CODEX, pids=[5, 7, 8, 9], agent_pid=7)

    world.apply(look())
    world.apply(world.said("turn.completed", session="claude:nested", pid=9, tmux_pane="%0"))
    world.wait(1)
    world.apply(look())
    assert world.pane(pane()).provider is Provider.CODEX
    assert world.pane(pane()).activity_state is RUNNING
    assert world.names() == ["codex-1", "claude-1"]
    assert world.agent("claude-1").pane is None
    # What is above, or is of the same program, may speak: many start themselves once more.
    world.apply(codex(world, "codex:a", "thread.active", pid=9))
    assert world.pane(pane()).session_key == "codex:a"


def test_a_variable_does_not_put_an_agent_into_the_pane_of_another(world: World) -> None:
    """An editor that was started from the pane has an agent in it, say."""
    world.apply(world.look(pane(), RUNNING, provider=Provider.CODEX, pids=[5, 7], agent_pid=7))
    world.apply(world.said("turn.completed", session="claude:editor", pid=99, tmux_pane="%0"))
    assert world.pane(pane()).provider is Provider.CODEX
    assert world.names() == ["codex-1", "claude-1"]
    assert world.agent("claude-1").pane is None


@pytest.mark.requirement("TTL-1")
def test_a_second_session_in_a_pane_replaces_the_first(world: World) -> None:
    world.apply(world.look(pane(), RUNNING, pids=[7]))
    world.apply(world.said("session.named", payload={"title": "first"}, pid=7))
    world.apply(world.said("turn.completed", pid=7))
    assert world.pane(pane()).title == "first"
    world.apply(world.said("session.started", session="claude:two", pid=7))
    world.apply(world.said("session.named", session="claude:two", payload={"title": "second"}))
    assert world.pane(pane()).title == "second"
    assert world.names() == ["claude-1"]


@pytest.mark.requirement("TTL-4", "TTL-5", "TTL-6", "TTL-7", "TTL-8")
def test_a_title_is_the_best_there_is(world: World) -> None:
    world.apply(world.look(pane(), RUNNING, pids=[7], cwd=""))
    assert world.pane(pane()).title == "claude"
    world.apply(world.look(pane(), RUNNING, pids=[7], cwd="/home/ada/project"))
    assert world.pane(pane()).title == "project"
    world.apply(world.look(pane(), RUNNING, pids=[7], title="⠂ Fix the tests"))
    assert world.pane(pane()).title == "Fix the tests"
    world.apply(
        world.said("turn.started", pid=7), world.said("session.named", payload={"title": "named"})
    )
    assert world.pane(pane()).title == "named"
    # Another session without a name of its own: what the pane was called before is better than
    # what its terminal shows.
    world.apply(world.said("session.started", session="claude:two", pid=7))
    assert world.pane(pane()).title == "named"


@pytest.mark.requirement("TTL-2", "TTL-3")
def test_the_pane_of_the_latest_handshake_stands_for_a_session(world: World) -> None:
    world.apply(world.look(pane(0), RUNNING), world.look(pane(1), RUNNING))
    world.apply(world.said("turn.started", where=pane(0)))
    world.now += timedelta(seconds=1)
    world.apply(world.said("turn.started", where=pane(1)))
    [session] = [each for each in world.projection.sessions() if each.session_key == "claude:one"]
    assert session.representative_pane_instance_id == pane(1)


def test_a_farewell_takes_the_agent_away_and_its_dying_screen_does_not_bring_it_back(
    world: World,
) -> None:
    world.apply(world.look(pane(), IDLE, pids=[7]), world.said("turn.completed", pid=7))
    step = world.apply(world.said("session.ended", pid=7))
    assert transitions(step) == [("claude-1", IDLE, Activity.EXITED)]
    world.now += timedelta(seconds=1)
    world.apply(world.look(pane(), IDLE, pids=[7]))
    assert world.pane(pane()).presence is Presence.UNMANAGED
    # But whoever is there long after is somebody else.
    world.wait(5)
    assert world.pane(pane()).presence is Presence.MANAGED


def test_a_word_from_before_a_farewell_does_not_bring_the_agent_back(world: World) -> None:
    world.apply(world.said("turn.completed", pid=7, ago=3))
    world.apply(world.said("session.ended", pid=7, ago=1))
    late = SourceKind.CLAUDE_TRANSCRIPT
    world.apply(world.said("turn.completed", kind=late, pid=7, ago=2))
    assert world.projection.agents() == ()
    world.apply(world.said("session.started", pid=7))
    assert world.names() == ["claude-1"]


def test_agents_outside_of_tmux_are_seen_by_process_and_known_by_their_word(world: World) -> None:
    process = world.said(
        "activity.unknown",
        kind=SourceKind.POLLER,
        session="process:7:1",
        pid=7,
        tty="/dev/pts/9",
    )
    world.apply(process)
    [agent] = world.projection.agents()
    assert (agent.activity, agent.tty, agent.pane) == (Activity.UNKNOWN, "/dev/pts/9", None)
    world.apply(world.said("tool.started", pid=7, cwd="/home/ada/project"))
    [agent] = world.projection.agents()
    assert (agent.activity, agent.session_key) == (RUNNING, "claude:one")
    ended = world.said(
        "session.ended", kind=SourceKind.POLLER, session="process:7:1", pid=7, tty="/dev/pts/9"
    )
    world.apply(ended)
    assert world.projection.agents() == ()


def test_anybodys_own_agent_has_the_name_it_gives(world: World) -> None:
    world.apply(
        world.said(
            "activity.running",
            kind=SourceKind.REPORT,
            provider=Provider.OTHER,
            session="report:builder",
        )
    )
    assert world.names() == ["builder"]


def reported(world: World, event_type: str = "activity.running", **origin: Any) -> Observation:
    return world.said(
        event_type,
        kind=SourceKind.REPORT,
        provider=Provider.OTHER,
        session="report:builder",
        tmux_pane="%0",
        tmux_socket="/tmp/tmux/default",
        **origin,
    )


@pytest.mark.requirement("RES-12")
def test_anybodys_own_agent_in_a_pane_need_not_look_like_one(world: World) -> None:
    world.apply(world.look(pane(), None, pids=[5, 7], is_gone=True))
    world.apply(reported(world, pid=7))
    assert world.names() == ["builder"]
    for streak in (2, 3, 4):
        world.wait(1)
        world.apply(world.look(pane(), None, pids=[5, 7, 10 + streak], is_gone=True, streak=streak))
    assert world.agent("builder").activity is RUNNING
    assert world.agent("builder").pane == pane()
    step = world.apply(world.look(pane(), None, pids=[5], is_gone=True, streak=5))
    assert world.names() == []
    [gone] = [each.agent for each in step.changes if each.kind == "agent_removed"]
    assert gone is not None
    assert gone.reason == "no process of it is left"


@pytest.mark.requirement("RES-12")
@pytest.mark.parametrize("pid", [0, 99], ids=["unknown", "gone-at-once"])
def test_an_agent_that_a_short_lived_process_reports_belongs_to_the_pane(
    world: World, pid: int
) -> None:
    world.apply(world.look(pane(), None, pids=[5], is_gone=True))
    world.apply(reported(world, pid=pid))
    world.apply(world.look(pane(), None, pids=[5], is_gone=True, streak=2))
    assert world.names() == ["builder"]
    world.apply(reported(world, "session.ended", pid=pid))
    assert world.names() == []


@pytest.mark.requirement("RES-12")
def test_an_agent_with_hooks_may_be_called_as_it_likes(world: World) -> None:
    """A program that was renamed, or is started by something of the user's own."""
    world.apply(world.look(pane(), None, pids=[5, 7], is_gone=True))
    world.apply(world.said("turn.started", pid=7))
    world.apply(world.look(pane(), None, pids=[5, 7, 8], is_gone=True, streak=2))
    assert world.names() == ["claude-1"]
    world.apply(world.look(pane(), None, pids=[5], is_gone=True, streak=3))
    assert world.names() == []


# ----------------------------------------------------------------------------------- who is right


@pytest.mark.requirement("RES-6", "ERR-4", "RES-10")
def test_an_agents_own_word_goes_before_its_screen(world: World) -> None:
    world.apply(world.look(pane(), RUNNING, pids=[7]))
    world.now += timedelta(seconds=1)
    step = world.apply(
        world.said("approval.requested", pid=7), world.look(pane(), RUNNING, pids=[7])
    )
    assert world.pane(pane()).activity_state is APPROVAL
    assert world.pane(pane()).evidence_mode is EvidenceMode.DETERMINISTIC
    assert all(outcome.reason is None for outcome in step.outcomes)


@pytest.mark.requirement("RES-3", "RES-6")
@pytest.mark.parametrize(
    ("event_type", "activity"),
    [
        ("turn.started", RUNNING),
        ("approval.requested", APPROVAL),
        ("turn.completed", Activity.IDLE),
    ],
)
def test_a_screen_that_shows_nothing_yet_contradicts_nobody(
    world: World, event_type: str, activity: Activity
) -> None:
    world.apply(world.look(pane(), Activity.STARTING, pids=[7]))
    assert world.pane(pane()).activity_state is Activity.STARTING
    world.apply(world.said(event_type, pid=7))
    for _ in range(10):
        world.wait(1)
        world.apply(world.look(pane(), Activity.STARTING, pids=[7]))
    assert world.pane(pane()).activity_state is activity
    assert world.pane(pane()).evidence_mode is EvidenceMode.DETERMINISTIC


@pytest.mark.requirement("RES-9", "ERR-4")
def test_of_two_words_at_the_same_moment_rank_decides_and_the_loser_is_shown(world: World) -> None:
    world.apply(world.look(pane(), RUNNING, provider=Provider.CODEX))
    hooks = codex(world, "codex:a", "approval.requested", kind=SourceKind.CODEX_HOOKS)
    step = world.apply(codex(world, "codex:a", "thread.active"), hooks)
    assert world.pane(pane()).activity_state is RUNNING
    [suppressed] = [each for each in step.outcomes if each.reason]
    assert suppressed.reason is Reason.SOURCE_RANK_SUPPRESSED
    assert suppressed.event_id == hooks.event_id
    record = world.projection.records.panes[pane()]
    told = explain_pane(world.projection, record, world.links(), world.now)
    [loser] = [each for each in told.claims if each.source_kind is SourceKind.CODEX_HOOKS]
    assert loser.why == "codex_appserver ranks higher"
    assert told.claims[0].source_kind is SourceKind.CODEX_APPSERVER


@pytest.mark.requirement("Q8", "TR-03")
def test_a_word_holds_for_as_long_as_nothing_contradicts_it(world: World) -> None:
    world.apply(world.look(pane(), RUNNING, pids=[7]), world.said("tool.started", pid=7))
    for _ in range(20):
        world.wait(60)
        world.apply(world.look(pane(), Activity.UNKNOWN, pids=[7]))
    assert world.pane(pane()).activity_state is RUNNING
    assert world.pane(pane()).evidence_mode is EvidenceMode.DETERMINISTIC


@pytest.mark.requirement("Q8", "TR-41")
def test_a_screen_contradicts_a_word_only_after_it_has_shown_something_else_for_long(
    world: World,
) -> None:
    world.apply(world.look(pane(), RUNNING, pids=[7]), world.said("tool.started", pid=7))
    world.wait(1)
    world.apply(world.look(pane(), IDLE, pids=[7]))
    world.wait(3.9)
    assert world.pane(pane()).activity_state is RUNNING
    step = world.wait(0.1)
    assert world.pane(pane()).activity_state is IDLE
    assert world.pane(pane()).evidence_mode is EvidenceMode.HEURISTIC
    assert transitions(step) == [("claude-1", RUNNING, IDLE)]
    # The next word is believed at once.
    world.apply(world.said("prompt.submitted", pid=7))
    assert world.pane(pane()).activity_state is RUNNING
    assert world.pane(pane()).evidence_mode is EvidenceMode.DETERMINISTIC


def test_a_later_word_of_a_lower_source_is_news(world: World) -> None:
    world.apply(world.look(pane(), RUNNING, pids=[7]), world.said("tool.started", pid=7))
    world.now += timedelta(seconds=2)
    idle = world.said("activity.idle", kind=SourceKind.CLAUDE_SESSIONS, pid=7)
    world.apply(idle)
    assert world.pane(pane()).activity_state is IDLE
    assert world.pane(pane()).activity_source is SourceKind.CLAUDE_SESSIONS


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("approval.requested", "activity.running", APPROVAL),
        ("prompt.submitted", "activity.idle", IDLE),
        ("tool.started", "activity.waiting_approval", APPROVAL),
    ],
    ids=["work-goes-on", "interrupted", "asked"],
)
def test_a_moment_later_a_lower_source_is_believed_if_it_says_more_than_that_work_goes_on(
    first: str, second: str, told: Activity, world: World
) -> None:
    world.apply(world.look(pane(), Activity.UNKNOWN, pids=[7]), world.said(first, pid=7))
    world.now += timedelta(milliseconds=200)
    world.apply(world.said(second, kind=SourceKind.CLAUDE_SESSIONS, pid=7))
    assert world.pane(pane()).activity_state is told


def test_how_a_turn_has_ended_is_waited_for_a_moment(world: World) -> None:
    record, file = SourceKind.CLAUDE_TRANSCRIPT, SourceKind.CLAUDE_SESSIONS
    world.apply(
        world.look(pane(), Activity.UNKNOWN, pids=[7]),
        world.said("prompt.submitted", kind=record, pid=7, ago=3),
    )
    world.apply(world.said("activity.idle", kind=file, pid=7))
    assert world.pane(pane()).activity_state is RUNNING
    world.wait(1)
    world.apply(world.said("turn.failed", kind=record, pid=7, ago=0.9))
    assert world.pane(pane()).activity_state is Activity.ERROR
    world.apply(world.said("prompt.submitted", kind=record, pid=7))
    world.wait(1)
    world.apply(world.said("activity.idle", kind=file, pid=7))
    world.wait(1.5)
    assert world.pane(pane()).activity_state is IDLE


def test_a_record_that_is_silent_about_waiting_does_not_end_it(world: World) -> None:
    world.apply(world.look(pane(), APPROVAL, pids=[7]), world.said("approval.requested", pid=7))
    world.now += timedelta(seconds=1)
    world.apply(world.said("tool.started", kind=SourceKind.CLAUDE_TRANSCRIPT, pid=7))
    assert world.pane(pane()).activity_state is APPROVAL
    world.now += timedelta(seconds=1)
    world.apply(world.said("tool.completed", kind=SourceKind.CLAUDE_TRANSCRIPT, pid=7))
    assert world.pane(pane()).activity_state is RUNNING


@pytest.mark.requirement("RES-3", "RES-4", "RES-7", "RES-8", "RES-11", "BND-5", "BND-6", "TG-1")
def test_a_source_that_is_not_heard_of_loses_its_say_and_gets_it_back(world: World) -> None:
    world.apply(world.look(pane(), IDLE, quiet=60, pids=[7]), world.said("tool.started", pid=7))
    world.silent[SourceKind.CLAUDE_HOOKS] = world.now
    world.wait(3.0)
    assert world.pane(pane()).binding_state is BindingState.MANAGED_DETERMINISTIC_FRESH
    assert world.pane(pane()).activity_state is RUNNING
    world.wait(0.001)
    state = world.pane(pane())
    assert state.binding_state is BindingState.MANAGED_DETERMINISTIC_STALE
    assert (state.activity_state, state.evidence_mode) == (IDLE, EvidenceMode.HEURISTIC)
    assert state.presence is Presence.MANAGED
    del world.silent[SourceKind.CLAUDE_HOOKS]
    world.apply(world.said("tool.started", pid=7))
    state = world.pane(pane())
    assert state.binding_state is BindingState.MANAGED_DETERMINISTIC_FRESH
    assert (state.activity_state, state.evidence_mode) == (RUNNING, EvidenceMode.DETERMINISTIC)


@pytest.mark.requirement("RES-5")
def test_what_a_source_said_that_is_down_is_not_known_any_more(world: World) -> None:
    world.apply(codex(world, "codex:a", "thread.active", pid=7))
    assert world.agent("codex-1").activity is RUNNING
    world.silent[SourceKind.CODEX_APPSERVER] = world.now
    world.wait(15.0)
    assert world.agent("codex-1").activity is RUNNING
    world.wait(0.001)
    assert world.agent("codex-1").activity is Activity.UNKNOWN
    del world.silent[SourceKind.CODEX_APPSERVER]
    world.wait(0)
    assert world.agent("codex-1").activity is RUNNING
    world.down.add(SourceKind.CODEX_APPSERVER)
    world.wait(0)
    assert world.agent("codex-1").activity is Activity.UNKNOWN


@pytest.mark.requirement("TR-16", "TG-11")
def test_one_source_that_is_silent_is_no_reason_to_doubt_another(world: World) -> None:
    world.apply(
        world.look(pane(0), RUNNING, pids=[7]),
        world.look(pane(1), RUNNING, provider=Provider.CODEX, pids=[8]),
        world.said("tool.started", pid=7),
        codex(world, "codex:a", "thread.active", pid=8),
    )
    world.silent[SourceKind.CODEX_APPSERVER] = world.now
    world.wait(20)
    assert world.pane(pane(0)).evidence_mode is EvidenceMode.DETERMINISTIC
    assert world.pane(pane(1)).evidence_mode is EvidenceMode.HEURISTIC


@pytest.mark.requirement("TG-10")
def test_a_source_drops_out_and_returns_and_every_state_in_between_is_told(world: World) -> None:
    steps = [
        world.apply(world.look(pane(), IDLE, quiet=60, pids=[7])),
        world.apply(world.said("prompt.submitted", pid=7)),
    ]
    world.silent[SourceKind.CLAUDE_HOOKS] = world.now
    steps.append(world.wait(4))
    steps.append(world.apply(world.look(pane(), APPROVAL, pids=[7])))
    del world.silent[SourceKind.CLAUDE_HOOKS]
    steps.append(world.apply(world.said("turn.completed", pid=7)))
    assert transitions(*steps) == [
        ("claude-1", Activity.UNKNOWN, IDLE),
        ("claude-1", IDLE, RUNNING),
        ("claude-1", RUNNING, IDLE),
        ("claude-1", IDLE, APPROVAL),
        ("claude-1", APPROVAL, IDLE),
    ]


# --------------------------------------------------------------------------------- what is refused


@pytest.mark.requirement("ERR-5", "A5-4")
def test_what_comes_late_does_not_undo_what_came_after(world: World) -> None:
    world.apply(world.look(pane(), RUNNING, pids=[7]), world.said("turn.completed", pid=7))
    step = world.apply(world.said("tool.started", pid=7, ago=5))
    assert [each.reason for each in step.outcomes] == [Reason.LATE_EVENT]
    assert world.pane(pane()).activity_state is IDLE


@pytest.mark.requirement("A5-4")
@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_arrival_makes_no_difference(seed: int) -> None:
    def final(*, shuffled: bool) -> object:
        world = World()
        observations = [world.look(pane(), RUNNING, pids=[7], at=world.now)]
        kinds = ["prompt.submitted", "tool.started", "approval.requested", "turn.completed"]
        for number, kind in enumerate(kinds, 1):
            at = world.now + timedelta(seconds=number)
            observations.append(world.said(kind, pid=7, at=at))
            observations.append(world.look(pane(), RUNNING, pids=[7], at=at))
        if shuffled:
            random.Random(seed).shuffle(observations)
        world.now += timedelta(seconds=10)
        world.apply(*observations)
        state = world.pane(pane())
        return state.activity_state, state.activity_source, state.activity_since, state.session_key

    assert final(shuffled=True) == final(shuffled=False)


@pytest.mark.requirement("SIG-2", "ERR-7")
@pytest.mark.parametrize("missing", ["session", "source_event_id"])
def test_a_word_that_does_not_tell_whose_it_is_ties_no_pane(world: World, missing: str) -> None:
    world.apply(world.look(pane(), RUNNING))
    said: dict[str, Any] = {"session": "claude:one", "source_event_id": "turn-1"} | {missing: ""}
    step = world.apply(world.said("turn.completed", where=pane(), **said))
    assert [each.reason for each in step.outcomes] == [Reason.SIGNATURE_INCONCLUSIVE]
    assert world.pane(pane()).signature_class is SignatureClass.HEURISTIC


@pytest.mark.requirement("SIG-2")
def test_a_word_without_a_pane_is_a_sessions_only(world: World) -> None:
    world.apply(world.look(pane(), RUNNING))
    world.apply(world.said("turn.completed"))
    assert world.pane(pane()).signature_class is SignatureClass.HEURISTIC


@pytest.mark.requirement("BND-9", "ERR-6", "TG-8", "TR-12")
def test_what_is_about_a_former_life_of_a_pane_does_not_touch_the_present_one(
    world: World,
) -> None:
    world.apply(world.look(pane(generation=1), RUNNING))
    world.apply(world.closed(pane(generation=1)))
    world.apply(world.look(pane(generation=2), IDLE, quiet=9))
    for seconds, reason in ((119, Reason.BINDING_CONFLICT), (2, Reason.LATE_EVENT)):
        world.wait(seconds)
        step = world.apply(world.said("tool.started", where=pane(generation=1)))
        assert [each.reason for each in step.outcomes] == [reason]
        assert world.pane(pane(generation=2)).activity_state is IDLE
        assert world.pane(pane(generation=2)).signature_class is SignatureClass.HEURISTIC


@pytest.mark.requirement("ERR-6")
def test_a_word_that_names_a_pane_its_process_is_not_in_is_a_conflict(world: World) -> None:
    world.apply(world.look(pane(0), RUNNING, pids=[7]), world.look(pane(1), RUNNING, pids=[8]))
    step = world.apply(world.said("turn.completed", where=pane(1), pid=7))
    assert [each.reason for each in step.outcomes] == [Reason.BINDING_CONFLICT]
    assert world.pane(pane(1)).session_key != "claude:one"


@pytest.mark.requirement("SIG-9", "ERR-8", "SIG-8")
def test_a_signature_that_was_rejected_is_told_with_its_reason(world: World) -> None:
    step = world.apply(world.look(pane(), None, refusal="signature_guard_rejected"))
    assert [each.reason for each in step.outcomes] == [Reason.SIGNATURE_GUARD_REJECTED]
    assert world.pane(pane()).presence is Presence.UNMANAGED


def test_a_heartbeat_says_nothing(world: World) -> None:
    world.apply(world.look(pane(), IDLE, quiet=9, pids=[7]), world.said("turn.completed", pid=7))
    step = world.apply(world.said("heartbeat", pid=7, session="claude:other"))
    assert step.changes == ()
    assert [each.reason for each in step.outcomes] == [None]


# ------------------------------------------------------------------------------ versions, restarts


@pytest.mark.requirement("A5-1", "Q9", "IF-D4")
def test_changes_are_numbered_without_gaps_and_told_once(world: World) -> None:
    steps = [
        world.apply(world.look(pane(), RUNNING, pids=[7])),
        world.apply(world.look(pane(), RUNNING, pids=[7])),
        world.apply(world.said("approval.requested", pid=7)),
        world.wait(1),
        world.apply(world.said("session.ended", pid=7)),
    ]
    versions = [change.version for step in steps for change in step.changes]
    assert versions == list(range(1, len(versions) + 1))
    assert steps[1].changes == ()
    assert steps[3].changes == ()
    assert world.projection.log.since(0) == tuple(each for step in steps for each in step.changes)


@pytest.mark.requirement("A5-2", "A5-3")
def test_a_pane_that_changed_meanwhile_is_not_bound(world: World) -> None:
    world.apply(world.look(pane(), RUNNING), world.said("turn.completed", session="claude:two"))
    before = world.pane(pane()).state_version
    world.apply(world.look(pane(), APPROVAL))
    with pytest.raises(CasConflict) as caught:
        world.projection.bind(pane(), "claude:two", before, world.links(), world.now)
    assert (caught.value.expected, caught.value.found) == (before, world.pane(pane()).state_version)
    assert world.pane(pane()).session_key != "claude:two"
    world.projection.bind(
        pane(), "claude:two", world.pane(pane()).state_version, world.links(), world.now
    )
    assert world.pane(pane()).session_key == "claude:two"


@pytest.mark.requirement("Q3", "PER-1", "PER-2")
def test_what_was_known_before_a_restart_is_said_when_it_is_seen_again(world: World) -> None:
    world.apply(
        world.look(pane(0), RUNNING),
        world.look(pane(1), RUNNING, pids=[7]),
        world.said("approval.requested", pid=7),
    )
    restored = Restored(panes=world.projection.panes(), sessions=world.projection.sessions())
    version = world.projection.version
    world.projection = Projection()
    world.projection.restore(restored, world.now)
    world.wait(0)
    assert world.projection.panes() == ()
    world.apply(world.look(pane(1), RUNNING, pids=[7]))
    state = world.pane(pane(1))
    assert (state.agent, state.session_key) == ("claude-2", "claude:one")
    assert (state.activity_state, state.evidence_mode) == (APPROVAL, EvidenceMode.DETERMINISTIC)
    assert world.projection.version > version
    step = world.wait(31)
    assert step.removed_panes == (pane(0),)


@pytest.mark.requirement("MEM-3", "TR-55")
def test_sessions_that_are_over_are_forgotten(world: World) -> None:
    for number in range(50):
        world.apply(world.said("turn.completed", session=f"claude:{number}"))
        world.apply(world.said("session.ended", session=f"claude:{number}"))
    world.wait(121)
    assert world.projection.sizes()["sessions"] == 0


def test_the_winner_of_a_session_is_told_with_its_tier(world: World) -> None:
    world.apply(world.look(pane(), APPROVAL))
    [session] = world.projection.sessions()
    assert session.session_key.startswith("pane:")
    assert (session.winner_tier, session.activity_source) == (
        EvidenceTier.HEURISTIC,
        SourceKind.POLLER,
    )
    world.apply(world.said("turn.started", where=pane()))
    [session] = world.projection.sessions()
    assert (session.session_key, session.winner_tier) == ("claude:one", EvidenceTier.DETERMINISTIC)
    assert session.representative_pane_instance_id == pane()


def codex(world: World, session: str, event_type: str, **more: Any) -> Observation:
    kind = more.pop("kind", SourceKind.CODEX_APPSERVER)
    origin = {"cwd": "/home/ada/project"} | more
    return world.said(event_type, kind=kind, provider=Provider.CODEX, session=session, **origin)
