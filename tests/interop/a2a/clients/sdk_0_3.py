"""What the official Python client of A2A 0.3 sees of agents of ours: one line of JSON a step.

It is run by a Python that has that SDK, which cannot be installed beside the one of 1.0. So nothing
of it is known to who checks the types of this file.
"""

import asyncio
import importlib
import json
import sys
import uuid
from typing import Any

sdk: Any = importlib.import_module("a2a.client")
types: Any = importlib.import_module("a2a.types")
httpx: Any = importlib.import_module("httpx")

SECONDS = 100.0  # a hang, on however busy a machine


def tell(step: str, binding: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"step": step, "binding": binding, **facts}) + "\n")
    sys.stdout.flush()


def message(text: str, *, message_id: str = "", task_id: str | None = None) -> Any:
    return types.Message(
        message_id=f"{message_id}{uuid.uuid4()}",
        role="user",
        parts=[{"kind": "text", "text": text}],
        task_id=task_id,
    )


def state(task: Any) -> str:
    return str(task.status.state.value).replace("-", "_")


def words(*artifacts: Any) -> str:
    return "".join(part.root.text for each in artifacts for part in each.parts)


def told(task: Any) -> dict[str, str]:
    return {"id": task.id, "state": state(task), "text": words(*(task.artifacts or ()))}


async def send(client: Any, sent: Any) -> Any:
    [(task, _)] = [each async for each in client.send_message(sent)]
    return task


class Stream:
    """What was streamed."""

    def __init__(self) -> None:
        self.id = ""
        self.states: list[str] = []
        self.chunks: list[str] = []
        self.is_working = asyncio.Event()

    async def read(self, events: Any) -> None:
        async for task, update in events:
            self.id = task.id
            if update is None:
                self.chunks += [words(each) for each in task.artifacts or ()]
            if getattr(update, "artifact", None):
                self.chunks.append(words(update.artifact))
            else:
                self.states.append(state(update or task))
            if "working" in self.states:
                self.is_working.set()

    @property
    def facts(self) -> dict[str, Any]:
        return {"id": self.id, "states": self.states, "chunks": self.chunks}


async def talk(clients: dict[str, Any], binding: str) -> None:
    """Send something and wait for the answer, by every way there is."""
    plain, streaming, asking = clients["plain"], clients["streaming"], clients["asking"]
    card = await plain.get_card()
    tell("card", binding, name=card.name, streams=card.capabilities.streaming)
    done = await send(plain, message(f"hello {binding}"))
    tell("sent", binding, **told(done))
    tell("got", binding, **told(await plain.get_task(types.TaskQueryParams(id=done.id))))
    stream = Stream()
    await stream.read(streaming.send_message(message("stream")))
    tell("streamed", binding, **stream.facts)
    stream = Stream()
    chunked = message("go", message_id="tck-stream-artifact-chunked-")
    await stream.read(clients["chunking"].send_message(chunked))
    tell("chunked", binding, **stream.facts)
    asked = await send(asking, message("begin", message_id="tck-input-required-"))
    tell("asked", binding, **told(asked))
    tell("replied", binding, **told(await send(asking, message("go on", task_id=asked.id))))


async def follow(plain: Any, streaming: Any, binding: str, hook: str) -> None:
    """Follow a task that does not end, have somebody told of it, and cancel it."""
    task = await send(plain, message("wait"))
    config = types.PushNotificationConfig(url=hook, token=f"of {binding}", id="hook")
    wanted = types.TaskPushNotificationConfig(task_id=task.id, push_notification_config=config)
    await plain.set_task_callback(wanted)
    asked = types.GetTaskPushNotificationConfigParams(
        id=task.id, push_notification_config_id="hook"
    )
    found = (await plain.get_task_callback(asked)).push_notification_config
    tell("hooked", binding, url=found.url, token=found.token)
    stream = Stream()
    reading = asyncio.create_task(
        stream.read(streaming.resubscribe(types.TaskIdParams(id=task.id)))
    )
    await stream.is_working.wait()
    canceled = await plain.cancel_task(types.TaskIdParams(id=task.id))
    tell("canceled", binding, **told(canceled))
    await reading
    tell("followed", binding, **stream.facts)


async def main(dummy: str, patient: str, kit: str, hook: str) -> None:
    async with (
        httpx.AsyncClient(timeout=SECONDS, trust_env=False) as http,
        asyncio.timeout(SECONDS),
    ):
        for binding in ("JSONRPC", "HTTP+JSON"):

            async def open_client(url: str, **more: bool) -> Any:
                config = sdk.ClientConfig(
                    httpx_client=http,
                    supported_transports=[binding],  # noqa: B023 - of this round
                    **{"streaming": False, **more},
                )
                # Its card is where a client of 0.3 looks below this address.
                return await sdk.ClientFactory.connect(f"{url}/v0.3", client_config=config)

            await talk(
                {
                    "plain": await open_client(dummy),
                    "streaming": await open_client(dummy, streaming=True),
                    "asking": await open_client(kit),
                    "chunking": await open_client(kit, streaming=True),
                },
                binding,
            )
            plain = await open_client(patient, polling=True)
            streaming = await open_client(patient, streaming=True)
            await follow(plain, streaming, binding, f"{hook}?{binding}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
