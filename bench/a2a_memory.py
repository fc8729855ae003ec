"""What is resident in a daemon with twenty wrapped agents, server by server, each when it is used.

Nothing heavy is loaded before somebody asks for it, so the daemon is looked at after each: with
its agents alone; when every agent was asked over HTTP in both dialects, by JSON-RPC, REST and a
stream; when somebody has used MCP, over HTTP, from the beginning of a session to its tools; and
when gRPC was used, if it is installed. The agents' wrappers are processes of their own.
"""

import asyncio
import importlib.util
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import psutil
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bench.a2a import a2a_port
from bench.figure import Figure
from bench.talk import limited, loaded, talking_daemon
from bench.web import Web, post, request
from bench.wrapped_tasks import until_ready, wrapped_dummy
from bullpen.api.runtime import Paths

__all__ = ["run"]

ROW = "a2a-memory"
AGENTS = 20
MEGABYTES = 160.0
SETTLE_SECONDS = 2.0
SECONDS = 60.0


async def run(quick: bool) -> list[Figure]:
    names = [f"dummy-{number}" for number in range(2 if quick else AGENTS)]
    async with (
        talking_daemon(beside=None, BULLPEN_MCP_HTTP="true") as (pid, home, callers),
        AsyncExitStack() as stack,
    ):
        found = {"a daemon that was just started": await resident(pid)}
        for name in names:
            await stack.enter_async_context(wrapped_dummy(home, name))
        user = await callers.user()
        for name in names:
            await until_ready(user, name)
        found["with twenty wrapped agents"] = await resident(pid)
        async with asyncio.timeout(SECONDS):
            for name in names:
                await use_a2a(await a2a_port(home), name)
            found["… and A2A over HTTP, used by all"] = await resident(pid)
            await use_mcp(home)
            found["… and MCP, used"] = await resident(pid)
            if importlib.util.find_spec("grpc") is not None:
                await use_grpc(await a2a_port(home), names)
                found["… and gRPC, used by all"] = await resident(pid)
    *before, (last, most) = found.items()
    return [
        loaded(ROW),
        *(
            limited(ROW, f"resident, {what}", ours, MEGABYTES, "MB", counts=False)
            for what, ours in before
        ),
        limited(ROW, f"resident, {last}", most, MEGABYTES, "MB"),
    ]


async def resident(pid: int) -> float:
    """Return what a process holds, in MB, after a moment."""
    await asyncio.sleep(SETTLE_SECONDS)
    return float(psutil.Process(pid).memory_info().rss) / 1e6


async def use_a2a(port: int, agent: str) -> None:
    """Ask an agent in every way there is over HTTP."""
    base = f"/agents/{agent}"
    web = await Web.connect(port)
    for path in ("/.well-known/agent.json", "/.well-known/agent-card.json", "/status", "/tasks"):
        await web.exchange(request("GET", f"{base}{path}"))
    said = {"role": "user", "parts": [{"type": "text", "text": "hello"}]}
    await web.exchange(post(f"{base}/tasks/send-priority?priority=3", {"message": said}))
    newest = {"messageId": f"bench-{agent}", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    await web.exchange(post(f"{base}/a2a/rest/message:send", {"message": newest}))
    newest = {**newest, "messageId": f"bench-2-{agent}"}
    call = {"jsonrpc": "2.0", "id": 1, "params": {"message": newest}}
    await web.begin(post(f"{base}/a2a/jsonrpc", {**call, "method": "SendStreamingMessage"}))
    while await web.event() is not None:
        pass
    web.close()


async def use_mcp(home: Path) -> None:
    """Begin a session, see which tools there are, and use one, with the official client."""
    paths = Paths.resolve({"BULLPEN_HOME": str(home / "bullpen"), "HOME": str(home)})
    headers = {"Authorization": f"Bearer {paths.mcp_token.read_text().strip()}"}
    url = f"http://127.0.0.1:{int(paths.mcp_port.read_text())}/mcp"
    async with (
        httpx2.AsyncClient(headers=headers, timeout=SECONDS, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        await client.list_tools()
        await client.call_tool("list_agents", {})


async def use_grpc(port: int, agents: Sequence[str]) -> None:
    """Ask each agent for its tasks, at the address that its card has."""
    import grpc
    from a2a.types import a2a_pb2 as pb
    from a2a.types.a2a_pb2_grpc import A2AServiceStub

    web = await Web.connect(port)
    for agent in agents:
        card = await web.ask("GET", f"/agents/{agent}/.well-known/agent-card.json")
        [where] = [
            each["url"] for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC"
        ]
        async with grpc.aio.insecure_channel(where) as channel:
            ask = A2AServiceStub(channel).ListTasks  # type: ignore[no-untyped-call]
            await ask(pb.ListTasksRequest(), metadata=(("a2a-version", "1.0"),))
    web.close()
