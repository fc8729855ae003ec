"""Agents by gRPC, through the real server: the official client, who is let in, and the ports."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from a2a.client import Client, ClientConfig, create_client
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub as OldStub
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette

from bullpen.api import talk
from bullpen.model.messages import MessageType
from bullpen.servers.a2a import grpc_ports, security
from bullpen.servers.a2a.v1 import handler
from bullpen.servers.a2a.v1.routes import routes
from bullpen.wrapper.port import HeldPort
from tests.daemon.harness import until
from tests.daemon.wrapping import ScriptedWrapper, wrapped
from tests.servers.a2a.house import SECONDS, Web, linux_only, room_of_a_daemon, served
from tests.servers.a2a.test_ports import answers, handed_over
from tests.servers.a2a.test_security import TOKEN, give

S = pb.TaskState
Code = grpc.StatusCode
V1 = (("a2a-version", "1.0"),)
_IDS = iter(range(1, 1_000_000))


def message(text: str = "hello", **more: Any) -> pb.Message:
    parts = [pb.Part(text=text)]
    return pb.Message(message_id=f"g-{next(_IDS)}", role=pb.Role.ROLE_USER, parts=parts, **more)


def asking(text: str = "hello", **more: Any) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(message=message(text, **more))


def bearer(token: str = TOKEN) -> tuple[tuple[str, str], ...]:
    return (*V1, ("authorization", f"Bearer {token}"))


async def card_of(web: Web) -> pb.AgentCard:
    answer = await web.get("/.well-known/agent-card.json")
    return ParseDict(answer.body, pb.AgentCard())


async def address(web: Web) -> str:
    """Return where the card says that gRPC is served."""
    card = await card_of(web)
    [found] = [each.url for each in card.supported_interfaces if each.protocol_binding == "GRPC"]
    return found


@asynccontextmanager
async def client_of(card: pb.AgentCard) -> AsyncIterator[Client]:
    config = ClientConfig(
        grpc_channel_factory=grpc.aio.insecure_channel, supported_protocol_bindings=["GRPC"]
    )
    client = await create_client(card, client_config=config)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def stub_at(where: str) -> AsyncIterator[A2AServiceStub]:
    alone = (("grpc.use_local_subchannel_pool", 1),)  # or it would share others' connections
    async with grpc.aio.insecure_channel(where, options=alone) as channel:
        yield A2AServiceStub(channel)  # type: ignore[no-untyped-call]


async def refusal(called: Any) -> grpc.aio.AioRpcError:
    """Return the error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(SECONDS):
            await called
    return caught.value


async def first_of(stream: Any) -> Any:
    async with asyncio.timeout(SECONDS):
        return await anext(stream)


async def read_out(stream: Any) -> list[Any]:
    async with asyncio.timeout(SECONDS):
        return [each async for each in stream]


async def ask_back(agent: ScriptedWrapper, question: str) -> None:
    asks = talk.ReplyMessage(
        content=question,
        type=MessageType.PROGRESS,
        metadata={"asks": True},
        secret=agent.secret,
    )
    await agent.connection.request(asks, timeout=SECONDS)


@linux_only
@pytest.mark.requirement("a2a:grpc")
async def test_the_official_client_is_served_by_the_card(home: Path) -> None:
    async with served() as house, wrapped("codex") as agent:
        card = await card_of(house.web.at("codex"))
        async with client_of(card) as client:
            sending = asyncio.create_task(read_out(client.send_message(asking("hi"))))
            await agent.answer(await agent.next(), "hello")
            events = await sending
            assert events[0].WhichOneof("payload") == "task"
            # Who begins to listen late is told first how it is by then.
            last = events[-1].status_update if len(events) > 1 else events[0].task
            assert last.status.state == S.TASK_STATE_COMPLETED
            task_id = events[0].task.id
            found = await client.get_task(pb.GetTaskRequest(id=task_id))
            assert found.artifacts[0].parts[0].text == "hello"
            listed = await client.list_tasks(pb.ListTasksRequest())
            assert [each.id for each in listed.tasks] == [task_id]
            told = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
            assert told.supported_interfaces == card.supported_interfaces
            assert [each.uri for each in told.capabilities.extensions][-1].endswith("status:v1")


@linux_only
@pytest.mark.requirement("a2a:grpc")
async def test_tasks_are_followed_cancelled_and_gone_on_with(home: Path) -> None:
    async with served() as house, wrapped("codex") as agent:
        where = await address(house.web.at("codex"))
        async with stub_at(where) as stub:
            sent = await stub.SendMessage(_at_once(), metadata=V1, timeout=SECONDS)
            assert sent.task.status.state == S.TASK_STATE_SUBMITTED
            task_id = sent.task.id
            wanted = pb.SubscribeToTaskRequest(id=task_id)
            following = aiter(stub.SubscribeToTask(wanted, metadata=V1))
            assert (await first_of(following)).task.id == task_id
            await agent.next()
            await ask_back(agent, "which one?")
            await until(lambda: _tells(following, S.TASK_STATE_INPUT_REQUIRED), SECONDS)
            going_on = stub.SendMessage(
                asking("the left one", task_id=task_id), metadata=V1, timeout=SECONDS
            )
            typed = await agent.next()
            assert typed.text.endswith("the left one")
            await ask_back(agent, "sure?")
            assert (await going_on).task.status.message.parts[0].text == "sure?"
            cancelled = await stub.CancelTask(
                pb.CancelTaskRequest(id=task_id), metadata=V1, timeout=SECONDS
            )
            assert cancelled.status.state == S.TASK_STATE_CANCELED
            rest = await read_out(following)
            assert rest[-1].status_update.status.state == S.TASK_STATE_CANCELED
            again = stub.CancelTask(pb.CancelTaskRequest(id=task_id), metadata=V1)
            assert (await refusal(again)).code() == Code.FAILED_PRECONDITION
            # It is one task, whoever asks.
            seen = await house.peer.ask("task.get", task_id=task_id)
            assert seen["state"] == "canceled"
            rest_path = f"/a2a/rest/tasks/{task_id}"
            told = await house.web.at("codex").get(rest_path, A2A_Version="1.0")
            assert b"TASK_STATE_CANCELED" in told.raw


@linux_only
async def test_push_addresses_are_the_same_in_every_binding(home: Path) -> None:
    async with served() as house, wrapped("codex") as agent:
        web = house.web.at("codex")
        async with stub_at(await address(web)) as stub:
            sent = await stub.SendMessage(_at_once(), metadata=V1, timeout=SECONDS)
            await agent.next()
            config = pb.TaskPushNotificationConfig(
                task_id=sent.task.id, id="p1", url="http://127.0.0.1:9/hook"
            )
            await stub.CreateTaskPushNotificationConfig(config, metadata=V1, timeout=SECONDS)
            path = f"/a2a/rest/tasks/{sent.task.id}/pushNotificationConfigs/p1"
            assert b"/hook" in (await web.get(path, A2A_Version="1.0")).raw
            wanted = pb.DeleteTaskPushNotificationConfigRequest(task_id=sent.task.id, id="p1")
            await stub.DeleteTaskPushNotificationConfig(wanted, metadata=V1, timeout=SECONDS)
            assert (await web.get(path, A2A_Version="1.0")).status == 404


@linux_only
@pytest.mark.requirement("a2a:errors", "pitfall:6")
async def test_what_is_wrong_is_told_in_the_words_of_a2a(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as house, wrapped("codex"):
        where = await address(house.web.at("codex"))
        async with grpc.aio.insecure_channel(where) as channel, stub_at(where) as stub:
            missing = pb.GetTaskRequest(id="m-none")
            for metadata, code in (
                ((), Code.FAILED_PRECONDITION),
                ((("a2a-version", "0.3"),), Code.FAILED_PRECONDITION),
                ((("a2a-version", "2.0"),), Code.FAILED_PRECONDITION),
                ((("a2a-version", "1.1"),), Code.FAILED_PRECONDITION),
                (V1, Code.NOT_FOUND),
            ):
                error = await refusal(stub.GetTask(missing, metadata=metadata))
                assert error.code() == code
                assert (
                    b"a2a-protocol.org"
                    in dict(error.trailing_metadata())["grpc-status-details-bin"]
                )
            nothing = stub.SendMessage(pb.SendMessageRequest(), metadata=V1)
            assert (await refusal(nothing)).code() == Code.INVALID_ARGUMENT
            nonsense = channel.unary_unary("/lf.a2a.v1.A2AService/GetTask")(b"\xff", metadata=V1)
            assert (await refusal(nonsense)).code() == Code.INVALID_ARGUMENT
            large = stub.SendMessage(asking("x" * 5_000_000), metadata=V1)
            assert (await refusal(large)).code() == Code.RESOURCE_EXHAUSTED

            async def broken(*_: object) -> Any:
                raise ValueError("/a/path and a secret")

            monkeypatch.setattr(handler.Handler, "on_get_task", broken)
            error = await refusal(stub.GetTask(missing, metadata=V1))
            assert (error.code(), error.details()) == (Code.INTERNAL, "Internal error")


@linux_only
@pytest.mark.requirement("a2a:grpc", "a2a:tokens", "a2a:loopback")
async def test_who_is_not_known_is_not_let_in(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give("looker", "read", token="looks-" + TOKEN)
    give("ci", "read", "send")
    async with served() as house, wrapped("codex") as agent:
        where = await address(house.web.at("codex"))
        async with stub_at(where) as stub:
            for wrong in ("Bearer made-up", "Basic dXNlcjp4", "Bearer", "nonsense"):
                said = (*V1, ("authorization", wrong))
                error = await refusal(stub.ListTasks(pb.ListTasksRequest(), metadata=said))
                assert error.code() == Code.UNAUTHENTICATED, wrong
                assert "www-authenticate" in dict(error.trailing_metadata())
            looks = bearer("looks-" + TOKEN)
            await stub.ListTasks(pb.ListTasksRequest(), metadata=looks, timeout=SECONDS)
            error = await refusal(stub.SendMessage(_at_once(), metadata=looks))
            assert error.code() == Code.PERMISSION_DENIED
            for metadata, name in (
                (bearer(), "a2a:ci"),
                (bearer(agent.secret), "codex"),
                (V1, "a2a"),
            ):
                sent = await stub.SendMessage(_at_once(), metadata=metadata, timeout=SECONDS)
                task = await house.peer.ask("task.get", task_id=sent.task.id)
                assert task["sender"] == name
        # Behind the ports, nobody is anybody.
        async with stub_at(f"unix:{house.paths.a2a_grpc}") as stub:
            for metadata in (V1, bearer()):
                error = await refusal(stub.ListTasks(pb.ListTasksRequest(), metadata=metadata))
                assert error.code() == Code.UNAUTHENTICATED
        monkeypatch.setattr(security, "uid_of", lambda *_: os.getuid() + 1)  # somebody else's
        async with stub_at(where) as stub:
            error = await refusal(stub.ListTasks(pb.ListTasksRequest(), metadata=V1))
            assert error.code() == Code.UNAUTHENTICATED
            await stub.ListTasks(pb.ListTasksRequest(), metadata=bearer(), timeout=SECONDS)


@pytest.mark.requirement("a2a:loopback", "a2a:limits")
async def test_a_token_can_be_asked_of_everybody_and_too_much_is_too_much(home: Path) -> None:
    give("ci", "read")
    settings = {"loopback": "token", "rate_burst": 3, "rate_per_second": 0.01}
    async with served(a2a=settings) as house, wrapped("codex"):
        card = await house.web.at("codex").get(
            "/.well-known/agent-card.json", Authorization=f"Bearer {TOKEN}"
        )
        where = ParseDict(card.body, pb.AgentCard()).supported_interfaces[-1].url
        async with stub_at(where) as stub:
            error = await refusal(stub.ListTasks(pb.ListTasksRequest(), metadata=V1))
            assert error.code() == Code.UNAUTHENTICATED
            for _ in range(2):  # the third, with the one by HTTP
                await stub.ListTasks(pb.ListTasksRequest(), metadata=bearer(), timeout=SECONDS)
            error = await refusal(stub.ListTasks(pb.ListTasksRequest(), metadata=bearer()))
            assert error.code() == Code.RESOURCE_EXHAUSTED
            assert int(dict(error.trailing_metadata())["retry-after"]) > 1


@linux_only
async def test_clients_of_0_3_are_served_at_the_same_port(home: Path) -> None:
    async with served() as house, wrapped("codex") as agent:
        where = await address(house.web.at("codex"))
        async with grpc.aio.insecure_channel(where) as channel:
            stub = OldStub(channel)  # type: ignore[no-untyped-call]
            said = old_pb.Message(
                message_id="o-1",
                role=old_pb.Role.ROLE_USER,
                content=[old_pb.Part(text="hi")],
            )
            streaming = aiter(stub.SendStreamingMessage(old_pb.SendMessageRequest(request=said)))
            first = await first_of(streaming)
            await agent.answer(await agent.next(), "hello")
            *_, last = await read_out(streaming)
            assert last.status_update.status.state == old_pb.TaskState.TASK_STATE_COMPLETED
            task = await stub.GetTask(
                old_pb.GetTaskRequest(name=f"tasks/{first.task.id}"), timeout=SECONDS
            )
            assert task.artifacts[0].parts[0].text == "hello"
            missing = await refusal(stub.GetTask(old_pb.GetTaskRequest(name="tasks/m-none")))
            assert missing.code() == Code.NOT_FOUND
            empty = old_pb.Message(message_id="o-2", content=[old_pb.Part()])
            nothing = stub.SendMessage(old_pb.SendMessageRequest(request=empty))
            assert (await refusal(nothing)).code() == Code.INVALID_ARGUMENT
            card = await stub.GetAgentCard(old_pb.GetAgentCardRequest(), timeout=SECONDS)
            assert [each.url for each in card.additional_interfaces][-1] == where
            newer = await refusal(stub.GetTask(old_pb.GetTaskRequest(name="tasks/x"), metadata=V1))
            assert newer.code() == Code.FAILED_PRECONDITION


@linux_only
@pytest.mark.requirement("a2a:ports")
async def test_an_agents_port_goes_with_it_and_returns_with_the_next_daemon(home: Path) -> None:
    held = await HeldPort.open(0)
    assert held is not None
    try:
        async with served(), wrapped("codex", port=held.port) as agent:
            secret = agent.secret
            async with AsyncExitStack() as stack:
                async with handed_over(held, secret) as web:
                    await answers(web, 200)
                    where = await address(web)
                    stub = await stack.enter_async_context(stub_at(where))
                    following = aiter(stub.SendStreamingMessage(asking("long"), metadata=V1))
                    await first_of(following)
                # The wrapper let go of its port: so does this one.
                with pytest.raises(grpc.aio.AioRpcError):
                    await read_out(following)
            await until(lambda: _is_closed(where), SECONDS)
        async with (
            served(),
            wrapped("codex", secret=secret, port=held.port),
            handed_over(held, secret) as web,
        ):
            await answers(web, 200)
            where = await address(web)
            async with stub_at(where) as stub:
                listed = await stub.ListTasks(pb.ListTasksRequest(), metadata=V1, timeout=SECONDS)
                assert len(listed.tasks) == 1
    finally:
        held.close()


@linux_only
async def test_an_agent_that_nobody_wrapped_has_a_port_as_long_as_it_is_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_ports, "LOOK_SECONDS", 0.05)
    async with served() as house:
        web = house.web.at("codex")
        async with wrapped("codex") as agent:
            where = await address(web)
            assert await address(web) == where
            await agent.end()
        await until(lambda: _is_closed(where), SECONDS)


@linux_only
@pytest.mark.requirement("a2a:limits")
async def test_who_connects_and_asks_nothing_is_hung_up_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_ports, "KNOWN_SECONDS", 0.05)
    async with served(a2a={"connections": 2}) as house, wrapped("codex"):
        where = await address(house.web.at("codex"))
        for _ in range(2):
            reader, writer = await asyncio.open_connection(*where.split(":"))
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            async with asyncio.timeout(SECONDS):
                await reader.read()
            writer.close()
        monkeypatch.setattr(grpc_ports, "KNOWN_SECONDS", SECONDS)
        async with stub_at(where) as stub:  # there is room again
            await stub.ListTasks(
                pb.ListTasksRequest(), metadata=V1, timeout=SECONDS, wait_for_ready=True
            )


async def test_only_who_is_on_this_machine_is_told_of_a_port_on_loopback(home: Path) -> None:
    async with room_of_a_daemon() as (room, _), wrapped("codex"):
        app = Starlette(routes=routes(room, "codex", grpc=lambda _: "127.0.0.1:18100"))
        told = {}
        for host in ("127.0.0.1", "192.0.2.1"):
            transport = httpx.ASGITransport(app, client=(host, 4711))
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                told[host] = (await client.get("/.well-known/agent-card.json")).text
        assert "18100" in told["127.0.0.1"]
        assert "GRPC" not in told["192.0.2.1"]


def test_a_port_is_beside_the_agents_other_one_if_it_is_free() -> None:
    def tried() -> bool:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            number = taken.getsockname()[1]
            with grpc_ports._bind(number - grpc_ports.ABOVE) as other:
                assert other.getsockname()[1] != number
        with grpc_ports._bind(number - grpc_ports.ABOVE) as found:
            return bool(found.getsockname()[1] == number)  # unless somebody was faster

    assert any(tried() for _ in range(20))


async def test_it_can_be_switched_off(home: Path) -> None:
    give("ci", "read")
    async with served(a2a={"grpc": False}) as house, wrapped("codex"):
        path = "/.well-known/agent-card.json"
        card = await house.web.at("codex").get(path, Authorization=f"Bearer {TOKEN}")
        assert b"GRPC" not in card.raw


def test_nothing_of_it_is_needed_where_it_is_not_installed() -> None:
    program = (
        "import sys\n"
        "for each in ('grpc', 'grpc_status'): sys.modules[each] = None\n"
        "from pathlib import Path\n"
        "import bullpen.servers.a2a.app\n"
        "from bullpen.servers.a2a.serve import _can_serve_grpc\n"
        "print(_can_serve_grpc(Path('/run/x')))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout == b"False\n"


async def _tells(stream: Any, state: Any) -> bool:
    return bool((await first_of(stream)).status_update.status.state == state)


def _at_once() -> pb.SendMessageRequest:
    request = asking()
    request.configuration.return_immediately = True
    return request


async def _is_closed(where: str) -> bool:
    host, port = where.split(":")
    with socket.socket() as probe:
        probe.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(probe, (host, int(port)))
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:  # it is just being closed
            return False
    return False
