"""The echo agent of the official SDK, as its documents build one: `python -m bench.sdk_agent`.

Its default request handler with its memory store, its JSON-RPC routes, Starlette and uvicorn, with
nothing but defaults and no log. The agent says what it was told, and takes no time. It prints the
port it serves.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from starlette.applications import Starlette

from bench.beside import beside

__all__ = ["PATH", "default_handler", "sdk_agent"]

PATH = "/"


@asynccontextmanager
async def sdk_agent() -> AsyncIterator[tuple[int, int]]:
    """Have such an agent for a block. Yields its pid and its port."""
    async with beside("bench.sdk_agent") as agent:
        yield agent.pid, int(agent.said)


class Echo(AgentExecutor):
    """Says what it was told."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        task = pb.Task(id=context.task_id, context_id=context.context_id)
        task.status.state = pb.TaskState.TASK_STATE_SUBMITTED
        if context.message is not None:
            task.history.append(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        text = f"You said: {context.get_user_input()}"
        await updater.start_work()
        await updater.add_artifact([pb.Part(text=text)], name="answer")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def default_handler() -> DefaultRequestHandler:
    """Return the SDK's own handler for such an agent, with its memory store."""
    card = pb.AgentCard(
        name="echo",
        version="1",
        capabilities=pb.AgentCapabilities(streaming=True),
        supported_interfaces=[
            pb.AgentInterface(
                url="http://127.0.0.1/", protocol_binding="JSONRPC", protocol_version="1.0"
            )
        ],
    )
    return DefaultRequestHandler(Echo(), InMemoryTaskStore(), card)


def main() -> None:
    """Serve until ended."""
    logging.disable(logging.CRITICAL)
    app = Starlette(routes=create_jsonrpc_routes(default_handler(), PATH))
    # Named, as uvicorn's own is: else asyncio leaves Nagle's algorithm on, which costs 40 ms each.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        print(listening.getsockname()[1], flush=True)
        config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False)
        asyncio.run(uvicorn.Server(config).serve(sockets=[listening]), debug=False)


if __name__ == "__main__":
    main()
