"""Agents of the official SDK of A2A 0.3, with its own handler and store, one for each binding.

It prints where it serves. What an agent does is said by the message: see `Echo`. It is run by a
Python that has that SDK, which cannot be installed beside the one of 1.0. So nothing of it is known
to who checks the types of this file.
"""

import asyncio
import importlib
import socket
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

apps: Any = importlib.import_module("a2a.server.apps")
execution: Any = importlib.import_module("a2a.server.agent_execution")
handlers: Any = importlib.import_module("a2a.server.request_handlers")
tasks: Any = importlib.import_module("a2a.server.tasks")
types: Any = importlib.import_module("a2a.types")
utils: Any = importlib.import_module("a2a.utils")

LOOK_SECONDS = 0.02


class Echo(execution.AgentExecutor):  # type: ignore[misc]
    """Says what it was told; but some things otherwise.

    `ask` is answered with a question, `wait` never, and `words PATH` with two words, the second
    when there is a file at that path.
    """

    async def execute(self, context: Any, event_queue: Any) -> None:
        task = context.current_task
        if task is None:
            task = utils.new_task(context.message)
            await event_queue.enqueue_event(task)
        updater = tasks.TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        match context.get_user_input():
            case "wait":
                await asyncio.Event().wait()
            case "ask":
                await updater.requires_input(updater.new_agent_message(parts("which?")), final=True)
                return
            case text if text.startswith("words "):
                for is_last, word in ((False, "one "), (True, "two")):
                    if is_last:
                        await asyncio.to_thread(wait_for, Path(text.split()[1]))
                    await updater.add_artifact(
                        parts(word), artifact_id="a", append=is_last, last_chunk=is_last
                    )
            case text:
                await updater.add_artifact(parts(f"echo: {text}"))
        await updater.complete()

    async def cancel(self, context: Any, event_queue: Any) -> None:
        task = context.current_task
        await tasks.TaskUpdater(event_queue, task.id, task.context_id).cancel()


def parts(text: str) -> Any:
    return [types.Part(root=types.TextPart(text=text))]


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(LOOK_SECONDS)


def agent(binding: str, url: str) -> Any:
    """Return an agent that is spoken to by a binding."""
    card = types.AgentCard(
        name=f"SDK {binding}",
        description="an agent of the official SDK",
        version="1",
        url=url,
        preferred_transport=binding,
        capabilities=types.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[types.AgentSkill(id="echo", name="Echo", description="echoes", tags=["echo"])],
    )
    handler = handlers.DefaultRequestHandler(
        agent_executor=Echo(), task_store=tasks.InMemoryTaskStore()
    )
    if binding == "JSONRPC":
        made = apps.A2AStarletteApplication(agent_card=card, http_handler=handler)
        return made.build(rpc_url="/spoken")
    return apps.A2ARESTFastAPIApplication(agent_card=card, http_handler=handler).build()


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        mounts = [
            Mount("/rpc", app=agent("JSONRPC", f"{base}/rpc/spoken")),
            Mount("/rest", app=agent("HTTP+JSON", f"{base}/rest")),
        ]
        sys.stdout.write(f"{base}\n")
        sys.stdout.flush()
        server = uvicorn.Server(uvicorn.Config(Starlette(routes=mounts), log_config=None))
        server.run(sockets=[listening])


if __name__ == "__main__":
    main()
