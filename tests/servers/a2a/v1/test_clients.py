"""The official Python client, as it is, against an agent of ours."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from a2a.client import Client, ClientConfig, create_client
from a2a.types import a2a_pb2 as pb

from bullpen.model.messages import MessageType
from tests.servers.a2a.house import SECONDS
from tests.servers.a2a.v1.guests import House, house

BINDINGS = ["JSONRPC", "HTTP+JSON"]


@asynccontextmanager
async def client_of(there: House, binding: str, *, streaming: bool) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(timeout=SECONDS, trust_env=False) as http:
        config = ClientConfig(
            httpx_client=http, supported_protocol_bindings=[binding], streaming=streaming
        )
        yield await create_client(there.url.rstrip("/"), client_config=config)


def request(text: str, task_id: str = "") -> pb.SendMessageRequest:
    message = pb.Message(
        message_id=f"c-{text}",
        role=pb.Role.ROLE_USER,
        parts=[pb.Part(text=text)],
        task_id=task_id,
    )
    return pb.SendMessageRequest(message=message)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_the_official_client_sends_streams_asks_back_lists_and_cancels(binding: str) -> None:
    async with house() as (there, _):
        async with client_of(there, binding, streaming=False) as client:

            async def send(asked: pb.SendMessageRequest) -> pb.Task:
                [told] = [each async for each in client.send_message(asked)]
                assert told.WhichOneof("payload") == "task"
                return told.task

            sending = asyncio.create_task(send(request("one")))
            await there.agent.next()
            await there.reply("which?", type=MessageType.PROGRESS, metadata={"asks": True})
            asked = await sending
            assert asked.status.state == pb.TaskState.TASK_STATE_INPUT_REQUIRED
            sending = asyncio.create_task(send(request("left", task_id=asked.id)))
            await there.agent.answer(await there.agent.next(), "done")
            done = await sending
            assert done.id == asked.id
            assert done.artifacts[0].parts[0].text == "done"
            assert (await client.get_task(pb.GetTaskRequest(id=done.id))) == done
            listed = await client.list_tasks(pb.ListTasksRequest(page_size=10))
            assert [each.id for each in listed.tasks] == [done.id]
            card = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
            assert card.name == there.agent.name
            later = request("later")
            later.configuration.return_immediately = True
            task = await send(later)
            canceled = await client.cancel_task(pb.CancelTaskRequest(id=task.id))
            assert canceled.status.state == pb.TaskState.TASK_STATE_CANCELED
        async with client_of(there, binding, streaming=True) as client:
            events: list[pb.StreamResponse] = []

            async def stream() -> None:
                async for each in client.send_message(request("two")):
                    events.append(each)  # noqa: PERF401 - as they come

            streaming = asyncio.create_task(stream())
            while (typed := await there.agent.next()).text.endswith("later"):
                pass  # it may have been typed before it was cancelled
            await there.agent.answer(typed, "streamed")
            async with asyncio.timeout(SECONDS):
                await streaming
            kinds = [each.WhichOneof("payload") for each in events]
            assert kinds[0] == "task"
            assert kinds[-2:] == ["artifact_update", "status_update"]
            assert events[-1].status_update.status.state == pb.TaskState.TASK_STATE_COMPLETED
