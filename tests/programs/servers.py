"""Real agent programs in server mode, started for one test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.connection.router import MessageRouter
from bullpen.connection.transports.subprocess import ServerProcessTransport, SubprocessTransport
from bullpen.jsonrpc.framing import ContentLengthFramer
from bullpen.testing.models import ModelServer
from bullpen.testing.programs import MODEL, Launch, NodeMissing, copilot_provider, ensure, launch


async def recipe(name: str, mode: str, home: Path, models: ModelServer) -> Launch:
    """Return how to start a program against a model server, or skip where it cannot be had."""
    project = home / "project"
    project.mkdir(exist_ok=True)

    def prepare() -> Launch:
        ensure(name)
        return launch(name, mode, home=home / "private", model_url=models.url, project=project)

    try:
        return await asyncio.to_thread(prepare)
    except NodeMissing as missing:
        pytest.skip(str(missing))


@asynccontextmanager
async def copilot(
    name: str, home: Path, models: ModelServer, *, over: str = "stdio"
) -> AsyncIterator[tuple[MessageRouter, int]]:
    """Start a Copilot CLI server; yield its router and its process id."""
    started = await recipe(name, over, home, models)
    kind = SubprocessTransport if over == "stdio" else ServerProcessTransport
    transport = kind(started.argv, env=started.env, cwd=started.cwd, framer=ContentLengthFramer())
    async with await MessageRouter.open(transport) as router:
        assert transport.pid is not None
        yield router, transport.pid


def session(models: ModelServer, **more: Any) -> dict[str, Any]:
    """Return the params of a session that speaks with the model server."""
    return {
        "model": MODEL,
        "streaming": True,
        "requestPermission": True,
        "provider": copilot_provider(models.url),
        **more,
    }


WEATHER = {
    "name": "get_weather",
    "description": "Tells the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
