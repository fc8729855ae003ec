"""The fake daemon can be told what no test could bring a real one to do."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bullpen.api import methods
from bullpen.api.errors import ApiError, reason_of
from bullpen.connection import Connection, RemoteError, SocketTransport, channel_pair
from bullpen.model.alerts import Alert, AlertLevel, ResolvePolicy
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity, HealthStatus, SourceKind
from bullpen.model.views import Explanation
from bullpen.testing.daemon import FakeDaemon, agent_state, pane_state
from bullpen.testing.tmux import eventually

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def daemon(home: Path) -> AsyncIterator[FakeDaemon]:
    first = agent_state("claude-1", pane="%1")
    async with FakeDaemon(
        home / "run/d.sock", agents=[first], panes=[pane_state("%1", agent=first), pane_state("%2")]
    ) as daemon:
        yield daemon


@pytest.fixture
async def connection(daemon: FakeDaemon) -> AsyncIterator[Connection]:
    transport = SocketTransport.unix(daemon.socket_path)
    async with Connection.builder().connect(transport) as connection:
        yield connection


def alert(alert_id: str, policy: ResolvePolicy) -> Alert:
    return Alert(
        alert_id=alert_id,
        key=alert_id,
        level=AlertLevel.WARN,
        code="slo_breach",
        message="slow",
        policy=policy,
        raised_at=AT,
        last_seen_at=AT,
    )


async def test_it_says_what_it_was_given(daemon: FakeDaemon, connection: Connection) -> None:
    assert [a.name for a in await connection.request(methods.ListAgents())] == ["claude-1"]
    panes = await connection.request(methods.ListPanes())
    assert len(panes) == 2
    assert await connection.request(methods.TmuxStatus()) == "A:1 U:1"
    assert [type(request) for request in daemon.requests] == [
        methods.ListAgents,
        methods.ListPanes,
        methods.TmuxStatus,
    ]


async def test_an_answer_can_be_put_in_place_of_the_next(
    daemon: FakeDaemon, connection: Connection
) -> None:
    daemon.script("wait", methods.WaitReply("gone"))
    daemon.script("wait", ApiError(Reason.STORE_UNAVAILABLE, "the disk is full"))
    request = methods.Wait("claude-1", ("running",))
    assert (await connection.request(request)).outcome == "gone"
    with pytest.raises(RemoteError) as caught:
        await connection.request(request)
    assert reason_of(caught.value) == "store_unavailable"
    assert (await connection.request(request)).outcome == "reached"


async def test_an_explanation_can_be_given(daemon: FakeDaemon, connection: Connection) -> None:
    daemon.explanations["claude-1"] = Explanation(subject="claude-1", refused=("late_event",))
    assert (await connection.request(methods.Explain("claude-1"))).refused == ("late_event",)
    assert (await connection.request(methods.Explain("%2"))).pane is not None


async def test_a_gap_can_be_left_in_the_versions(
    daemon: FakeDaemon, connection: Connection
) -> None:
    daemon.set_pane(pane_state("%3"))
    daemon.skip_versions(2)
    daemon.remove_pane("%3")
    reply = await connection.request(methods.Subscribe(since_version=1))
    assert (reply.version, reply.resync_required) == (4, True)


async def test_those_who_follow_can_be_hung_up_on(
    daemon: FakeDaemon, connection: Connection
) -> None:
    await connection.request(methods.Subscribe())
    assert daemon.subscribers == 1
    daemon.hang_up()
    async with asyncio.timeout(10):
        await connection.wait_closed()
    await eventually(lambda: daemon.subscribers == 0)


async def test_a_pane_of_two_servers_is_ambiguous(
    daemon: FakeDaemon, connection: Connection
) -> None:
    daemon.set_agent(agent_state("codex-1", pane="%1"))
    with pytest.raises(RemoteError) as caught:
        await connection.request(methods.Wait("%1", ("idle",)))
    assert reason_of(caught.value) == "agent_ambiguous"


async def test_an_alert_that_waits_for_somebody_is_resolved_by_them(
    daemon: FakeDaemon, connection: Connection
) -> None:
    daemon.set_alert(alert("a", ResolvePolicy.AUTO))
    daemon.set_alert(alert("b", ResolvePolicy.OPERATOR))
    assert (await connection.request(methods.AckAlert("a"))).is_open
    assert not (await connection.request(methods.AckAlert("b"))).is_open
    assert [a.alert_id for a in await connection.request(methods.ListAlerts())] == ["a"]
    alerts = await connection.request(methods.ListAlerts(include_resolved=True))
    assert len(alerts) == 2
    assert daemon.summary.alerts == 1


async def test_a_pane_that_changed_meanwhile_is_not_bound(
    daemon: FakeDaemon, connection: Connection
) -> None:
    bound = await connection.request(methods.BindPane("%2", "codex:1", expected_version=0))
    assert bound.session_key == "codex:1"
    with pytest.raises(RemoteError) as caught:
        await connection.request(methods.BindPane("%2", "codex:2", expected_version=0))
    assert reason_of(caught.value) == "binding_cas_conflict"


async def test_a_source_can_fare_otherwise(daemon: FakeDaemon, connection: Connection) -> None:
    daemon.set_health(SourceKind.CODEX_APPSERVER, HealthStatus.DOWN, "it went away")
    listed = await connection.request(methods.ListSourceHealth())
    assert dict(listed)[SourceKind.CODEX_APPSERVER].reason == "it went away"
    assert daemon.summary.sources == {"poller": "healthy", "codex_appserver": "down"}


async def test_it_can_be_served_over_any_transport(daemon: FakeDaemon) -> None:
    near, far = channel_pair()
    serving = asyncio.create_task(daemon.builder.serve_with(far))
    async with Connection.builder().connect(near) as connection:
        assert await connection.request(methods.TmuxStatus()) == "A:1 U:1"
    await serving


async def test_changes_are_what_a_test_sees_too(daemon: FakeDaemon) -> None:
    change = daemon.set_agent(agent_state("claude-1", Activity.IDLE))
    assert (change.version, change.previous_activity) == (1, Activity.RUNNING)
    assert daemon.version == 1


def test_it_runs_in_a_process_of_its_own(home: Path) -> None:
    command = [sys.executable, "-m", "bullpen.testing.daemon", str(home / "d.sock")]
    with subprocess.Popen(
        [*command, "--agents", "2"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            assert (home / "d.sock").is_socket()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    assert not (home / "d.sock").exists()
