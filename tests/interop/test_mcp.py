"""MCP with the official SDK at the other end, each side once the server."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters

from bullpen.connection import (
    MCP,
    Connection,
    Context,
    RemoteError,
    SubprocessTransport,
    channel_pair,
)
from tests.interop.peers.our_mcp_server import mcp_server

PEERS = Path(__file__).parent / "peers"
SECONDS = 50  # importing the SDK takes one, or ten on a busy machine
TOOLS = {"add", "count", "fail", "wait", "wait_for_cancel"}


class OurClient:
    """As much of an MCP client as the tests need."""

    def __init__(self, connection: Connection, progress: "asyncio.Queue[dict[str, Any]]") -> None:
        self.connection = connection
        self.progress = progress

    async def call(self, name: str, **arguments: Any) -> Any:
        params = {"name": name, "arguments": arguments, "_meta": {"progressToken": "token-1"}}
        return await self.connection.request("tools/call", params)


@asynccontextmanager
async def of_the_sdk_over_stdio() -> AsyncIterator[OurClient]:
    """Our client of the SDK's server."""
    transport = SubprocessTransport([sys.executable, PEERS / "sdk_mcp_server.py"])
    async with our_client(transport) as client:
        yield client


@asynccontextmanager
async def of_ours_over_stdio() -> AsyncIterator[OurClient]:
    """Our client of our server, as a program."""
    transport = SubprocessTransport([sys.executable, PEERS / "our_mcp_server.py"])
    async with our_client(transport) as client:
        yield client


@asynccontextmanager
async def of_ours_over_a_channel() -> AsyncIterator[OurClient]:
    """Our client of our server, in this process."""
    here, there = channel_pair()
    async with mcp_server().connect(there), our_client(here) as client:
        yield client


@asynccontextmanager
async def our_client(transport: Any) -> AsyncIterator[OurClient]:
    progress: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def on_progress(params: dict[str, Any], context: Context) -> None:
        progress.put_nowait(params)

    builder = (
        Connection.builder().dialect(MCP).on_notification("notifications/progress", on_progress)
    )
    async with asyncio.timeout(SECONDS), builder.connect(transport) as connection:
        hello = await connection.request(
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "our-client", "version": "1.0"},
            },
        )
        assert hello["protocolVersion"] == "2025-11-25"
        assert hello["serverInfo"]["name"] in ("sdk-server", "our-server")
        await connection.notify("notifications/initialized")
        yield OurClient(connection, progress)


servers = pytest.mark.parametrize(
    "open_client", [of_the_sdk_over_stdio, of_ours_over_stdio, of_ours_over_a_channel]
)
OpenClient = Callable[[], AbstractAsyncContextManager[OurClient]]


@pytest.mark.requirement("T-29", "T-47")
@servers
async def test_our_client_calls_the_tools_of_a_server(open_client: OpenClient) -> None:
    async with open_client() as client:
        listed = await client.connection.request("tools/list")
        assert {tool["name"] for tool in listed["tools"]} == TOOLS
        result = await client.call("add", a=2, b=3)
        assert result["content"][0]["text"] == "5"
        assert not result["isError"]


@servers
async def test_our_client_has_all_progress_before_the_result(open_client: OpenClient) -> None:
    async with open_client() as client:
        result = await client.call("count", to=100)
        assert result["content"][0]["text"] == "done"
        reports = [client.progress.get_nowait() for _ in range(100)]
        assert [report["progress"] for report in reports] == list(range(1, 101))
        assert {report["progressToken"] for report in reports} == {"token-1"}
        assert client.progress.empty()


@servers
async def test_our_client_learns_of_errors_and_goes_on(open_client: OpenClient) -> None:
    async with open_client() as client:
        with pytest.raises(RemoteError) as caught:
            await client.connection.request("no/such/method")
        assert caught.value.code == -32601
        failed = await client.call("fail")
        assert failed["isError"]
        assert "no luck today" in failed["content"][0]["text"]
        assert (await client.call("add", a=1, b=1))["content"][0]["text"] == "2"


@servers
async def test_our_client_cancels_a_call_at_the_server(open_client: OpenClient) -> None:
    async with open_client() as client:
        call = asyncio.create_task(client.call("wait"))
        await client.progress.get()  # it has begun
        call.cancel()
        cancelled = await client.call("wait_for_cancel")
        assert cancelled["content"][0]["text"] == "cancelled"
        assert call.cancelled()
        assert client.connection.stats().unknown_responses == 0  # a cancelled call has no answer


@pytest.mark.requirement("T-44")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_client_of_the_sdk_uses_our_server_on_stdio(mode: Any) -> None:
    steps: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert total == 10
        steps.append(progress)

    async with asyncio.timeout(SECONDS), Client(our_server(), mode=mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        assert text(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
        counted = await client.call_tool("count", {"to": 10}, progress_callback=on_progress)
        assert text(counted) == "done"
        assert steps == list(range(1, 11))
        failed = await client.call_tool("fail", {})
        assert failed.is_error
        with pytest.raises(MCPError, match="Unknown tool: nothing"):
            await client.call_tool("nothing", {})


async def test_the_client_of_the_sdk_cancels_a_call_at_our_server() -> None:
    has_begun = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        has_begun.set()

    async with asyncio.timeout(SECONDS), Client(our_server()) as client:
        call = asyncio.create_task(client.call_tool("wait", {}, progress_callback=on_progress))
        await has_begun.wait()
        call.cancel()
        assert text(await client.call_tool("wait_for_cancel", {})) == "cancelled"
        assert call.cancelled()


def our_server() -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=[str(PEERS / "our_mcp_server.py")])


def text(result: Any) -> str:
    return str(result.content[0].text)
