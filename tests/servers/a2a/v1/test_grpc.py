"""The same agent by gRPC: the official client, who is let in, and in which version."""

import asyncio
from collections.abc import Mapping

import grpc
import pytest
from a2a.client import ClientConfig, create_client
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub

from bullpen.servers.a2a.room import ANONYMOUS, Caller
from bullpen.servers.a2a.v1.grpc_server import serve_grpc
from bullpen.servers.a2a.v1.handler import Handler
from tests.servers.a2a.house import SECONDS
from tests.servers.a2a.v1.guests import house
from tests.thorough import IS_WANTED

# gRPC's own server joins a thread when it is collected, wherever that happens to be: in a loop that
# may not block, the next test is told of it. So it is not tried with the others.
pytestmark = pytest.mark.skipif(not IS_WANTED, reason="`make thorough` tries it")

V1 = (("a2a-version", "1.0"),)


async def who(peer: str, said: Mapping[str, str]) -> Caller | None:
    assert peer.startswith("ipv4:127.0.0.1:")
    return None if said.get("authorization") == "Bearer wrong" else ANONYMOUS


async def test_the_official_client_is_served_by_grpc() -> None:
    async with house() as (there, _):
        handler = Handler(there.room, there.agent.name)
        async with serve_grpc(handler, who, base_url=there.url) as where:
            card = pb.AgentCard(
                name="x",
                supported_interfaces=[
                    pb.AgentInterface(url=where, protocol_binding="GRPC", protocol_version="1.0")
                ],
                capabilities=pb.AgentCapabilities(streaming=True),
            )
            config = ClientConfig(
                grpc_channel_factory=grpc.aio.insecure_channel,
                supported_protocol_bindings=["GRPC"],
                streaming=True,
            )
            client = await create_client(card, client_config=config)
            events: list[pb.StreamResponse] = []

            async def stream() -> None:
                message = pb.Message(
                    message_id="c-1", role=pb.Role.ROLE_USER, parts=[pb.Part(text="hi")]
                )
                async for each in client.send_message(pb.SendMessageRequest(message=message)):
                    events.append(each)  # noqa: PERF401 - as they come

            streaming = asyncio.create_task(stream())
            await there.agent.answer(await there.agent.next(), "hello")
            async with asyncio.timeout(SECONDS):
                await streaming
            assert events[0].WhichOneof("payload") == "task"
            assert events[-1].status_update.status.state == pb.TaskState.TASK_STATE_COMPLETED
            found = await client.get_task(pb.GetTaskRequest(id=events[0].task.id))
            assert found.artifacts[0].parts[0].text == "hello"
            extended = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
            assert extended.supported_interfaces[-1].url == where
            await client.close()


async def test_another_version_nobody_and_nothing_are_refused() -> None:  # 6
    async with house() as (there, _):
        handler = Handler(there.room, there.agent.name)
        async with (
            serve_grpc(handler, who, base_url=there.url) as where,
            grpc.aio.insecure_channel(where) as channel,
        ):
            stub = A2AServiceStub(channel)  # type: ignore[no-untyped-call]
            asked = pb.GetTaskRequest(id="m-none")
            wrong = (*V1, ("authorization", "Bearer wrong"))
            for metadata, code in (
                ((), grpc.StatusCode.FAILED_PRECONDITION),
                ((("a2a-version", "0.3"),), grpc.StatusCode.FAILED_PRECONDITION),
                (wrong, grpc.StatusCode.UNAUTHENTICATED),
                (V1, grpc.StatusCode.NOT_FOUND),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await stub.GetTask(asked, metadata=metadata, timeout=SECONDS)
                assert caught.value.code() == code
