"""The official SDK: the one place that knows it. Importing this takes a second; see `peer`."""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from msgspec import UNSET

from bullpen.connection import RpcError
from bullpen.jsonrpc.errors import INVALID_REQUEST
from bullpen.model.version import VERSION
from bullpen.servers.mcp.catalogue import INSTRUCTIONS, TOOLS
from bullpen.servers.mcp.refusals import UnknownTool
from bullpen.servers.mcp.session import Said, Session
from bullpen.servers.mcp.tools import Answer, Tools

__all__ = ["drive", "make_server"]

PROGRESS_SECONDS = 10.0  # some clients wait longer for a call of which they hear something

FindTools = Callable[[Any], Tools]
"""Returns whose tools are called, by what the transport said of the request."""

_Context = ServerRequestContext[Any, Any]


def make_server(find_tools: FindTools) -> "Server[Any]":
    """Return a server of the tools. It serves any number of peers at once."""
    listed = types.ListToolsResult(
        tools=[types.Tool.model_validate(tool) for tool in TOOLS.values()]
    )

    async def list_tools(
        _: _Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return listed

    async def call_tool(
        context: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        async with _reporting_progress(context):
            try:
                answer = await find_tools(context.request).call(params.name, params.arguments)
                return _result(answer)
            except UnknownTool as error:
                failure = error
            except RpcError as error:
                return _failed(error)
        raise MCPError(code=failure.code, message=failure.message, data=failure.data)

    return Server(
        "bullpen",
        version=VERSION,
        title="bullpen",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def drive(session: Session) -> None:
    """Let the SDK serve a session until this is cancelled."""
    server = make_server(lambda tools: tools)
    async with create_client_server_memory_streams() as ((out, into), (inbound, outbound)):
        feeding = asyncio.create_task(_feed(session, into.send), name="mcp:feed")
        hearing = asyncio.create_task(_hear(session, out), name="mcp:hear")
        try:
            await server.run(inbound, outbound, server.create_initialization_options())
        finally:
            feeding.cancel()
            hearing.cancel()
            await asyncio.wait([feeding, hearing])


async def _feed(session: Session, send: Callable[[SessionMessage], Awaitable[None]]) -> None:
    metadata = ServerMessageMetadata(request_context=session.tools)
    while True:
        said = await session.unread.get()
        try:
            message = _message(said)
        except ValueError:  # as of a text that is none
            refusal = RpcError(INVALID_REQUEST, "Invalid Request: not readable")
            session.settle(said.number, error=refusal)
        else:
            await send(SessionMessage(message, metadata))


def _message(said: Said) -> types.JSONRPCRequest | types.JSONRPCNotification:
    if said.number is None:
        return types.JSONRPCNotification(jsonrpc="2.0", method=said.method, params=said.params)
    return types.JSONRPCRequest(
        jsonrpc="2.0", id=said.number, method=said.method, params=said.params
    )


async def _hear(session: Session, out: AsyncIterable[SessionMessage | Exception]) -> None:
    async for each in out:
        match each.message if isinstance(each, SessionMessage) else None:
            case types.JSONRPCResponse(id=number, result=result):
                session.settle(number, result)
            case types.JSONRPCError(id=number, error=error):
                data = UNSET if error.data is None else error.data
                session.settle(number, error=RpcError(error.code, error.message, data))
            case types.JSONRPCNotification(method=method, params=params):
                await session.notify(method, UNSET if params is None else params)
            case _:  # we ask our peers for nothing
                pass


@contextlib.asynccontextmanager
async def _reporting_progress(context: _Context) -> AsyncIterator[None]:
    """Let a caller who wants to know hear that we are still at it."""

    async def report() -> None:
        for step in range(1, 1_000_000):
            await asyncio.sleep(PROGRESS_SECONDS)
            await context.session.report_progress(step, message="waiting for the answer")

    if context.meta is None or context.meta.get("progress_token") is None:
        yield
        return
    reporting = asyncio.create_task(report(), name="mcp:progress")
    try:
        yield
    finally:
        reporting.cancel()
        await asyncio.wait([reporting])


def _result(answer: Answer) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=answer.content)],
        structured_content=answer.facts,
        is_error=answer.is_error,
    )


def _failed(error: RpcError) -> types.CallToolResult:
    """Return what a model is told, so that it can mend it, and the same for programs."""
    told: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not UNSET:
        told["data"] = error.data
    facts: dict[str, Any] = getattr(error, "facts", {})
    text = error.message
    if message_id := facts.get("message_id"):
        text += (
            f". The message {message_id} is kept ({facts.get('state', 'accepted')}): "
            "look at it with `task`"
        )
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content={"error": told, **facts},
        is_error=True,
    )
