"""Peers that never say `initialize` get what the seed says, to the letter."""

import asyncio
import os
import stat
from typing import Any

import pytest

from bullpen.api import methods, talk
from bullpen.connection import Connection, channel_pair
from bullpen.model.messages import MessageType
from bullpen.servers.mcp.peer import Peer
from bullpen.servers.mcp.tools import Caller, Tools
from tests.servers.mcp.room import SECONDS, Room, raw_peer, served, there

BOSS = "secret-of-boss"
SLOW = {"to": "slow", "content": "hi"}

# The seed's own examples.
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {
        "name": "send_message",
        "arguments": {
            "from": "grand_boss",
            "to": "middle_manager",
            "type": "task_request",
            "content": "新しい機能を実装してください",
            "thinking": "この機能は重要です",
            "metadata": {"timestamp": "2026-02-01T10:00:00Z", "priority": "high"},
        },
    },
}


@pytest.mark.requirement("O-01", "O-02", "O-04", "O-10", "O-11", "O-12")
async def test_the_tools_are_listed_as_the_seed_has_them() -> None:
    async with served() as (_, paths), raw_peer(paths) as peer:
        answer = await peer.exchange(LIST)
    assert set(answer) == {"jsonrpc", "id", "result"}
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
    tools = {each["name"]: each for each in answer["result"]["tools"]}
    assert tools["send_message"] == {
        "name": "send_message",
        "description": "別のエージェントにメッセージを送信します",
        "inputSchema": {
            "type": "object",
            "properties": {
                "to": {"type": "string"},
                "content": {"type": "string"},
                "thinking": {"type": "string"},
            },
            "required": ["to", "content"],
        },
    }
    others = {"reply", "inbox", "list_agents", "task", "report", "ask_user"}
    assert set(tools) == {"send_message"} | others
    assert all(set(each) == {"name", "description", "inputSchema"} for each in tools.values())


@pytest.mark.requirement("O-13", "O-14", "O-60")
async def test_a_call_as_the_seed_writes_it_returns_the_answer_of_the_receiving_agent() -> None:
    async with served() as (room, paths), raw_peer(paths, BOSS) as peer:
        answer = await peer.exchange(CALL)
    assert answer == {
        "jsonrpc": "2.0",
        "id": 2,
        "result": {
            "content": "middle_manager: 新しい機能を実装してください",
            "thinking": "簡単です",
            "isError": False,
        },
    }
    [sent] = room.asked(talk.SendMessage)
    assert (sent.to, sent.type, sent.thinking) == (
        "middle_manager",
        MessageType.TASK_REQUEST,
        "この機能は重要です",
    )
    assert sent.metadata == {"timestamp": "2026-02-01T10:00:00Z", "priority": "high"}
    assert sent.secret == BOSS


@pytest.mark.requirement("O-15")
async def test_a_recipient_and_a_text_are_enough() -> None:
    async with served() as (room, paths), raw_peer(paths) as peer:
        answer = await peer.call("send_message", to="middle_manager", content="hi")
    assert answer["result"]["content"] == "middle_manager: hi"
    assert room.asked(talk.SendMessage)[0].secret == ""


async def test_whom_a_message_says_it_is_from_does_not_matter() -> None:
    async with served() as (room, paths), raw_peer(paths, BOSS) as peer:
        await peer.call("send_message", **{"from": "user"}, to="middle_manager", content="hi")
        # Nor does it help to say hello once more.
        peer.write({"jsonrpc": "2.0", "method": "bullpen/hello", "params": {"secret": ""}})
        await peer.call("send_message", to="middle_manager", content="hi")
    assert [each.from_agent for each in room.messages.values()] == ["grand_boss", "grand_boss"]
    assert set(room.pids) == {os.getpid()}  # who connected, by the word of the kernel


@pytest.mark.requirement("O-03")
@pytest.mark.parametrize("id", ["unique-request-id", 0, 1, -7, "1", "", 2**53 + 1])
async def test_an_id_comes_back_as_it_was(id: Any) -> None:
    async with served() as (_, paths), raw_peer(paths) as peer:
        await peer.ask("tools/list", {}, id)
        failed = await peer.ask("nope", {}, id)
    assert "error" in failed


@pytest.mark.requirement("O-26")
async def test_a_ping_is_answered_by_a_pong() -> None:
    async with served() as (room, paths), raw_peer(paths) as peer:
        answer = await peer.call("send_message", to="middle_manager", content="", type="ping")
        alive = await peer.ask("ping")
    assert answer["result"]["isError"] is False
    assert room.asked(talk.SendMessage)[0].type is MessageType.PING
    assert alive["result"] == {}


# What goes wrong

LINES: dict[str, tuple[bytes, int, Any]] = {
    "not json": (b"hello there", -32700, None),
    "half": (b'{"jsonrpc":"2.0","id":1,', -32700, None),
    "not utf-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, None),
    "deep": (b"[" * 100_000, -32700, None),
    "nan": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', -32700, None),
    "no version": (b'{"id":3,"method":"tools/list"}', -32600, 3),
    "other version": (b'{"jsonrpc":"1.0","id":3,"method":"tools/list"}', -32600, 3),
    "no method": (b'{"jsonrpc":"2.0","id":"x"}', -32600, "x"),
    "method of a number": (b'{"jsonrpc":"2.0","id":4,"method":5}', -32600, 4),
    "id of an object": (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, None),
    "a number": (b"42", -32600, None),
    "null": (b"null", -32600, None),
    "a text": (b'"tools/list"', -32600, None),
    "empty batch": (b"[]", -32600, None),
    "20 MB": (b"x" * 20_000_000, -32600, None),
    "20 MB of a request": (
        b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 20_000_000 + b'"}',
        -32600,
        None,
    ),
}


@pytest.mark.requirement("O-05", "O-06", "O-70", "O-71", "O-101")
async def test_a_bad_line_costs_that_line_and_nothing_else() -> None:
    async with served() as (_, paths), raw_peer(paths) as peer:
        for name, (line, code, id_) in LINES.items():
            answer = await peer.exchange(line)
            assert set(answer) == {"jsonrpc", "id", "error"}, name
            assert (answer["error"]["code"], answer["id"]) == (code, id_), name
            assert isinstance(answer["error"]["message"], str)
            assert "tools" in (await peer.exchange(LIST))["result"], name
        for _ in range(300):  # one who never gets it right is still told
            assert (await peer.exchange(b"?"))["error"]["code"] == -32700


@pytest.mark.requirement("O-71")
async def test_a_batch_is_answered_as_one_and_each_of_it_by_its_own_rules() -> None:
    batch = [
        {"jsonrpc": "2.0", "id": "a", "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/whatever"},
        {"id": "b", "method": "ping"},
        7,
        {"jsonrpc": "2.0", "id": "c", "method": "nope"},
    ]
    async with served() as (_, paths), raw_peer(paths) as peer:
        answers = await peer.exchange(batch)
        peer.write([{"jsonrpc": "2.0", "method": "notifications/whatever"}])  # not answered
        assert (await peer.ask("ping"))["result"] == {}
    codes = {each["id"]: each.get("error", {}).get("code") for each in answers}
    assert codes == {"a": None, "b": -32600, None: -32600, "c": -32601}


@pytest.mark.requirement("O-72")
@pytest.mark.parametrize("method", ["nope", "", "tools", "resources/list", "bullpen/hello"])
async def test_a_method_that_is_not_there_is_not_found(method: str) -> None:
    async with served() as (_, paths), raw_peer(paths) as peer:
        answer = await peer.ask(method, {})
    assert answer["error"]["code"] == -32601


WRONG: dict[str, Any] = {
    "no params": None,
    "params of a list": ["send_message", {}],
    "no name": {"arguments": {}},
    "unknown tool": {"name": "nope", "arguments": {}},
    "name of a number": {"name": 7, "arguments": {}},
    "no arguments": {"name": "send_message"},
    "arguments of a text": {"name": "send_message", "arguments": "to"},
    "no to": {"name": "send_message", "arguments": {"content": "hi"}},
    "no content": {"name": "send_message", "arguments": {"to": "silent"}},
    "to of nobody": {"name": "send_message", "arguments": {"to": "", "content": "hi"}},
    "to of a number": {"name": "send_message", "arguments": {"to": 7, "content": "hi"}},
    "content of a list": {"name": "send_message", "arguments": {"to": "x", "content": ["hi"]}},
    "type of its own": {
        "name": "send_message",
        "arguments": {"to": "x", "content": "hi", "type": "gossip"},
    },
    "metadata of a text": {
        "name": "send_message",
        "arguments": {"to": "x", "content": "hi", "metadata": "high"},
    },
    "negative time": {
        "name": "send_message",
        "arguments": {"to": "x", "content": "hi", "timeout_seconds": -1},
    },
    "too large": {
        "name": "send_message",
        "arguments": {"to": "middle_manager", "content": "x" * (2**20 + 1)},
    },
    "reply without words": {"name": "reply", "arguments": {}},
    "reply of a kind of its own": {"name": "reply", "arguments": {"content": "", "status": "?"}},
    "report of a kind of its own": {"name": "report", "arguments": {"activity": "sleeping"}},
    "report of the user": {"name": "report", "arguments": {"activity": "running"}},
    "no such task": {"name": "task", "arguments": {"id": "m-99"}},
}


@pytest.mark.requirement("O-73", "O-101", "O-102")
async def test_arguments_that_do_not_fit_are_invalid_params() -> None:
    async with served() as (room, paths), raw_peer(paths) as peer:
        for name, params in WRONG.items():
            answer = await peer.ask("tools/call", params)
            assert answer["error"]["code"] == -32602, (name, answer)
        assert not room.messages


REFUSED: dict[str, tuple[int, Any]] = {
    "ghost": (-32000, {"agent_id": "ghost", "reason": "agent_not_found"}),
    "nobody_home": (-32000, {"agent_id": "nobody_home", "reason": "tried 5 times"}),
    "flooded": (
        -32002,
        {"agent_id": "user", "reason": "rate_limited", "retry_after_seconds": 2.5},
    ),
    "specialist": (-32053, {"agent_id": "specialist", "reason": "recipient_not_allowed"}),
}


@pytest.mark.requirement("O-75", "O-77", "O-92", "O-103")
@pytest.mark.parametrize("to", REFUSED)
async def test_what_the_daemon_refuses_has_the_number_of_the_seed(to: str) -> None:
    code, data = REFUSED[to]
    async with served() as (_, paths), raw_peer(paths) as peer:
        answer = await peer.call("send_message", to=to, content="hi")
    assert answer["error"]["code"] == code
    assert answer["error"]["data"] == data


@pytest.mark.requirement("O-74")
@pytest.mark.parametrize("to", ["crash", "old_daemon"])
async def test_what_nobody_expected_is_an_internal_error_and_the_next_call_works(to: str) -> None:
    async with served() as (_, paths), raw_peer(paths) as peer:
        answer = await peer.call("send_message", to=to, content="hi")
        assert answer["error"]["code"] == -32603
        assert "no such luck" not in str(answer)
        assert "result" in await peer.call("send_message", to="middle_manager", content="hi")


@pytest.mark.requirement("O-76", "O-82")
async def test_a_time_that_ran_out_says_which_and_for_whom() -> None:
    async with served() as (_, paths), raw_peer(paths) as peer:
        arguments = {"to": "silent", "content": "hi", "timeout_seconds": 0.5}
        answer = await peer.call("send_message", **arguments)
        assert answer["error"]["code"] == -32001
        assert answer["error"]["data"] == {"timeout_seconds": 0.5, "agent_id": "silent"}
        whole = await peer.call("send_message", **arguments | {"timeout_seconds": 2.0})
        assert str(whole["error"]["data"]["timeout_seconds"]) == "2"
        late = await peer.call("send_message", to="late", content="hi", metadata={"ttl": 3})
        assert late["error"]["code"] == -32001
        assert late["error"]["data"] == {"timeout_seconds": 3, "agent_id": "late"}


async def test_the_daemons_own_time_is_the_one_that_is_told() -> None:
    class Impatient(Room):
        async def _wait(self, request: talk.WaitMessage) -> talk.WaitMessageReply:
            assert request.timeout_seconds is None  # what is set for the type counts
            return talk.WaitMessageReply(
                outcome="timeout", deliveries=(), timeout_seconds=30.0, agent_id="middle_manager"
            )

    async with served(Impatient()) as (_, paths), raw_peer(paths) as peer:
        answer = await peer.call("send_message", to="middle_manager", content="hi")
    assert answer["error"]["code"] == -32001
    assert answer["error"]["data"] == {"timeout_seconds": 30, "agent_id": "middle_manager"}


@pytest.mark.requirement("O-81")
async def test_a_daemon_that_does_not_take_a_message_is_a_timeout_too() -> None:
    class Stuck(Room):
        async def _send(self, request: talk.SendMessage) -> talk.SendReply:  # type: ignore[override]
            await asyncio.Event().wait()
            raise AssertionError

    async with (
        served(Stuck(), mail={"send_seconds": 0.2}) as (_, paths),
        raw_peer(paths) as peer,
    ):
        answer = await peer.call("send_message", to="middle_manager", content="hi")
    assert answer["error"]["code"] == -32001
    assert answer["error"]["data"] == {"timeout_seconds": 0.2, "agent_id": "middle_manager"}


@pytest.mark.parametrize("to", ["broken", "refusing"])
async def test_an_agent_that_failed_is_an_answer_that_says_so(to: str) -> None:
    async with served() as (_, paths), raw_peer(paths) as peer:
        answer = await peer.call("send_message", to=to, content="hi")
    assert answer["result"]["isError"] is True
    assert ("an error" in answer["result"]["content"]) is (to == "broken")


# The life of a peer


async def test_one_who_need_not_wait_gets_the_id() -> None:
    async with served() as (room, paths), raw_peer(paths) as peer:
        answer = await peer.call("send_message", to="silent", content="hi", wait=False)
        assert "m-1" in answer["result"]["content"]
        many = await peer.call("send_message", to="#builds", content="main is broken")
        assert "m-2" in many["result"]["content"]
    assert not room.asked(talk.WaitMessage)


@pytest.mark.requirement("O-62")
async def test_calls_are_worked_on_at_the_same_time_and_answered_as_they_end() -> None:
    async with served() as (room, paths), raw_peer(paths) as peer:
        for number in range(5):
            params = {"name": "send_message", "arguments": {"to": "slow", "content": str(number)}}
            call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            peer.write(call)
        await asyncio.wait_for(room.waiting.wait(), SECONDS)
        assert (await peer.ask("ping", id="first"))["result"] == {}
        room.gate.set()
        answers = [await peer.read() for _ in range(5)]
    said = {each["id"]: each["result"]["content"] for each in answers}
    assert said == {number: f"slow: {number}" for number in range(5)}


async def test_a_call_that_is_cancelled_is_not_answered() -> None:
    async with served() as (room, paths), raw_peer(paths) as peer:
        params = {"name": "send_message", "arguments": {"to": "slow", "content": "hi"}}
        peer.write({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
        await asyncio.wait_for(room.waiting.wait(), SECONDS)
        cancel = {"requestId": 7, "reason": "changed my mind"}
        peer.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
        assert (await peer.ask("ping", id=8))["result"] == {}
        room.gate.set()
        again = await peer.call("send_message", to="slow", content="again")
    assert again["result"]["content"] == "slow: again"


@pytest.mark.requirement("O-84", "O-85")
async def test_an_idle_peer_is_hung_up_on_and_one_that_waits_for_an_answer_is_not() -> None:
    idle = 0.2
    async with served(mail={"idle_seconds": idle}) as (room, paths), raw_peer(paths) as peer:
        params = {"name": "send_message", "arguments": {"to": "slow", "content": "hi"}}
        peer.write({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        await asyncio.sleep(5 * idle)  # this is the time of which it is asked
        room.gate.set()
        assert (await peer.read())["result"]["content"] == "slow: hi"
        async with asyncio.timeout(SECONDS):
            assert await peer.reader.read() == b""


@pytest.mark.requirement("O-84")
async def test_a_ping_keeps_a_peer_from_being_idle() -> None:
    now = 0.0
    room, (here, there_) = Room(), channel_pair()
    async with room.open_client(0) as client:
        tools = Tools(client, Caller(), send_seconds=10)
        peer = Peer(tools, idle_seconds=120, now=lambda: now)
        async with (
            peer.builder.connect(there_),
            Connection.builder().connect(here) as connection,
        ):
            for _ in range(3):
                now += 119
                assert peer.seconds_left == 1
                assert await connection.request("ping") == {}
                assert peer.seconds_left == 120
            calling = asyncio.create_task(
                connection.request("tools/call", {"name": "send_message", "arguments": SLOW})
            )
            await asyncio.wait_for(room.waiting.wait(), SECONDS)
            now += 300
            assert peer.seconds_left == 120
            room.gate.set()
            await calling
            now += 120
            assert peer.seconds_left == 0


async def test_the_socket_is_for_its_owner_and_is_made_anew_when_it_is_gone() -> None:
    async with served() as (_, paths):
        mode = stat.S_IMODE(os.lstat(paths.mcp_socket).st_mode)
        assert mode == 0o600
        paths.mcp_socket.unlink()
        await there(paths.mcp_socket)
        async with raw_peer(paths) as peer:
            assert (await peer.ask("ping"))["result"] == {}
    assert not paths.mcp_socket.exists()


# The other tools


async def test_the_room_is_listed() -> None:
    async with served() as (_, paths), raw_peer(paths, BOSS) as peer:
        answer = await peer.call("list_agents")
    lines = answer["result"]["content"].splitlines()
    assert lines[0] == "grand_boss (claude) idle - this is you"
    assert len(lines) == 3


async def test_messages_are_read_and_answered() -> None:
    async with (
        served() as (room, paths),
        raw_peer(paths, BOSS) as boss,
        raw_peer(paths, "secret-of-manager") as manager,
    ):
        await boss.call("send_message", to="middle_manager", content="分解して", wait=False)
        inbox = await manager.call("inbox")
        assert inbox["result"]["content"] == (
            "[from grand_boss] message m-1 (task_request)\n分解して"
        )
        await manager.call("reply", content="できました", message_id="m-1")
        await manager.call("reply", content="半分", status="progress")
        await manager.call("inbox", peek=True, limit="5")  # models write numbers as texts, too
    final, progress = room.asked(talk.ReplyMessage)
    assert (final.to_message, final.type) == ("m-1", MessageType.TASK_RESPONSE)
    assert (progress.to_message, progress.type) == ("", MessageType.PROGRESS)
    assert [each.take for each in room.asked(talk.ReadInbox)] == [True, False]
    assert room.asked(talk.ReadInbox)[1].limit == 5


async def test_tasks_are_looked_at_listed_and_cancelled() -> None:
    async with served() as (room, paths), raw_peer(paths, BOSS) as peer:
        assert "nobody" in (await peer.call("task"))["result"]["content"]
        await peer.call("send_message", to="silent", content="hi", wait=False)
        looked = await peer.call("task", id="m-1")
        assert looked["result"]["content"] == "m-1 for silent is working (seen)"
        assert "m-1 for silent" in (await peer.call("task"))["result"]["content"]
        await peer.call("task", id="m-1", timeout_seconds=1)
        ended = await peer.call("task", id="m-1", cancel=True)
        assert "canceled" in ended["result"]["content"]
    [waited] = room.asked(talk.WaitMessage)
    assert (waited.until, waited.timeout_seconds) == ("ended", 1)
    [cancelled] = room.asked(talk.CancelTask)
    assert cancelled.secret == BOSS


async def test_an_agent_says_what_it_is_doing() -> None:
    hello = {"secret": BOSS, "pid": 4711, "cwd": "/src", "tmux": "/tmp/t,1,0", "tmux_pane": "%3"}
    async with served() as (room, paths), raw_peer(paths) as peer:
        peer.write({"jsonrpc": "2.0", "method": "bullpen/hello", "params": hello})
        answer = await peer.call("report", activity="running", title="the index")
    assert answer["result"]["content"] == "grand_boss is running"
    [said] = room.asked(methods.Report)
    assert (said.name, said.activity, said.title) == ("grand_boss", "running", "the index")
    assert (said.pid, said.cwd, said.tmux_pane) == (4711, "/src", "%3")


@pytest.mark.requirement("O-61")
async def test_the_user_is_asked() -> None:
    async with served() as (room, paths), raw_peer(paths, BOSS) as peer:
        answer = await peer.call("ask_user", question="which one?", timeout_seconds=60)
    assert answer["result"]["content"] == "user: which one?"
    assert room.asked(talk.SendMessage)[0].to == "user"
    assert room.asked(talk.WaitMessage)[0].timeout_seconds == 60


async def test_a_secret_that_nobody_was_given_is_refused() -> None:
    async with served() as (_, paths), raw_peer(paths, "made-up") as peer:
        answer = await peer.call("send_message", to="middle_manager", content="hi")
    assert answer["error"]["code"] == -32065
    assert answer["error"]["data"]["reason"] == "identity_unknown"
