"""An MCP server on our connection. As a program it serves stdio."""

import asyncio
from typing import Any

from bullpen.connection import MCP, Builder, Connection, Context, RpcError, StdioTransport

INVALID_PARAMS = -32602
TOOLS = ("add", "count", "fail", "wait", "wait_for_cancel")


def mcp_server() -> Builder:
    """Describe the server; the transport is somebody else's choice."""
    return (
        Connection.builder()
        .name("our-server")
        .dialect(MCP)
        .on_request("initialize", initialize)
        .on_request("tools/list", list_tools)
        .on_request("tools/call", _Tools().call)
    )


def initialize(params: dict[str, Any], _context: Context) -> dict[str, Any]:
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "our-server", "version": "1.0"},
    }


def list_tools(_params: Any, _context: Context) -> dict[str, Any]:
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}


class _Tools:
    def __init__(self) -> None:
        self._was_cancelled = asyncio.Event()

    async def call(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        name, arguments = params["name"], params.get("arguments") or {}
        match name:
            case "add":
                return text(str(arguments["a"] + arguments["b"]))
            case "count":
                for step in range(1, arguments["to"] + 1):
                    await report(params, context, step, arguments["to"])
                return text("done")
            case "fail":
                return {**text("no luck today"), "isError": True}
            case "wait":
                await report(params, context, 0)
                try:
                    await asyncio.Event().wait()
                finally:
                    self._was_cancelled.set()
            case "wait_for_cancel":
                await self._was_cancelled.wait()
                return text("cancelled")
        raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")


async def report(
    params: dict[str, Any], context: Context, step: int, total: int | None = None
) -> None:
    token = params.get("_meta", {}).get("progressToken")
    if token is not None:
        progress = {"progressToken": token, "progress": step, "message": f"step {step}"}
        if total is not None:
            progress["total"] = total
        await context.connection.notify("notifications/progress", progress)


def text(content: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": content}], "isError": False}


if __name__ == "__main__":
    asyncio.run(mcp_server().serve_with(StdioTransport()))
