"""The board shows what the daemon says, follows it, and does what its keys promise."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from textual.strip import Strip

from bullpen.api.errors import ApiError
from bullpen.model.alerts import Alert, AlertLevel
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity, EvidenceMode, EvidenceTier, HealthStatus, SourceKind
from bullpen.model.views import AgentState, Claim, Explanation
from bullpen.testing.daemon import FakeDaemon, agent_state, pane_state
from bullpen.testing.tmux import eventually
from tests.tui.boards import Shown, showing


def waiting(name: str, pane: str, **facts: object) -> AgentState:
    return agent_state(name, Activity.WAITING_APPROVAL, pane=pane, **facts)  # type: ignore[arg-type]


def count_lines(board: Shown) -> Counter[int]:
    """Return how often each row of the terminal is drawn from now on."""
    drawn: Counter[int] = Counter()
    render = board.app._board.render_line

    def count(y: int) -> Strip:
        drawn[y] += 1
        return render(y)

    board.app._board.render_line = count  # type: ignore[method-assign]
    return drawn


async def test_every_agent_has_a_line_under_its_session(daemon: FakeDaemon, home: Path) -> None:
    project = home / "shop"
    (project / ".git").mkdir(parents=True)
    (project / ".git/HEAD").write_text("ref: refs/heads/cart\n")
    daemon.set_agent(
        waiting(
            *("claude-1", "%1"), title="Mend the cart", cwd=str(project), age_seconds=65,
            evidence_mode=EvidenceMode.DETERMINISTIC,
        )
    )  # fmt: skip
    daemon.set_agent(agent_state("codex-1", Activity.RUNNING, pane="%2", tmux_session="blog"))
    daemon.set_agent(agent_state("gemini-1", Activity.IDLE))
    async with showing(daemon.socket_path) as board:
        await board.shows("claude-1", "codex-1", "gemini-1", "cart\n")
        assert board.line("claude-1").split() == [
            *("◆", "waiting_approval", "=", "1m", "claude-1", "claude"),
            *("Mend", "the", "cart", "~/shop", "cart"),
        ]
        order = ["blog  1 agent", "codex-1", "work  1 agent  ◆ 1 waiting", "claude-1"]
        order += ["outside tmux  1 agent", "gemini-1"]
        places = [board.screen.index(each) for each in order]
        assert places == sorted(places)
        head = board.lines[0]
        assert head.strip().startswith("3 agents  ◆ 1 waiting  ● 1 running  ✓ 1 idle")
        assert "✓ 1 source healthy" in head


async def test_what_changes_is_shown_at_once(daemon: FakeDaemon) -> None:
    async with showing(daemon.socket_path) as board:
        await board.shows("no agents: start one")
        daemon.set_agent(agent_state("codex-1", Activity.RUNNING, pane="%2"))
        await board.shows("● running", "1 agent")
        daemon.set_agent(waiting("codex-1", "%2"))
        await board.shows("◆ waiting_approval", "◆ 1 waiting")
        daemon.remove_agent("codex-1")
        await board.shows("no agents: start one")
        assert "codex-1" not in board.screen
        daemon.set_health(SourceKind.POLLER, HealthStatus.DOWN, "no tmux")
        await board.shows("✗ 1 source down")


async def test_a_gap_in_what_is_told_is_filled(daemon: FakeDaemon) -> None:
    async with showing(daemon.socket_path) as board:
        daemon.set_agent(agent_state("codex-1", pane="%2"))
        await board.shows("codex-1")
        daemon._agents["codex-2"] = agent_state("codex-2", pane="%3", index=1)
        daemon.skip_versions()
        daemon.set_agent(agent_state("codex-3", pane="%4", index=2))
        await board.shows("codex-1", "codex-2", "codex-3")


async def test_ages_grow_while_nothing_happens(daemon: FakeDaemon) -> None:
    began = now = datetime.now(UTC)
    daemon.set_agent(agent_state("codex-1", pane="%2", since=began))
    async with showing(daemon.socket_path, now=lambda: now) as board:
        await board.shows("  0s codex-1")
        now = began + timedelta(seconds=7)
        await board.shows("  7s codex-1")


async def test_the_lines_are_drawn_again_while_nothing_happens(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("codex-1", pane="%2"))
    async with showing(daemon.socket_path) as board:
        await board.shows("codex-1")
        await board.pilot.pause()
        drawn = count_lines(board)
        await eventually(lambda: drawn.total() >= 2)


async def test_the_filter_shows_only_some(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1", Activity.IDLE, pane="%1", title="cart"))
    daemon.set_agent(agent_state("claude-2", Activity.RUNNING, pane="%2", title="cart", index=1))
    daemon.set_agent(agent_state("codex-1", Activity.RUNNING, pane="%3", title="cart", index=2))
    async with showing(daemon.socket_path) as board:
        await board.shows("claude-1", "claude-2", "codex-1")
        await board.press("slash", *"provider:cl")
        await board.shows_no("codex-1")
        await board.press("space", *"state:run")
        await board.shows_no("claude-1")
        assert "claude-2" in board.screen
        await board.press("enter", "j", "slash", *"x")
        await board.shows("nobody is like that")
        await board.press("escape")
        await board.shows("claude-1", "claude-2", "codex-1")


async def test_the_explanation_is_of_the_selected_agent_and_lives(daemon: FakeDaemon) -> None:
    one, other = (agent_state(f"codex-{n}", pane=f"%{n}", index=n) for n in (1, 2))
    daemon.set_agent(one)
    daemon.set_agent(other)
    claim = Claim(
        source_kind=SourceKind.POLLER,
        tier=EvidenceTier.HEURISTIC,
        event_type="activity.running",
        activity=Activity.RUNNING,
        observed_at=datetime.now(UTC),
        link_age_seconds=2,
        age_seconds=3,
        is_winner=True,
        why="nobody else said anything",
        details={"rule": "status-line"},
    )
    loser = msgspec.structs.replace(claim, is_winner=False, why="it is older")
    daemon.explanations["codex-2"] = Explanation(
        subject="codex-2", agent=other, claims=(claim, loser)
    )
    async with showing(daemon.socket_path, height=40) as board:
        await board.shows("codex-1", "codex-2")
        await board.press("j", "e")
        await board.shows("explain codex-2", "won", "nobody else said", "status-line")
        await board.shows("lost", "it is older", "3s ago; last heard of 2s ago")
        daemon.explanations["codex-2"] = Explanation(subject="codex-2", agent=other)
        await board.shows_no("won")
        await board.press("k")
        await board.shows("explain codex-1")
        await board.press("e")
        await board.shows_no("explain codex-1")


async def test_a_refusal_is_told_and_nothing_else_happens(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("codex-1", pane="%2"))
    async with showing(daemon.socket_path) as board:
        await board.shows("codex-1")
        daemon.script("explain", ApiError(Reason.AGENT_NOT_FOUND, "there is nobody"))
        await board.press("e")
        await board.shows("there is nobody")
        await board.shows("explain codex-1")  # the next time it is asked


async def test_panes_without_an_agent_are_shown_when_asked_for(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("codex-1", pane="%2"))
    daemon.set_pane(pane_state("%7", index=4, title="notes"))
    async with showing(daemon.socket_path) as board:
        await board.shows("codex-1")
        assert "notes" not in board.screen
        await board.press("u")
        await board.shows("no agent", "bash", "notes")
        await board.press("u")
        await board.shows_no("notes")


async def test_sources_and_help_open_below(daemon: FakeDaemon) -> None:
    async with showing(daemon.socket_path) as board:
        daemon.set_health(SourceKind.CLAUDE_HOOKS, HealthStatus.DEGRADED, "nothing was heard")
        await board.shows("▲ 1 source degraded")
        await board.press("s")
        await board.shows("✓ healthy", "poller", "▲ degraded", "claude_hooks", "nothing was heard")
        await board.press("question_mark")
        await board.shows("the next agent that waits for somebody", "read off its screen")
        await board.press("escape")
        await board.shows_no("the next agent that waits")


async def test_an_alert_is_shown_until_it_is_acknowledged(daemon: FakeDaemon) -> None:
    now = datetime.now(UTC)
    alert = Alert(
        alert_id="a1", key="store", level=AlertLevel.DEGRADED, code="store_unavailable",
        message="the disk is full", raised_at=now, last_seen_at=now,
    )  # fmt: skip
    async with showing(daemon.socket_path) as board:
        await board.shows("no agents")
        daemon.set_alert(alert)
        await board.shows("▲ degraded store_unavailable", "the disk is full")
        await board.press("a")
        await board.shows("enter acknowledges")
        await board.press("enter")
        await board.shows_no("the disk is full", "enter acknowledges")
        await board.press("a")
        await board.shows("acknowledged  the disk is full")
        await board.press("escape")


async def test_w_goes_from_one_who_waits_to_the_next(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("codex-1", pane="%1", index=1))
    daemon.set_agent(waiting("codex-2", "%2", index=2))
    daemon.set_agent(agent_state("codex-3", pane="%3", index=3))
    async with showing(daemon.socket_path) as board:
        await board.shows("codex-3")
        await board.press("w")
        await board.shows("▸ ◆ waiting_approval")
        daemon.set_agent(waiting("codex-3", "%3", index=3))
        await eventually(lambda: "waiting" in board.line("codex-3"))
        await board.press("w")
        await eventually(lambda: "codex-3" in board.line("▸"))
        await board.press("w")
        await eventually(lambda: "codex-2" in board.line("▸"))


async def test_where_nobody_waits_w_says_so(daemon: FakeDaemon) -> None:
    async with showing(daemon.socket_path) as board:
        await board.shows("no agents")
        await board.press("w")
        await board.shows("nobody waits")


async def test_the_selected_one_stays_selected_while_others_come_and_go(
    daemon: FakeDaemon,
) -> None:
    for number in (1, 3, 4):
        daemon.set_agent(agent_state(f"codex-{number}", pane=f"%{number}", index=number))
    async with showing(daemon.socket_path) as board:
        await board.shows("codex-4")
        await board.press("j")
        await eventually(lambda: "codex-3" in board.line("▸"))
        daemon.set_agent(agent_state("codex-2", pane="%2", index=2))
        await board.shows("codex-2")
        assert "codex-3" in board.line("▸")
        daemon.remove_agent("codex-3")
        await board.shows_no("codex-3")
        assert "codex-4" in board.line("▸")


async def test_a_daemon_that_is_gone_is_waited_for(home: Path) -> None:
    path = home / "run/bullpen/bullpend.sock"
    first = FakeDaemon(path, agents=[agent_state("codex-1", pane="%1")])
    async with first, showing(first.socket_path) as board:
        await board.shows("codex-1")
        await first.stop()
        await board.shows("reconnecting…", "r starts the daemon")
        assert "codex-1" in board.screen  # what was known last
        async with FakeDaemon(path, agents=[agent_state("codex-2", pane="%2")]):
            await board.shows("codex-2")
            await board.shows_no("reconnecting", "codex-1")


async def test_a_connection_that_is_cut_is_made_again(daemon: FakeDaemon) -> None:
    async with showing(daemon.socket_path) as board:
        await board.shows("no agents")
        await eventually(lambda: daemon.subscribers == 1)
        daemon.hang_up()
        daemon.set_agent(agent_state("codex-1", pane="%1"))
        await board.shows("codex-1")
        await board.shows_no("reconnecting")


@pytest.mark.parametrize(
    "title",
    ["\x1b[2J\x1b[31mred", "a\nb\tc", "\x9b31m", "[bold]x[/", "\N{RIGHT-TO-LEFT OVERRIDE}abc"],
)
async def test_no_title_can_break_the_screen(daemon: FakeDaemon, title: str) -> None:
    daemon.set_agent(agent_state("codex-1", pane="%1", title=title, cwd=f"/{title}"))
    daemon.set_agent(agent_state("codex-2", pane="%2", title="second", index=1))
    async with showing(daemon.socket_path, width=100, height=12) as board:
        await board.shows("codex-1", "second")
        assert len(board.lines) == 12
        assert board.screen.replace("\n", "").isprintable()


async def test_a_narrow_terminal_has_the_state_the_name_and_the_title(daemon: FakeDaemon) -> None:
    daemon.set_agent(waiting("claude-1", "%1", title="Mend the cart", cwd="/src/shop"))
    async with showing(daemon.socket_path, width=60) as board:
        await board.shows("◆ waiting_approval ~", "claude-1", "Mend the cart")
        assert "/src/shop" not in board.screen
        assert max(map(len, board.lines)) <= 60


async def test_of_two_hundred_agents_those_are_drawn_that_fit(daemon: FakeDaemon) -> None:
    for number in range(200):
        daemon._agents[f"codex-{number}"] = agent_state(
            f"codex-{number}", pane=f"%{number}", index=number, title=f"job-{number}"
        )
    async with showing(daemon.socket_path, height=30) as board:
        await board.shows("200 agents", "codex-0")
        assert "job-199" not in board.screen
        drawn = count_lines(board)
        await board.press("G")
        await board.shows("job-199")
        daemon.set_agent(waiting("codex-199", "%199", index=199, title="job-199"))
        await board.shows("◆ waiting_approval")
        assert max(drawn) < 30  # rows of the terminal, not of the list
        await board.press("g")
        await board.shows("job-0 ")


async def test_without_colours_the_selection_and_states_can_be_read(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    daemon.set_agent(waiting("claude-1", "%1"))
    async with showing(daemon.socket_path) as board:
        await board.shows("▸ ◆ waiting_approval ~")
        assert board.app.no_color


async def test_q_leaves_and_nothing_is_asked_of_the_daemon(daemon: FakeDaemon) -> None:
    async with showing(daemon.socket_path) as board:
        await board.shows("no agents")
        await board.press("q")
        await eventually(lambda: not board.app.is_running)
    assert not daemon.is_stopped.is_set()
