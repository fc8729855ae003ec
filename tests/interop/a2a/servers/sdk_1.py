"""Agents of the official SDK of A2A 1.0, with its own handler and store, one for each binding.

It prints where it serves. What an agent does is said by the message: see `Echo`.
"""

import asyncio
import socket
import sys
import time
from pathlib import Path

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount

LOOK_SECONDS = 0.02


class Echo(AgentExecutor):
    """Says what it was told; but some things otherwise.

    `ask` is answered with a question, `wait` never, and `words PATH` with two words, the second
    when there is a file at that path.
    """

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        assert context.task_id is not None
        assert context.context_id is not None
        if context.current_task is None:
            task = pb.Task(
                id=context.task_id, context_id=context.context_id, history=[context.message]
            )
            task.status.state = pb.TaskState.TASK_STATE_SUBMITTED
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        match context.get_user_input():
            case "wait":
                await asyncio.Event().wait()
            case "ask":
                question = updater.new_agent_message([pb.Part(text="which?")])
                await updater.requires_input(question)
                return
            case text if text.startswith("words "):
                for is_last, word in ((False, "one "), (True, "two")):
                    if is_last:
                        await asyncio.to_thread(wait_for, Path(text.split()[1]))
                    await updater.add_artifact(
                        [pb.Part(text=word)], artifact_id="a", append=is_last, last_chunk=is_last
                    )
            case text:
                await updater.add_artifact([pb.Part(text=f"echo: {text}")])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(LOOK_SECONDS)


def agent(binding: str, url: str) -> list[BaseRoute]:
    """Return the routes of an agent that is spoken to by a binding."""
    card = pb.AgentCard(
        name=f"SDK {binding}",
        description="an agent of the official SDK",
        version="1",
        supported_interfaces=[
            pb.AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0")
        ],
        capabilities=pb.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[pb.AgentSkill(id="echo", name="Echo", description="echoes", tags=["echo"])],
    )
    handler = DefaultRequestHandler(
        agent_executor=Echo(), task_store=InMemoryTaskStore(), agent_card=card
    )
    routes: list[BaseRoute] = list(create_agent_card_routes(card))
    if binding == "JSONRPC":
        return [*routes, *create_jsonrpc_routes(handler, rpc_url="/spoken")]
    return [*routes, *create_rest_routes(handler, path_prefix="/spoken")]


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        mounts = [
            Mount(f"/{place}", routes=agent(binding, f"{base}/{place}/spoken"))
            for place, binding in (("rpc", "JSONRPC"), ("rest", "HTTP+JSON"))
        ]
        sys.stdout.write(f"{base}\n")
        sys.stdout.flush()
        server = uvicorn.Server(uvicorn.Config(Starlette(routes=mounts), log_config=None))
        server.run(sockets=[listening])


if __name__ == "__main__":
    main()
