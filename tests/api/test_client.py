"""A client asks in types, follows what changes without a gap, and says if nobody is there."""

import asyncio
import inspect
import json
import os
import socket
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from bullpen.api import client as room
from bullpen.api import methods
from bullpen.api.client import Client, Resync, Told
from bullpen.api.errors import ApiError, DaemonUnavailable, ProtocolMismatchError, reason_of
from bullpen.connection import (
    Connection,
    Context,
    RemoteError,
    RequestTimeout,
    TypedRequest,
    channel_pair,
)
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity, SourceKind
from bullpen.model.views import StateChange, Summary
from bullpen.testing.daemon import FakeDaemon, agent_state, pane_state

SECONDS = 10.0


@pytest.fixture
def path(home: Path) -> str:
    return str(home / "run/bullpen/bullpend.sock")


@pytest.fixture
async def daemon(path: str) -> AsyncIterator[FakeDaemon]:
    async with FakeDaemon(
        path, agents=[agent_state("claude-1", pane="%1")], panes=[pane_state("%1")]
    ) as daemon:
        yield daemon


@pytest.fixture
async def client(daemon: FakeDaemon) -> AsyncIterator[Client]:
    async with Client.connect(start=False) as client:
        yield client


def following(
    client: Client, since_version: int | None = None
) -> "aclosing[AsyncGenerator[Told, None]]":
    told = client.subscribe(since_version=since_version)
    return aclosing(cast("AsyncGenerator[Told, None]", told))


async def change(told: AsyncIterator[Told]) -> StateChange:
    """Return the next change, without the numbers."""
    async with asyncio.timeout(SECONDS):
        async for each in told:
            if isinstance(each, StateChange):
                return each
    raise AssertionError("no change came")


async def resync(told: AsyncIterator[Told]) -> Resync:
    async with asyncio.timeout(SECONDS):
        async for each in told:
            if isinstance(each, Resync):
                return each
            assert isinstance(each, Summary)
    raise AssertionError("nothing came")


# Asking


async def test_what_there_is_comes_as_types(client: Client, daemon: FakeDaemon) -> None:
    assert client.info == daemon.info
    assert [agent.name for agent in await client.agents()] == ["claude-1"]
    assert [str(pane.pane_instance_id) for pane in await client.panes()] == ["%1.1@1:1"]
    assert await client.sessions() == ()
    assert list(await client.source_health()) == [SourceKind.POLLER]
    assert (await client.summary()).agents == 1
    assert (await client.explain("claude-1")).subject == "claude-1"
    assert await client.alerts(include_resolved=True) == ()
    assert str(daemon.info.pid) in repr(client)


async def test_every_request_that_faces_make_has_a_method(client: Client) -> None:
    saved = await client.save_snapshot("why not")
    assert await client.snapshots() == (saved,)
    assert (await client.restore_snapshot(saved.snapshot_id)).dry_run
    assert len(await client.source_registry()) == 1
    assert isinstance(await client.tmux_status(), str)
    assert await client.latency() == {}
    assert (await client.wait("claude-1", "running", timeout_seconds=1)).outcome == "reached"
    assert (await client.changes(0)).version == 0
    said = await client.report(methods.Report(name="mine", activity=Activity.IDLE))
    assert said.accepted == 1
    [pane] = await client.panes()
    bound = await client.bind_pane("%1", "claude:1", expected_version=pane.state_version)
    assert bound.session_key == "claude:1"


def test_no_request_that_faces_make_was_forgotten() -> None:
    body = Path(room.__file__).read_text()
    requests = {
        name: each.METHOD
        for name, each in vars(methods).items()
        if inspect.isclass(each) and issubclass(each, TypedRequest) and each is not TypedRequest
    }
    assert len(requests) > 20
    # What sources, hooks and the consumers of the gateway say is not for faces.
    internal = ("source.", "gateway.", "hook.")
    assert [
        name
        for name, method in requests.items()
        if not method.startswith(internal) and f"methods.{name}(" not in body
    ] == ["GetInfo", "Report"]  # asked when it connects; given whole


@pytest.mark.requirement("ERR-9")
async def test_a_refusal_has_its_number_and_its_reason(client: Client, daemon: FakeDaemon) -> None:
    with pytest.raises(RemoteError) as caught:
        await client.explain("nobody")
    assert caught.value.code == Reason.AGENT_NOT_FOUND
    assert reason_of(caught.value) == "agent_not_found"
    daemon.script("summary", ApiError(Reason.STORE_UNAVAILABLE, "the disk is full", path="/x"))
    with pytest.raises(RemoteError) as caught:
        await client.summary()
    assert caught.value.data == {"reason": "store_unavailable", "path": "/x"}


async def test_any_transport_will_do(daemon: FakeDaemon) -> None:
    ours, theirs = channel_pair()
    serving = asyncio.ensure_future(daemon.builder.serve_with(theirs))
    async with Client.over(ours) as client:
        assert client.info == daemon.info
        assert [agent.name for agent in await client.agents()] == ["claude-1"]
    assert client.is_closed
    await serving


async def test_waiting_at_the_daemon_may_take_longer_than_an_answer_does(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "ANSWER_SECONDS", 0.01)
    reply = await client.wait("claude-1", "idle", timeout_seconds=0.2)
    assert reply.outcome == "timeout"
    assert (await client.changes(0, timeout_seconds=0.2)).changes == ()


# Following


async def test_everything_comes_first_and_then_each_change(
    client: Client, daemon: FakeDaemon
) -> None:
    async with following(client) as told:
        everything = await resync(told)
        assert everything.version == 0
        assert [agent.name for agent in everything.agents] == ["claude-1"]
        assert len(everything.panes) == 1
        assert everything.summary.agents == 1
        daemon.set_agent(agent_state("claude-1", Activity.IDLE, pane="%1"))
        daemon.set_agent(agent_state("codex-1", Activity.RUNNING))
        seen = [await change(told), await change(told)]
        assert [(each.version, each.key) for each in seen] == [(1, "claude-1"), (2, "codex-1")]
        assert seen[0].previous_activity is Activity.RUNNING


async def test_numbers_are_told_as_well(client: Client, daemon: FakeDaemon) -> None:
    async with following(client) as told:
        await resync(told)
        daemon.set_agent(agent_state("codex-1"))
        async with asyncio.timeout(SECONDS):
            numbers = [each async for each in _until_summary(told)]
        assert numbers[-1].agents == 2


async def _until_summary(told: AsyncIterator[Told]) -> AsyncIterator[Summary]:
    async for each in told:
        if isinstance(each, Summary):
            yield each
            return


async def test_from_a_known_version_on_only_what_was_missed_comes(
    client: Client, daemon: FakeDaemon
) -> None:
    for name in ("codex-1", "codex-2", "codex-3"):
        daemon.set_agent(agent_state(name))
    async with following(client, since_version=1) as told:
        assert [(await change(told)).key, (await change(told)).key] == ["codex-2", "codex-3"]
        daemon.remove_agent("codex-1")
        assert (await change(told)).version == 4


async def test_a_version_nobody_remembers_brings_everything(
    client: Client, daemon: FakeDaemon
) -> None:
    daemon.skip_versions(5000)
    async with following(client, since_version=3) as told:
        assert (await resync(told)).version == 5000
        daemon.set_agent(agent_state("codex-1"))
        assert (await change(told)).version == 5001


async def test_after_a_gap_everything_comes_again_and_then_the_change_behind_it(
    client: Client, daemon: FakeDaemon
) -> None:
    async with following(client) as told:
        await resync(told)
        daemon.set_agent(agent_state("codex-1"))
        assert (await change(told)).version == 1
        daemon.skip_versions(1)
        daemon.set_agent(agent_state("codex-2"))
        everything = await resync(told)
        assert everything.version == 3
        assert {agent.name for agent in everything.agents} == {"claude-1", "codex-1", "codex-2"}
        assert (await change(told)).version == 3
        daemon.set_agent(agent_state("codex-3"))
        assert (await change(told)).version == 4


async def test_no_change_comes_twice(daemon: FakeDaemon) -> None:
    changes = [daemon.set_agent(agent_state(name)) for name in ("codex-1", "codex-2")]

    def subscribe(_: methods.Subscribe, context: Context) -> None:
        context.respond(methods.SubscribeReply(0))
        for each in (changes[0], changes[0], changes[1], changes[0], changes[1]):
            context.connection.send_notification(methods.StateChanged(each))
        context.connection.close_soon()

    ours, theirs = channel_pair()
    stammering = Connection.builder().on_request(methods.Subscribe, subscribe)
    stammering = stammering.on_request(methods.GetInfo, lambda _, context: daemon.info)
    serving = asyncio.ensure_future(stammering.serve_with(theirs))
    async with Client.over(ours) as client, following(client, since_version=0) as told:
        assert [await change(told), await change(told)] == changes
        with pytest.raises(DaemonUnavailable):
            await change(told)
    await serving


async def test_one_who_does_not_read_keeps_a_bounded_number_and_lists_everything_then(
    client: Client, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOST_UNREAD", 10)
    async with following(client) as told:
        await resync(told)
        for number in range(100):
            daemon.set_agent(agent_state("codex-1", title=str(number)))
        await client.agents()  # behind which everything told before has come
        assert len(client._unread._told) <= 10
        everything = await resync(told)
        assert everything.agents[-1].title == "99"
        *_, last = [await change(told) for _ in range(everything_left(client) + 1)]
        assert last.version == 100


def everything_left(client: Client) -> int:
    return sum(isinstance(each, StateChange) for each in client._unread._told)


async def test_the_end_of_the_daemon_ends_it_behind_what_was_told(
    client: Client, daemon: FakeDaemon
) -> None:
    async with following(client) as told:
        await resync(told)
        daemon.set_agent(agent_state("codex-1"))
        await daemon.stop()
        assert (await change(told)).key == "codex-1"
        with pytest.raises(DaemonUnavailable, match="the daemon is gone"):
            await change(told)
    with pytest.raises(DaemonUnavailable, match="the daemon is gone"):
        await client.agents()


async def test_one_may_subscribe_again_but_not_twice_at_a_time(
    client: Client, daemon: FakeDaemon
) -> None:
    async with following(client) as told:
        await resync(told)
        async with following(client) as second:
            with pytest.raises(RuntimeError, match="subscribed already"):
                await resync(second)
    daemon.set_agent(agent_state("codex-1"))  # which nobody wants
    async with following(client) as told:
        assert len((await resync(told)).agents) == 2
        daemon.set_agent(agent_state("codex-2"))
        assert (await change(told)).key == "codex-2"


# Nobody there


@pytest.mark.requirement("A3-2")
async def test_a_daemon_of_another_protocol_is_said_to_be_one(
    path: str, daemon: FakeDaemon
) -> None:
    other = msgspec.structs.replace(daemon.info, protocol_version=99, version="9.9", pid=77)
    daemon.script("daemon.info", {**msgspec.to_builtins(other), "started_at": "never"})
    with pytest.raises(ProtocolMismatchError) as caught:
        async with Client.connect(path, start=False):
            pass
    assert str(caught.value) == (
        "the daemon (pid 77, version 9.9) speaks protocol 99, we speak 1; "
        "end it with `bullpen down` and try again"
    )


async def test_what_is_no_daemon_of_ours_is_said_to_be_none(path: str, daemon: FakeDaemon) -> None:
    for answer, said in (
        ("hello", "is no daemon of ours"),
        ({"protocol_version": 1}, "is no daemon of ours"),
        (ApiError(Reason.PEER_UID_MISMATCH, "not you"), "refuses: not you"),
    ):
        daemon.script("daemon.info", answer)
        with pytest.raises(DaemonUnavailable, match=said):
            async with Client.connect(path, start=False):
                pass


async def test_an_answer_that_makes_no_sense_is_said_to_make_none(
    client: Client, daemon: FakeDaemon
) -> None:
    daemon.script("summary", {"panes": "many"})
    with pytest.raises(DaemonUnavailable, match=r"answer to summary makes no sense: .*\$\.panes"):
        await client.summary()
    assert (await client.summary()).panes == 1


async def test_a_daemon_that_hangs_is_given_up(home: Path) -> None:
    path = home / "run/hangs.sock"
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(path))
        hanging.listen(1)
        with pytest.raises(DaemonUnavailable, match=r"does not answer: .*'daemon\.info'"):
            async with Client.connect(path, timeout_seconds=0.1):
                pass


async def test_a_request_that_is_not_answered_is_given_up(
    client: Client, daemon: FakeDaemon
) -> None:
    with pytest.raises(RequestTimeout):
        await client.request(
            methods.Wait(agent="claude-1", until=("idle",), timeout_seconds=9), timeout=0.05
        )
    assert len(await client.agents()) == 1


async def test_a_socket_that_cannot_be_reached_is_not_taken_for_none(home: Path) -> None:
    with pytest.raises(DaemonUnavailable, match=r"cannot be reached: .* may have"):
        async with Client.connect("/tmp/" + "x" * 200):
            pass
    (home / "file").write_text("")
    with pytest.raises(DaemonUnavailable, match=r"no daemon is running: .*Connection refused"):
        async with Client.connect(home / "file", start=False):
            pass


async def test_whatever_goes_wrong_leaves_nothing_open(path: str, daemon: FakeDaemon) -> None:
    daemon.script("daemon.info", "hello")
    with pytest.raises(DaemonUnavailable):
        async with Client.connect(path, start=False):
            pass
    with pytest.raises(ZeroDivisionError):
        async with Client.connect(path, start=False) as client:
            raise ZeroDivisionError
    assert client.is_closed


# The wire, as anybody may speak it


def exchange(path: str, *lines: bytes) -> list[Any]:
    """Send lines as a program would that knows nothing of us; return as many answers."""
    with socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(SECONDS)
        connected.connect(path)
        connected.sendall(b"".join(line + b"\n" for line in lines))
        with connected.makefile("rb") as answers:
            return [json.loads(answers.readline()) for _ in lines]


@pytest.mark.requirement("UDS-6", "IF-S7")
@pytest.mark.parametrize("request_id", [1, "a", None])
async def test_one_line_asks_and_one_line_answers(
    path: str, daemon: FakeDaemon, request_id: Any
) -> None:
    asked = {"jsonrpc": "2.0", "id": request_id, "method": "list_panes"}
    [answer] = await asyncio.to_thread(exchange, path, json.dumps(asked).encode())
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", request_id)
    assert [pane["pane_instance_id"]["pane_id"] for pane in answer["result"]] == ["%1"]


@pytest.mark.requirement("ERR-9")
async def test_what_is_wrong_with_a_request_has_its_number(path: str, daemon: FakeDaemon) -> None:
    answers = await asyncio.to_thread(
        exchange,
        path,
        b"{nonsense",
        b'{"jsonrpc":"2.0","id":1,"method":"no_such"}',
        b'{"jsonrpc":"2.0","id":2,"method":"explain","params":{}}',
        b'{"jsonrpc":"2.0","id":3,"method":"explain","params":{"subject":"nobody"}}',
        b'{"jsonrpc":"2.0","id":4,"method":"list_agents","params":[]}',
    )
    errors = {answer["id"]: answer.get("error", {}) for answer in answers}
    assert [errors[each]["code"] for each in (None, 1, 2, 3)] == [-32700, -32601, -32602, -32040]
    assert errors[3]["data"]["reason"] == "agent_not_found"


@pytest.mark.requirement("UDS-6")
async def test_a_line_of_megabytes_is_no_trouble(path: str, daemon: FakeDaemon) -> None:
    params = {"provider": "claude", "payload": {"text": "x" * 5_000_000}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "hook.report", "params": params}
    [answer] = await asyncio.to_thread(exchange, path, json.dumps(asked).encode())
    assert answer["result"] is True


@pytest.mark.requirement("UDS-3", "UDS-5")
async def test_the_socket_is_for_us_alone_and_gone_afterwards(path: str) -> None:
    async with FakeDaemon(path):
        assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600
    with pytest.raises(FileNotFoundError):
        os.lstat(path)
