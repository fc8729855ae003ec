"""ACP with the official SDK at the other end, each side once the agent."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acp import Client, RequestError, spawn_agent_process, text_block
from acp.schema import (
    AgentMessageChunk,
    AllowedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallUpdate,
)

from bullpen.connection import (
    ACP,
    Connection,
    Context,
    RemoteError,
    SubprocessTransport,
    channel_pair,
)
from tests.interop.peers.our_acp_agent import acp_agent

PEERS = Path(__file__).parent / "peers"
SECONDS = 50  # importing the SDK takes one, or ten on a busy machine


class OurClient:
    """As much of an ACP client as the tests need. It allows whatever it is asked."""

    connection: Connection

    def __init__(self) -> None:
        self.chunks: asyncio.Queue[str] = asyncio.Queue()
        self.asked: list[str] = []

    def on_update(self, params: dict[str, Any], context: Context) -> None:
        assert params["sessionId"] == "session-1"
        assert params["update"]["sessionUpdate"] == "agent_message_chunk"
        self.chunks.put_nowait(params["update"]["content"]["text"])

    async def on_permission(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        self.asked.append(params["toolCall"]["title"])
        allow = next(o["optionId"] for o in params["options"] if o["kind"] == "allow_once")
        return {"outcome": {"outcome": "selected", "optionId": allow}}

    async def prompt(self, text: str) -> Any:
        prompt = [{"type": "text", "text": text}]
        params = {"sessionId": "session-1", "prompt": prompt}
        return await self.connection.request("session/prompt", params)

    def heard(self) -> list[str]:
        return [self.chunks.get_nowait() for _ in range(self.chunks.qsize())]


@asynccontextmanager
async def of_the_sdk_over_stdio() -> AsyncIterator[OurClient]:
    """Our client of the SDK's agent."""
    transport = SubprocessTransport([sys.executable, PEERS / "sdk_acp_agent.py"])
    async with our_client(transport) as client:
        yield client


@asynccontextmanager
async def of_ours_over_stdio() -> AsyncIterator[OurClient]:
    """Our client of our agent, as a program."""
    transport = SubprocessTransport([sys.executable, PEERS / "our_acp_agent.py"])
    async with our_client(transport) as client:
        yield client


@asynccontextmanager
async def of_ours_over_a_channel() -> AsyncIterator[OurClient]:
    """Our client of our agent, in this process."""
    here, there = channel_pair()
    async with acp_agent().connect(there), our_client(here) as client:
        yield client


@asynccontextmanager
async def our_client(transport: Any) -> AsyncIterator[OurClient]:
    client = OurClient()
    builder = (
        Connection.builder()
        .dialect(ACP)
        .on_notification("session/update", client.on_update)
        .on_request("session/request_permission", client.on_permission)
    )
    async with asyncio.timeout(SECONDS), builder.connect(transport) as connection:
        client.connection = connection
        hello = await connection.request(
            "initialize", {"protocolVersion": 1, "clientCapabilities": {}}
        )
        assert hello["protocolVersion"] == 1
        assert hello["agentInfo"]["name"] in ("sdk-agent", "our-agent")
        params = {"cwd": str(PEERS), "mcpServers": []}
        assert (await connection.request("session/new", params))["sessionId"] == "session-1"
        yield client


agents = pytest.mark.parametrize(
    "open_client", [of_the_sdk_over_stdio, of_ours_over_stdio, of_ours_over_a_channel]
)
OpenClient = Callable[[], AbstractAsyncContextManager[OurClient]]


@pytest.mark.requirement("T-29", "T-47")
@agents
async def test_our_client_hears_a_turn_word_by_word_and_gives_leave(
    open_client: OpenClient,
) -> None:
    async with open_client() as client:
        assert await client.prompt("to be or not") == {"stopReason": "end_turn"}
        assert client.heard() == ["to", "be", "or", "not", "yes"]
        assert client.asked == ["write a file"]


@agents
async def test_our_client_cancels_a_turn(open_client: OpenClient) -> None:
    async with open_client() as client:
        turn = asyncio.create_task(client.prompt("wait"))
        assert await client.chunks.get() == "wait"  # it has begun
        await client.connection.notify("session/cancel", {"sessionId": "session-1"})
        assert await turn == {"stopReason": "cancelled"}


@agents
async def test_our_client_may_stop_waiting_for_a_turn_and_go_on(open_client: OpenClient) -> None:
    async with open_client() as client:
        turn = asyncio.create_task(client.prompt("wait"))
        assert await client.chunks.get() == "wait"
        turn.cancel()  # says `$/cancel_request`, which the SDK does not know
        assert await client.prompt("again") == {"stopReason": "end_turn"}
        assert client.heard() == ["again", "yes"]
        assert turn.cancelled()


@agents
async def test_our_client_learns_of_errors_and_goes_on(open_client: OpenClient) -> None:
    async with open_client() as client:
        with pytest.raises(RemoteError) as caught:
            await client.connection.request("no/such/method")
        assert caught.value.code == -32601
        with pytest.raises(RemoteError) as caught:
            await client.connection.request("session/prompt", {"sessionId": "session-1"})
        assert caught.value.code == -32602
        assert await client.prompt("still") == {"stopReason": "end_turn"}


class SdkClient(Client):
    """A client written with the SDK. It allows whatever it is asked."""

    def __init__(self) -> None:
        self.chunks: asyncio.Queue[str] = asyncio.Queue()
        self.asked: list[str | None] = []

    async def request_permission(
        self,
        session_id: str,
        tool_call: ToolCallUpdate,
        options: list[PermissionOption],
        **kwargs: Any,
    ) -> RequestPermissionResponse:
        self.asked.append(tool_call.title)
        allow = next(option for option in options if option.kind == "allow_once")
        outcome = AllowedOutcome(outcome="selected", option_id=allow.option_id)
        return RequestPermissionResponse(outcome=outcome)

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        assert isinstance(update, AgentMessageChunk)
        assert isinstance(update.content, TextContentBlock)
        self.chunks.put_nowait(update.content.text)


@pytest.mark.requirement("T-44")
async def test_the_client_of_the_sdk_has_turns_with_our_agent_on_stdio() -> None:
    # Not abstract: the SDK looks which of the methods of its protocol there are.
    client = SdkClient()  # type: ignore[abstract]
    command = (sys.executable, str(PEERS / "our_acp_agent.py"))
    async with asyncio.timeout(SECONDS), spawn_agent_process(client, *command) as (agent, process):
        hello = await agent.initialize(protocol_version=1)
        assert hello.agent_info is not None
        assert hello.agent_info.name == "our-agent"
        session = await agent.new_session(cwd=str(PEERS), mcp_servers=[])

        turn = await agent.prompt(
            session_id=session.session_id, prompt=[text_block("to be or not")]
        )
        assert turn.stop_reason == "end_turn"
        heard = [await client.chunks.get() for _ in range(5)]
        assert heard == ["to", "be", "or", "not", "yes"]
        assert client.asked == ["write a file"]

        waiting = asyncio.create_task(
            agent.prompt(session_id=session.session_id, prompt=[text_block("wait")])
        )
        assert await client.chunks.get() == "wait"
        await agent.cancel(session_id=session.session_id)
        assert (await waiting).stop_reason == "cancelled"

        with pytest.raises(RequestError) as caught:
            await agent.load_session(cwd=str(PEERS), session_id="other", mcp_servers=[])
        assert caught.value.code == -32601
    assert process.returncode == 0  # our agent ended by itself when its stdin did
