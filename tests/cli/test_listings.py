"""Panes, sessions, sources, alerts and the status are told by the same words everywhere."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from bullpen.api.methods import DaemonInfo
from bullpen.cli.status import monitoring, summary_lines
from bullpen.model.alerts import Alert, AlertLevel, ResolvePolicy
from bullpen.model.sources import SourceHealth
from bullpen.model.states import Activity, HealthStatus, SourceKind
from bullpen.model.version import VERSION
from bullpen.model.views import Summary
from bullpen.testing.daemon import FakeDaemon, agent_state, pane_state
from tests.cli.commands import execute, invoke, show

DOWN, DEGRADED, HEALTHY = HealthStatus.DOWN, HealthStatus.DEGRADED, HealthStatus.HEALTHY


def alert(alert_id: str, level: AlertLevel = AlertLevel.WARN, **facts: str) -> Alert:
    at = datetime.now(UTC) - timedelta(minutes=5)
    return Alert(
        alert_id=alert_id,
        key=alert_id,
        level=level,
        code="slo_breach",
        message="observations are late",
        policy=ResolvePolicy(facts.get("policy", "auto")),
        raised_at=at,
        last_seen_at=at,
    )


# Status


@pytest.mark.requirement("CLI-4")
def test_the_status_counts_panes_agents_and_sources() -> None:
    summary = Summary(
        panes=17, agents=4, unmanaged=13, sources={"poller": HEALTHY, "claude_hooks": HEALTHY}
    )
    assert summary_lines(summary) == [
        "Panes: 17 total (4 agents, 13 unmanaged)",
        "Sources: claude_hooks=healthy, poller=healthy",
        "Monitoring: on",
    ]


def test_agents_outside_of_tmux_are_counted_apart() -> None:
    lines = summary_lines(Summary(panes=3, agents=4, unmanaged=2, sources={"poller": HEALTHY}))
    assert lines[:2] == ["Panes: 3 total (1 agents, 2 unmanaged)", "Outside tmux: 3 agents"]


@pytest.mark.requirement("ERR-10")
@pytest.mark.parametrize(
    ("sources", "word"),
    [
        ({"poller": HEALTHY, "copilot": HEALTHY}, "on"),
        ({"poller": HEALTHY, "copilot": DOWN}, "limited"),
        ({"poller": DEGRADED}, "limited"),
        ({"poller": DOWN, "copilot": DOWN}, "stopped"),
        ({}, "stopped"),
    ],
)
def test_only_whether_monitoring_goes_on_is_said(
    sources: dict[str, HealthStatus], word: str
) -> None:
    assert monitoring(Summary(sources=sources)) == word


@pytest.mark.requirement("ERR-10")
async def test_what_is_wrong_with_a_source_is_not_for_the_status(daemon: FakeDaemon) -> None:
    daemon.set_health(SourceKind.CODEX_APPSERVER, DOWN, "Traceback: something terrible")
    done = await show("status")
    assert "codex_appserver=down" in done.out
    assert "terrible" not in done.out
    assert done.lines[-1] == "Monitoring: on, with less to go by; see bullpen doctor"


async def test_the_status_fails_if_nothing_can_be_watched(daemon: FakeDaemon) -> None:
    daemon.set_health(SourceKind.POLLER, DOWN)
    done = await invoke("status")
    assert (done.code, done.lines[-1]) == (1, "Monitoring: stopped; see bullpen doctor")


async def test_the_status_for_programs_names_the_daemon(daemon: FakeDaemon) -> None:
    said = (await show("status", "--json")).json
    assert (said["schema"], said["monitoring"], said["agents"]) == (1, "on", 0)
    assert said["daemon"]["socket_path"] == daemon.socket_path


@pytest.mark.requirement("CLI-1")
async def test_another_socket_can_be_named_before_or_behind_the_command(
    daemon: FakeDaemon, home: Path
) -> None:
    other = str(home / "other.sock")
    async with FakeDaemon(other, panes=[pane_state("%1")]):
        for words in (["-s", other, "status"], ["status", "--socket-path", other]):
            assert (await show(*words)).lines[0].startswith("Panes: 1 total")
        both = ["--socket-path", "/nowhere", "alerts", "-s", other, "--json"]
        assert (await show(*both)).json["alerts"] == []
    assert (await show("status")).lines[0].startswith("Panes: 0 total")


# Panes


@pytest.fixture
def two_panes(daemon: FakeDaemon) -> FakeDaemon:
    asks = agent_state("claude-1", Activity.WAITING_INPUT, pane="%1", age_seconds=61, title="ask")
    daemon.set_agent(asks)
    daemon.set_pane(pane_state("%1", agent=asks))
    daemon.set_pane(pane_state("%2", index=1, cwd="/tmp"))
    return daemon


@pytest.mark.requirement("CLI-5", "Q12")
@pytest.mark.parametrize("name", ["panes", "list-panes"])
async def test_panes_are_listed_for_people(name: str, two_panes: FakeDaemon) -> None:
    assert (await show(name)).out == snapshot("""\
work:1.0 %1  claude-1  ◆ waiting_input  ~   1m  ask  /src/project
work:1.1 %2  -         bash                          /tmp
2 panes, 1 agent, 1 waiting
""")


@pytest.mark.requirement("CLI-5", "Q12", "IF-D6", "IF-D9")
async def test_panes_are_listed_for_programs(two_panes: FakeDaemon) -> None:
    said = (await show("list-panes", "--json")).json
    assert said["schema"] == 1
    first, second = said["panes"]
    assert first["signature_inputs"] == {
        "provider_hint": False,
        "cmd_match": True,
        "poller_match": False,
        "title_match": False,
    }
    assert (second["presence"], second["signature_class"]) == ("unmanaged", "none")


@pytest.mark.parametrize("option", ["--agents", "--waiting"])
async def test_panes_without_agents_can_be_left_out(option: str, two_panes: FakeDaemon) -> None:
    done = await show("panes", option)
    assert "%2" not in done.out
    assert done.lines[-1] == "1 pane, 1 agent, 1 waiting"


# Sessions, sources, alerts


async def test_sessions_are_listed(daemon: FakeDaemon) -> None:
    await show("report", "nightly", "running", "--title", "rebuild")
    done = await show("sessions")
    assert done.lines[0].startswith("report:nightly  nightly  ● running  =   0s  rebuild  -  ")
    assert done.lines[-1] == "1 sessions"
    said = (await show("sessions", "--json")).json
    assert (said["schema"], said["sessions"][0]["session_key"]) == (1, "report:nightly")


async def test_where_there_are_no_sessions_that_is_said(daemon: FakeDaemon) -> None:
    assert (await show("sessions")).out == "no sessions\n"


async def test_sources_are_listed_with_what_they_told(daemon: FakeDaemon) -> None:
    daemon.set_health(SourceKind.COPILOT, DEGRADED, "no answer")
    assert (await show("sources")).out == snapshot("""\
copilot  ▲ degraded  active  nothing yet  0 taken  no answer
poller   ✓ healthy   active  nothing yet  0 taken
""")
    said = (await show("sources", "--json")).json
    assert said["schema"] == 1
    assert {each["source_kind"]: each["status"] for each in said["sources"]} == {
        "poller": "healthy",
        "copilot": "degraded",
    }
    assert [each["state"] for each in said["registry"]] == ["active", "active"]


def test_what_a_source_told_is_counted() -> None:
    from bullpen.cli.sources import listing

    now = datetime.now(UTC)
    health = SourceHealth(
        status=HEALTHY,
        checked_at=now,
        last_event_at=now - timedelta(seconds=70),
        accepted=12,
        dropped={"late_event": 2, "invalid_source_event": 1},
        version="2.1.0",
    )
    [line] = listing([(SourceKind.CLAUDE_HOOKS, health)], [], now)
    assert "last 1m ago  12 taken, refused: 1 invalid_source_event, 2 late_event" in line
    assert line.endswith("2.1.0")


@pytest.mark.requirement("ERR-10", "RT-5")
def test_a_source_with_nothing_to_look_at_is_no_trouble() -> None:
    from bullpen.cli.doctor import daemon_checks
    from bullpen.cli.sources import listing

    now = datetime.now(UTC)
    health = SourceHealth(
        status=DEGRADED, checked_at=now, reason="codex is not installed", is_absent=True
    )
    summary = Summary(
        sources={"poller": HEALTHY, "codex_appserver": DEGRADED}, absent=("codex_appserver",)
    )
    assert monitoring(summary) == "on"
    assert "codex_appserver=absent" in summary_lines(summary)[1]
    told = [(SourceKind.CODEX_APPSERVER, health)]
    [line] = listing(told, [], now)
    assert "- absent" in line
    assert "codex is not installed" in line
    info = DaemonInfo(
        pid=1,
        version=VERSION,
        protocol_version=1,
        nonce="n",
        started_at=now,
        socket_path="/s",
        state_path="/d",
        log_path="/l",
    )
    checks = {each.name: each for each in daemon_checks(info, told, (), None)}
    assert checks["source codex_appserver"].level == "ok"
    assert checks["source codex_appserver"].said == "absent: codex is not installed"


async def test_alerts_are_listed_and_acknowledged(daemon: FakeDaemon) -> None:
    assert (await show("alerts")).out == "no alerts\n"
    daemon.set_alert(alert("a1"))
    daemon.set_alert(alert("a2", AlertLevel.ESCALATE, policy="operator"))
    assert (await show("alerts")).out == snapshot("""\
a2  ✗ escalate  open   5m  slo_breach  observations are late
a1  ▲ warn      open   5m  slo_breach  observations are late
""")
    assert (await show("alerts", "ack", "a1")).out == "a1 is acknowledged\n"
    assert (await show("alerts", "ack", "a2")).out == "a2 is resolved\n"
    assert [each["alert_id"] for each in (await show("alerts", "--json")).json["alerts"]] == ["a1"]
    assert len((await show("alerts", "--all", "--json")).json["alerts"]) == 2
    assert (await show("alerts", "ack", "a1", "--json")).json["alert"]["alert_id"] == "a1"


async def test_an_alert_that_is_not_there_cannot_be_acknowledged(daemon: FakeDaemon) -> None:
    done = await execute("alerts", "ack", "nonsense")
    assert (done.code, done.out) == (1, "")
    assert done.err == "bullpen: there is no alert 'nonsense'\n"
