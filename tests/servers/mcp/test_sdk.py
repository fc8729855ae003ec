"""Peers that speak MCP are served by the official SDK: through the pump, and over HTTP."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from bullpen.api import talk
from bullpen.api.runtime import Paths
from bullpen.servers.mcp.catalogue import INSTRUCTIONS, SEND_MESSAGE, TOOLS
from tests.cli.commands import PROGRAM
from tests.servers.mcp.room import SECONDS, RawPeer, raw_peer, served

pytestmark = pytest.mark.timeout(120)  # importing the SDK takes one second, or ten

BOSS = "secret-of-boss"

OpenClient = Callable[[Paths, str], AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def through_the_pump(_: Paths, mode: Any = "legacy") -> AsyncIterator[Client]:
    environment = dict(os.environ) | {"BULLPEN_SECRET": BOSS}
    server = StdioServerParameters(command=PROGRAM, args=["mcp"], env=environment)
    async with asyncio.timeout(SECONDS * 3), Client(server, mode=mode) as client:
        yield client


@asynccontextmanager
async def over_http(paths: Paths, mode: Any = "legacy") -> AsyncIterator[Client]:
    url = await http_url(paths)
    headers = {"Authorization": f"Bearer {BOSS}"}
    async with (
        asyncio.timeout(SECONDS * 3),
        httpx2.AsyncClient(headers=headers, timeout=SECONDS * 3, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


async def http_url(paths: Paths) -> str:
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return f"http://127.0.0.1:{int(paths.mcp_port.read_text())}/mcp"
            except OSError:
                await asyncio.sleep(0.01)


ways = pytest.mark.parametrize(
    ("way", "mode"),
    [
        pytest.param(through_the_pump, "legacy", id="pump"),
        pytest.param(through_the_pump, "2026-07-28", id="pump-modern"),
        pytest.param(over_http, "legacy", id="http"),
        pytest.param(over_http, "2026-07-28", id="http-modern"),
    ],
)


def text(result: Any) -> str:
    [content] = result.content
    return str(content.text)


@ways
async def test_the_client_of_the_sdk_lists_the_tools_and_calls_them(
    way: OpenClient, mode: str
) -> None:
    async with served(http=way is over_http) as (room, paths), way(paths, mode) as client:
        listed = {each.name: each for each in (await client.list_tools()).tools}
        assert set(listed) == set(TOOLS)
        assert SEND_MESSAGE in str(listed["send_message"].description)
        assert listed["send_message"].input_schema["required"] == ["to", "content"]
        arguments = {"to": "middle_manager", "content": "分解して", "thinking": "急ぎ"}
        answer = await client.call_tool("send_message", arguments)
        assert not answer.is_error
        assert text(answer) == "middle_manager: 分解して"
        assert answer.structured_content == {
            "content": "middle_manager: 分解して",
            "thinking": "簡単です",
            "message_id": "m-1",
            "state": "answered",
        }
        listing = await client.call_tool("list_agents", {})
        assert listing.structured_content is not None
        assert listing.structured_content["you"] == "grand_boss"
    assert [each.from_agent for each in room.messages.values()] == ["grand_boss"]


@ways
async def test_what_goes_wrong_is_told_to_the_model_and_what_is_no_tool_to_the_program(
    way: OpenClient, mode: str
) -> None:
    async with served(http=way is over_http) as (_, paths), way(paths, mode) as client:
        lost = await client.call_tool("send_message", {"to": "ghost", "content": "hi"})
        assert lost.is_error
        assert "there is no agent 'ghost'" in text(lost)
        assert lost.structured_content is not None
        assert lost.structured_content["error"]["code"] == -32000
        wrong = await client.call_tool("send_message", {"content": "hi"})
        assert wrong.is_error
        assert "`to`" in text(wrong)
        late = await client.call_tool(
            "send_message", {"to": "silent", "content": "hi", "timeout_seconds": 1}
        )
        assert late.is_error
        assert "m-1 is kept (seen)" in text(late)
        assert late.structured_content == {
            "error": {
                "code": -32001,
                "message": "Timeout: no answer from silent within 1 s",
                "data": {"timeout_seconds": 1, "agent_id": "silent"},
            },
            "message_id": "m-1",
            "state": "seen",
        }
        with pytest.raises(MCPError, match="Unknown tool: nope") as caught:
            await client.call_tool("nope", {})
        assert caught.value.error.code == -32602


async def test_a_caller_who_gives_up_and_one_who_wants_to_know_of_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bullpen.servers.mcp import sdk

    monkeypatch.setattr(sdk, "PROGRESS_SECONDS", 0.02)
    told = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.set()

    async with served() as (room, paths), through_the_pump(paths) as client:
        arguments = {"to": "slow", "content": "hi"}
        call = asyncio.create_task(
            client.call_tool("send_message", arguments, progress_callback=on_progress)
        )
        await asyncio.wait_for(told.wait(), SECONDS)
        call.cancel()
        await asyncio.wait([call])
        room.gate.set()
        again = await client.call_tool("send_message", arguments)
        assert text(again) == "slow: hi"
    assert len(room.messages) == 2


INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


async def initialize(peer: RawPeer, id: Any = "hello") -> Any:
    answer = await peer.ask("initialize", INITIALIZE, id)
    peer.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return answer["result"]


@pytest.mark.requirement("mcp:initialize")
async def test_tools_may_be_listed_before_initialize_and_after() -> None:
    async with served() as (_, paths), raw_peer(paths, BOSS) as peer:
        first = await peer.ask("tools/list", {})
        assert first["result"]["tools"][0]["description"] == SEND_MESSAGE
        plain = await peer.call("send_message", to="middle_manager", content="hi")
        assert plain["result"]["content"] == "middle_manager: hi"
        hello = await initialize(peer)
        assert hello["protocolVersion"] == "2025-06-18"
        assert hello["serverInfo"]["name"] == "bullpen"
        assert hello["instructions"] == INSTRUCTIONS
        second = await peer.ask("tools/list", {})
        assert second["result"]["tools"][0]["title"] == "Send a message"
        answer = await peer.call("send_message", to="middle_manager", content="hi")
        assert answer["result"]["content"] == [{"type": "text", "text": "middle_manager: hi"}]
        assert answer["result"]["structuredContent"]["thinking"] == "簡単です"
        assert answer["result"]["isError"] is False


@pytest.mark.requirement("O-70", "O-71", "O-72", "O-73")
async def test_a_bad_line_costs_a_peer_of_the_protocol_that_line() -> None:
    async with served() as (_, paths), raw_peer(paths) as peer:
        await initialize(peer)
        for line, code in (
            (b"hello there", -32700),
            (b'"\xff"', -32700),
            (b'{"id":1,"method":"ping"}', -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":"nope"}', -32601),
            (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}', -32602),
            (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}', -32602),
            (b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', -32601),
            (b"x" * 9_000_000, -32600),
        ):
            assert (await peer.exchange(line))["error"]["code"] == code, line[:80]
        [refused] = await peer.exchange([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
        assert refused["error"]["code"] == -32600
        assert (await peer.ask("ping", id="a"))["result"] == {}


async def test_what_is_said_at_once_is_taken_in_its_order() -> None:
    async with served() as (_, paths), raw_peer(paths) as peer:
        peer.write(
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": "0", "method": "tools/list"},
            {"jsonrpc": "2.0", "id": 0, "method": "ping"},  # an id that is in use
        )
        answers = [await peer.read() for _ in range(3)]
    assert all("result" in each for each in answers)
    assert sorted(str(each["id"]) for each in answers) == ["0", "0", "0"]


# Over HTTP


async def post(client: httpx2.AsyncClient, url: str, **headers: str) -> httpx2.Response:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
    accept = {"Accept": "application/json, text/event-stream"}
    return await client.post(url, json=ping, headers=accept | headers)


@pytest.mark.requirement("mcp:http")
async def test_a_port_is_open_to_who_shows_a_secret_or_the_token_and_to_no_page() -> None:
    async with (
        served(http=True) as (room, paths),
        httpx2.AsyncClient(timeout=SECONDS, trust_env=False) as client,
    ):
        url = await http_url(paths)
        token = paths.mcp_token.read_text().strip()
        for file in (paths.mcp_token, paths.mcp_port):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for wrong in ({}, {"Authorization": "Bearer ünknown"}, {"Authorization": token}):
            encoded: Any = {key: value.encode() for key, value in wrong.items()}
            assert (await post(client, url, **encoded)).status_code == 401, wrong
        good = {"Authorization": f"Bearer {token}"}
        assert (await post(client, url, **good)).status_code == 200
        assert (await post(client, url, **good, Origin="http://evil.test")).status_code == 403
        assert (await post(client, url, **good, Host="evil.test")).status_code == 421
        begun = await post(client, url, **good)
        session = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
        stolen = await post(client, url, Authorization=f"Bearer {BOSS}", **session)
        assert stolen.status_code == 404  # it is another's
    assert not paths.mcp_port.exists()
    assert [each.secret for each in room.asked(talk.WhoAmI)].count(BOSS) >= 1


async def test_a_port_that_is_taken_leaves_the_socket_served() -> None:
    async def listener() -> asyncio.Server:
        return await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)

    async with await listener() as other:
        port = other.sockets[0].getsockname()[1]
        async with served(http=True, http_port=port) as (_, paths), raw_peer(paths) as peer:
            assert (await peer.ask("ping"))["result"] == {}
            assert not paths.mcp_port.exists()
