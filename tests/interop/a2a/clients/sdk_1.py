"""What the official Python client of A2A 1.0 sees of agents of ours: one line of JSON a step."""

import asyncio
import json
import sys
import uuid
from typing import Any

import httpx
from a2a.client import Client, ClientConfig, create_client
from a2a.types import a2a_pb2 as pb

SECONDS = 100.0  # a hang, on however busy a machine


def tell(step: str, binding: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"step": step, "binding": binding, **facts}) + "\n")
    sys.stdout.flush()


def message(text: str, *, message_id: str = "", task_id: str = "") -> pb.Message:
    return pb.Message(
        message_id=f"{message_id}{uuid.uuid4()}",
        role=pb.Role.ROLE_USER,
        parts=[pb.Part(text=text)],
        task_id=task_id,
    )


def state(task: pb.Task | pb.TaskStatusUpdateEvent) -> str:
    return pb.TaskState.Name(task.status.state).removeprefix("TASK_STATE_").lower()


def words(*artifacts: pb.Artifact) -> str:
    return "".join(part.text for each in artifacts for part in each.parts)


def told(task: pb.Task) -> dict[str, str]:
    return {"id": task.id, "state": state(task), "text": words(*task.artifacts)}


async def send(client: Client, sent: pb.Message, *, wait: bool = True) -> pb.Task:
    request = pb.SendMessageRequest(message=sent)
    request.configuration.return_immediately = not wait
    [found] = [each async for each in client.send_message(request)]
    return found.task


class Stream:
    """What was streamed."""

    def __init__(self) -> None:
        self.id = ""
        self.states: list[str] = []
        self.chunks: list[str] = []
        self.is_working = asyncio.Event()

    async def read(self, events: Any) -> None:
        async for each in events:
            match each.WhichOneof("payload"):
                case "task":
                    self.id = each.task.id
                    self.states.append(state(each.task))
                    self.chunks += [words(one) for one in each.task.artifacts]
                case "status_update":
                    self.states.append(state(each.status_update))
                case "artifact_update":
                    self.chunks.append(words(each.artifact_update.artifact))
            if "working" in self.states:
                self.is_working.set()

    @property
    def facts(self) -> dict[str, Any]:
        return {"id": self.id, "states": self.states, "chunks": self.chunks}


async def talk(clients: dict[str, Client], binding: str) -> None:
    """Send something and wait for the answer, by every way there is."""
    plain, streaming, asking = clients["plain"], clients["streaming"], clients["asking"]
    card = await plain.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
    tell("card", binding, name=card.name, streams=card.capabilities.streaming)
    done = await send(plain, message(f"hello {binding}"))
    tell("sent", binding, **told(done))
    tell("got", binding, **told(await plain.get_task(pb.GetTaskRequest(id=done.id))))
    listed = await plain.list_tasks(pb.ListTasksRequest(page_size=100))
    tell("listed", binding, has_it=done.id in [each.id for each in listed.tasks])
    stream = Stream()
    await stream.read(streaming.send_message(pb.SendMessageRequest(message=message("stream"))))
    tell("streamed", binding, **stream.facts)
    stream, chunked = Stream(), message("go", message_id="tck-stream-artifact-chunked-")
    await stream.read(clients["chunking"].send_message(pb.SendMessageRequest(message=chunked)))
    tell("chunked", binding, **stream.facts)
    asked = await send(asking, message("begin", message_id="tck-input-required-"))
    tell("asked", binding, **told(asked))
    tell("replied", binding, **told(await send(asking, message("go on", task_id=asked.id))))


async def follow(plain: Client, streaming: Client, binding: str, hook: str) -> None:
    """Follow a task that does not end, have somebody told of it, and cancel it."""
    task = await send(plain, message("wait"), wait=False)
    config = pb.TaskPushNotificationConfig(task_id=task.id, url=hook, token=f"of {binding}")
    made = await plain.create_task_push_notification_config(config)
    asked = pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id=made.id)
    found = await plain.get_task_push_notification_config(asked)
    tell("hooked", binding, url=found.url, token=found.token)
    of_task = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
    listed = await plain.list_task_push_notification_configs(of_task)
    tell("hooks", binding, urls=[each.url for each in listed.configs])
    stream = Stream()
    reading = asyncio.create_task(
        stream.read(streaming.subscribe(pb.SubscribeToTaskRequest(id=task.id)))
    )
    await stream.is_working.wait()
    tell("canceled", binding, **told(await plain.cancel_task(pb.CancelTaskRequest(id=task.id))))
    await reading
    tell("followed", binding, **stream.facts)
    spare = pb.TaskPushNotificationConfig(task_id=task.id, url=f"{hook}&spare", id="spare")
    await plain.create_task_push_notification_config(spare)
    removed = pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="spare")
    await plain.delete_task_push_notification_config(removed)
    left = await plain.list_task_push_notification_configs(of_task)
    tell("unhooked", binding, has_it="spare" in [each.id for each in left.configs])


async def main(dummy: str, patient: str, kit: str, hook: str) -> None:
    async with (
        httpx.AsyncClient(timeout=SECONDS, trust_env=False) as http,
        asyncio.timeout(SECONDS),
    ):
        for binding in ("JSONRPC", "HTTP+JSON"):

            async def open_client(url: str, *, streaming: bool = False) -> Client:
                config = ClientConfig(
                    httpx_client=http,
                    supported_protocol_bindings=[binding],  # noqa: B023 - of this round
                    streaming=streaming,
                )
                return await create_client(url, client_config=config)

            await talk(
                {
                    "plain": await open_client(dummy),
                    "streaming": await open_client(dummy, streaming=True),
                    "asking": await open_client(kit),
                    "chunking": await open_client(kit, streaming=True),
                },
                binding,
            )
            plain = await open_client(patient)
            streaming = await open_client(patient, streaming=True)
            await follow(plain, streaming, binding, f"{hook}?{binding}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
