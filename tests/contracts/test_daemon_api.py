"""Every daemon keeps the same promises to those who connect, whether it observes or pretends to.

A daemon is put into a world with one tmux pane in which nothing but a shell runs. Everything else
is said to it through the api itself: `report` brings an agent, lets it change and lets it go.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bullpen.api import methods
from bullpen.api.errors import reason_of
from bullpen.api.runtime import Paths, prepare
from bullpen.connection import Connection, RemoteError, SocketTransport, TypedRequest
from bullpen.daemon.main import Daemon as RealDaemon
from bullpen.daemon.signals import Stop
from bullpen.jsonrpc.errors import INVALID_PARAMS, METHOD_NOT_FOUND
from bullpen.model.alerts import Alert
from bullpen.model.states import Activity
from bullpen.model.views import AgentState
from bullpen.testing.daemon import FakeDaemon, pane_state
from bullpen.testing.tmux import PrivateTmux, eventually
from tests.daemon.harness import settings

SECONDS = 10.0  # for what is done at once on a machine with nothing else to do

Daemon = Callable[[str], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def fake_daemon(socket_path: str) -> AsyncIterator[None]:
    async with FakeDaemon(socket_path, panes=[pane_state("%0")]):
        yield


@asynccontextmanager
async def real_daemon(socket_path: str) -> AsyncIterator[None]:
    async with PrivateTmux() as tmux:
        paths = Paths.resolve(socket=socket_path)
        await asyncio.to_thread(prepare, paths)
        given = settings(observe={"tmux_socket": tmux.target.socket_path})
        stop, is_up = Stop(), asyncio.Event()

        async def serve() -> None:
            async with RealDaemon(given, paths, stop=stop):
                is_up.set()
                await stop.wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(serve())
            await is_up.wait()
            yield
            stop.ask("the test is over")


DAEMONS: dict[str, Daemon] = {"fake": fake_daemon, "real": real_daemon}


@pytest.fixture(params=DAEMONS)
async def socket_path(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[str]:
    path = str(home / "run/bullpen/bullpend.sock")
    async with DAEMONS[request.param](path):
        yield path


class Follower:
    """A connection that subscribes, and all that it was told."""

    def __init__(self) -> None:
        self.changes: list[methods.StateChanged] = []
        self.summaries: list[methods.SummaryChanged] = []
        self.connection: Connection

    @classmethod
    @asynccontextmanager
    async def connect(cls, socket_path: str) -> AsyncIterator["Follower"]:
        follower = cls()
        builder = (
            Connection.builder()
            .on_notification(methods.StateChanged, lambda told, _: follower.changes.append(told))
            .on_notification(methods.SummaryChanged, lambda s, _: follower.summaries.append(s))
        )
        async with builder.connect(SocketTransport.unix(socket_path)) as follower.connection:
            yield follower

    def activities(self, name: str) -> list[Activity]:
        said = [told.change for told in self.changes if told.change.kind == "agent"]
        return [each.agent.activity for each in said if each.agent and each.key == name]


async def ask(socket_path: str, request: TypedRequest[Any]) -> Any:
    async with Connection.builder().connect(SocketTransport.unix(socket_path)) as connection:
        return await connection.request(request, timeout=SECONDS)


async def report(socket_path: str, activity: Activity, name: str = "mine", **facts: Any) -> None:
    said = await ask(socket_path, methods.Report(name=name, activity=activity, **facts))
    assert said.accepted >= 1
    assert not said.refused

    async def is_known() -> bool:
        agents = {each.name: each for each in await ask(socket_path, methods.ListAgents())}
        if activity is Activity.EXITED:
            return name not in agents
        return name in agents and agents[name].activity is activity

    await eventually(is_known)


@asynccontextmanager
async def asking(
    socket_path: str, request: TypedRequest[Any]
) -> AsyncIterator["asyncio.Task[Any]"]:
    """Ask, and go on once the daemon has begun to answer."""
    async with Connection.builder().connect(SocketTransport.unix(socket_path)) as connection:
        answer = asyncio.create_task(connection.request(request, timeout=2 * SECONDS))
        await asyncio.sleep(0)  # it is sent first, so it is begun before the next is answered
        await connection.request(methods.GetInfo(), timeout=SECONDS)
        assert not answer.done()
        yield answer


async def refusal(socket_path: str, request: TypedRequest[Any]) -> tuple[int, str]:
    with pytest.raises(RemoteError) as caught:
        await ask(socket_path, request)
    return caught.value.code, reason_of(caught.value)


# What there is


@pytest.mark.requirement("UDS-6", "IF-D1", "IF-D2", "IF-D3")
@pytest.mark.parametrize("method", ["list_panes", "list_sessions", "list_source_health"])
async def test_a_line_of_json_is_answered_by_one_on_a_connection_of_its_own(
    method: str, socket_path: str
) -> None:
    reader, writer = await asyncio.open_unix_connection(socket_path)
    writer.write(msgspec.json.encode({"jsonrpc": "2.0", "id": 7, "method": method}) + b"\n")
    async with asyncio.timeout(SECONDS):
        answer = msgspec.json.decode(await reader.readline())
    writer.close()
    await writer.wait_closed()
    assert answer["id"] == 7
    assert isinstance(answer["result"], list)


@pytest.mark.requirement("IF-D6", "IF-D7", "IF-D8", "IF-D9", "UDS-8")
async def test_a_pane_without_an_agent_is_listed_with_its_signature(socket_path: str) -> None:
    reader, writer = await asyncio.open_unix_connection(socket_path)
    panes: list[dict[str, Any]] = []

    async def is_listed() -> bool:
        writer.write(b'{"jsonrpc":"2.0","id":1,"method":"list_panes"}\n')
        panes[:] = msgspec.json.decode(await reader.readline())["result"]
        return bool(panes)

    await eventually(is_listed)
    writer.close()
    await writer.wait_closed()
    assert panes[0]["presence"] == "unmanaged"
    assert panes[0]["signature_class"] == "none"
    assert isinstance(panes[0]["signature_reason"], str)
    assert panes[0]["signature_confidence"] == 0.0
    assert panes[0]["signature_inputs"] == {
        "provider_hint": False,
        "cmd_match": False,
        "poller_match": False,
        "title_match": False,
    }
    assert panes[0]["pane_instance_id"]["pane_id"].startswith("%")


@pytest.mark.requirement("UDS-8")
async def test_the_health_of_sources_is_listed_in_pairs(socket_path: str) -> None:
    listed: list[list[Any]] = []

    async def is_listed() -> bool:
        async with Connection.builder().connect(SocketTransport.unix(socket_path)) as connection:
            listed[:] = await connection.request("list_source_health", timeout=SECONDS)
        return bool(listed)

    await eventually(is_listed)
    for kind, health in listed:
        assert isinstance(kind, str)
        assert health["status"] in ("healthy", "degraded", "down")


async def test_who_reports_is_an_agent_with_a_session(socket_path: str) -> None:
    await report(socket_path, Activity.RUNNING, title="count the sheep", cwd="/fields")
    [agent] = [a for a in await ask(socket_path, methods.ListAgents()) if a.name == "mine"]
    assert isinstance(agent, AgentState)
    assert (agent.activity, agent.evidence_mode, agent.source) == (
        "running",
        "deterministic",
        "report",
    )
    assert agent.session_key == "report:mine"
    assert agent.cwd == "/fields"
    sessions = {s.session_key: s for s in await ask(socket_path, methods.ListSessions())}
    assert sessions["report:mine"].activity_state is Activity.RUNNING


async def test_who_has_said_farewell_is_no_agent_any_more(socket_path: str) -> None:
    await report(socket_path, Activity.RUNNING)
    await report(socket_path, Activity.EXITED)
    assert not [a for a in await ask(socket_path, methods.ListAgents()) if a.name == "mine"]


@pytest.mark.requirement("CLI-4", "CLI-6")
async def test_all_of_it_is_counted(socket_path: str) -> None:
    await report(socket_path, Activity.WAITING_APPROVAL)
    summary = await ask(socket_path, methods.GetSummary())
    assert summary.agents == sum(summary.activities.values()) == 1
    assert summary.activities == {"waiting_approval": 1}
    line = await ask(socket_path, methods.TmuxStatus())
    assert line == f"A:1 U:{summary.unmanaged} ◆1"


async def test_a_daemon_says_which_it_is(socket_path: str) -> None:
    info = await ask(socket_path, methods.GetInfo())
    assert info.socket_path == socket_path
    assert info.protocol_version == methods.PROTOCOL_VERSION
    assert info.pid > 0
    assert info.nonce


async def test_an_agent_is_explained_by_its_name_and_its_session(socket_path: str) -> None:
    await report(socket_path, Activity.RUNNING)
    for subject in ("mine", "report:mine"):
        explanation = await ask(socket_path, methods.Explain(subject))
        assert explanation.subject == subject
        assert explanation.agent.name == "mine"


@pytest.mark.parametrize(
    ("request_", "code", "reason"),
    [
        (methods.Explain("nobody"), -32040, "agent_not_found"),
        (methods.AckAlert("none"), -32042, "alert_not_found"),
        (methods.RestoreSnapshot("none"), -32043, "snapshot_not_found"),
        (methods.Wait("nobody", ("idle",), 0.0), -32040, "agent_not_found"),
        (methods.Wait("nobody", ("done",), 0.0), -32040, "agent_not_found"),
    ],
    ids=lambda value: value.METHOD if isinstance(value, TypedRequest) else "",
)
async def test_what_is_not_there_is_refused_with_a_number_and_a_word(
    request_: TypedRequest[Any], code: int, reason: str, socket_path: str
) -> None:
    assert await refusal(socket_path, request_) == (code, reason)


async def test_a_method_nobody_has_is_refused(socket_path: str) -> None:
    async with Connection.builder().connect(SocketTransport.unix(socket_path)) as connection:
        with pytest.raises(RemoteError) as caught:
            await connection.request("list_dragons", timeout=SECONDS)
    assert caught.value.code == METHOD_NOT_FOUND


# What becomes of it


@pytest.mark.requirement("IF-D4", "Q9")
async def test_changes_are_told_with_versions_that_have_no_gap(socket_path: str) -> None:
    async with Follower.connect(socket_path) as follower:
        reply = await follower.connection.request(methods.Subscribe(), timeout=SECONDS)
        await report(socket_path, Activity.RUNNING)
        await report(socket_path, Activity.IDLE)
        await report(socket_path, Activity.EXITED)
        await eventually(lambda: any(t.change.kind == "agent_removed" for t in follower.changes))
    assert not reply.resync_required
    versions = [told.change.version for told in follower.changes]
    assert versions == list(range(reply.version + 1, reply.version + 1 + len(versions)))
    assert follower.activities("mine") == [Activity.RUNNING, Activity.IDLE]
    [became_idle] = [
        told.change
        for told in follower.changes
        if told.change.agent and told.change.agent.activity is Activity.IDLE
        if told.change.kind == "agent"
    ]
    assert became_idle.previous_activity is Activity.RUNNING


@pytest.mark.requirement("IF-D5")
async def test_the_numbers_are_told_when_they_change(socket_path: str) -> None:
    async with Follower.connect(socket_path) as follower:
        await follower.connection.request(methods.Subscribe(), timeout=SECONDS)
        await report(socket_path, Activity.RUNNING)
        await eventually(lambda: any(told.summary.agents == 1 for told in follower.summaries))
        await report(socket_path, Activity.EXITED)
        await eventually(lambda: follower.summaries[-1].summary.agents == 0)
    versions = [told.summary.version for told in follower.summaries]
    assert versions == sorted(versions)


@pytest.mark.requirement("Q9")
async def test_who_comes_back_is_told_what_it_missed(socket_path: str) -> None:
    async with Follower.connect(socket_path) as follower:
        before = await follower.connection.request(methods.Subscribe(), timeout=SECONDS)
    await report(socket_path, Activity.RUNNING)
    async with Follower.connect(socket_path) as follower:
        again = methods.Subscribe(since_version=before.version)
        reply = await follower.connection.request(again, timeout=SECONDS)
        await eventually(lambda: follower.activities("mine") == [Activity.RUNNING])
    assert (reply.version, reply.resync_required) == (before.version, False)
    assert follower.changes[0].change.version == before.version + 1


@pytest.mark.requirement("Q9")
@pytest.mark.parametrize("ahead", [1, 1000])
async def test_who_knows_more_than_the_daemon_is_to_list_everything_again(
    ahead: int, socket_path: str
) -> None:
    now = await ask(socket_path, methods.Subscribe())
    later = now.version + 1000 + ahead
    assert (await ask(socket_path, methods.Subscribe(since_version=later))).resync_required
    assert (await ask(socket_path, methods.GetChanges(since_version=later))).resync_required


@pytest.mark.requirement("Q9")
async def test_changes_can_be_asked_for(socket_path: str) -> None:
    before = await ask(socket_path, methods.Subscribe())
    await report(socket_path, Activity.RUNNING)
    reply = await ask(socket_path, methods.GetChanges(since_version=before.version))
    assert [c.version for c in reply.changes] == list(range(before.version + 1, reply.version + 1))
    assert any(change.key == "mine" and change.kind == "agent" for change in reply.changes)


@pytest.mark.requirement("Q9")
async def test_who_asks_for_changes_can_wait_for_one(socket_path: str) -> None:
    await report(socket_path, Activity.IDLE)
    known = (await ask(socket_path, methods.Subscribe())).version
    request = methods.GetChanges(since_version=known, timeout_seconds=SECONDS)
    async with asking(socket_path, request) as waiting:
        await report(socket_path, Activity.RUNNING)
        reply = await waiting
    assert reply.changes
    assert reply.changes[0].version == known + 1


# Waiting


@pytest.mark.requirement("TR-65")
@pytest.mark.parametrize(
    ("activity", "until"),
    [
        (Activity.IDLE, "idle"),
        (Activity.IDLE, "done"),
        (Activity.ERROR, "done"),
        (Activity.RATE_LIMITED, "done"),
        (Activity.RUNNING, "running"),
        (Activity.WAITING_APPROVAL, "waiting"),
        (Activity.WAITING_INPUT, "waiting"),
    ],
)
async def test_what_is_so_already_is_not_waited_for(
    activity: Activity, until: str, socket_path: str
) -> None:
    await report(socket_path, activity)
    reply = await ask(socket_path, methods.Wait("mine", (until,), 0.0))
    assert reply.outcome == "reached"
    assert reply.agent.activity is activity


@pytest.mark.parametrize("until", ["idle", "done"])
async def test_waiting_ends_when_it_becomes_so(until: str, socket_path: str) -> None:
    await report(socket_path, Activity.RUNNING)
    request = methods.Wait("mine", (until, "error"), SECONDS)
    async with asking(socket_path, request) as waiting:
        await report(socket_path, Activity.WAITING_INPUT)
        assert not waiting.done()
        await report(socket_path, Activity.IDLE)
        reply = await waiting
    assert (reply.outcome, reply.agent.activity) == ("reached", Activity.IDLE)


@pytest.mark.parametrize(
    ("until", "outcome"), [("idle", "gone"), ("done", "reached"), ("gone", "reached")]
)
async def test_waiting_ends_when_the_agent_goes(until: str, outcome: str, socket_path: str) -> None:
    await report(socket_path, Activity.RUNNING)
    async with asking(socket_path, methods.Wait("mine", (until,), SECONDS)) as waiting:
        await report(socket_path, Activity.EXITED)
        assert (await waiting).outcome == outcome


async def test_who_was_never_there_is_gone(socket_path: str) -> None:
    reply = await ask(socket_path, methods.Wait("nobody", ("gone",), 0.0))
    assert (reply.outcome, reply.agent) == ("reached", None)


async def test_waiting_ends_when_its_time_is_over(socket_path: str) -> None:
    await report(socket_path, Activity.RUNNING)
    reply = await ask(socket_path, methods.Wait("mine", ("idle",), 0.01))
    assert (reply.outcome, reply.agent.activity) == ("timeout", Activity.RUNNING)


@pytest.mark.parametrize("until", [(), ("asleep",), ("idle", "asleep")])
async def test_waiting_for_what_never_is_is_refused(
    until: tuple[str, ...], socket_path: str
) -> None:
    await report(socket_path, Activity.IDLE)
    code, _ = await refusal(socket_path, methods.Wait("mine", until, 0.0))
    assert code == INVALID_PARAMS


# Snapshots, alerts, the end


@pytest.mark.requirement("A7-2")
async def test_a_snapshot_is_restored_only_after_a_dry_run(socket_path: str) -> None:
    saved = await ask(socket_path, methods.SaveSnapshot())
    assert saved.reason == "manual"
    assert (await ask(socket_path, methods.ListSnapshots()))[0] == saved
    for_real = methods.RestoreSnapshot(saved.snapshot_id, dry_run=False)
    assert await refusal(socket_path, for_real) == (-32044, "dry_run_required")
    tried = await ask(socket_path, methods.RestoreSnapshot(saved.snapshot_id))
    assert (tried.dry_run, tried.is_valid, tried.problems) == (True, True, ())
    done = await ask(socket_path, for_real)
    assert (done.dry_run, done.is_valid) == (False, True)
    assert await refusal(socket_path, for_real) == (-32044, "dry_run_required")


async def test_there_are_no_alerts_where_nothing_is_wrong(socket_path: str) -> None:
    alerts: tuple[Alert, ...] = await ask(socket_path, methods.ListAlerts())
    assert alerts == ()


async def test_a_daemon_answers_before_it_goes(socket_path: str) -> None:
    assert await ask(socket_path, methods.Shutdown()) is True
    await eventually(lambda: asyncio.to_thread(lambda: not Path(socket_path).exists()))
