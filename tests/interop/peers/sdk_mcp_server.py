"""An MCP server written with the official SDK, on stdio."""

import asyncio

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("sdk-server", version="1.0")
was_cancelled = asyncio.Event()


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def count(to: int, context: Context) -> str:
    """Report progress step by step."""
    for step in range(1, to + 1):
        await context.report_progress(step, to, f"step {step}")
    return "done"


@server.tool()
async def fail() -> str:
    """Fail."""
    raise ToolError("no luck today")


@server.tool()
async def wait(context: Context) -> str:
    """Say that it has begun, and never end."""
    await context.report_progress(0)
    try:
        await asyncio.Event().wait()
    finally:
        was_cancelled.set()
    return "never"


@server.tool()
async def wait_for_cancel() -> str:
    """Return when `wait` has been cancelled."""
    await was_cancelled.wait()
    return "cancelled"


if __name__ == "__main__":
    server.run()
