"""Between two ends in one process the very objects are handed over, and nothing is serialized."""

import asyncio
import json
import tracemalloc
from typing import Any, assert_type

import msgspec
import pytest

from bullpen.connection import (
    Batch,
    Connection,
    Context,
    Error,
    Malformed,
    Message,
    Notification,
    RemoteError,
    Request,
    Response,
    RpcError,
    TypedRequest,
    channel_pair,
)
from bullpen.connection.transports.channel import ChannelTransport
from bullpen.connection.transports.frames import FrameTransport
from bullpen.jsonrpc import codec, wire
from bullpen.testing import Recorder
from tests.connection.peers import settle

pytestmark = pytest.mark.usefixtures("no_escaped_errors")


@pytest.fixture
def no_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every way to write or read JSON raise."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("JSON over a channel")

    for module, names in {
        json: ["dumps", "loads", "dump", "load"],
        msgspec.json: ["encode", "decode"],
        codec: ["encode_message", "decode_frame", "_encode", "_decode_envelope"],
        wire: ["_decode_anything"],
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, refuse)


@pytest.mark.requirement("T-07", "T-33", "T-34")
@pytest.mark.usefixtures("no_json")
async def test_requests_errors_and_notifications_cross_a_channel_without_any_json() -> None:
    heard: list[Any] = []

    async def handle(params: Any, context: Context) -> Any:
        if params == "fail":
            raise RpcError(-1, "no", {"sentinel": sentinel})
        return [params, await context.connection.request("back", params)]

    sentinel = object()  # no word for it in JSON
    left, right = channel_pair()
    server = (
        Connection.builder()
        .on_request("m", handle)
        .on_notification("n", lambda params, context: heard.append(params))
    )
    client = Connection.builder().on_request("back", lambda params, context: {sentinel: params})
    async with asyncio.timeout(5), server.connect(right), client.connect(left) as us:
        assert await us.request("m", sentinel) == [sentinel, {sentinel: sentinel}]
        await us.notify("n", sentinel)
        with pytest.raises(RemoteError) as caught:
            await us.request("m", "fail")
        assert caught.value.data == {"sentinel": sentinel}
        await settle()
        assert heard == [sentinel]


@pytest.mark.requirement("T-17", "T-19", "T-20")
async def test_the_other_end_receives_the_very_messages_in_order_whatever_they_are() -> None:
    messages: list[Message] = [
        Request(1, "m", object()),
        Notification("m"),
        Response(99, "nobody asked"),
        Response("x", error=Error(1, "m")),
        Batch([Request(None, "m"), Notification("n")]),
        Malformed(Error(-1, "odd")),
        *(Notification("n", n) for n in range(2000)),
    ]
    left, right = channel_pair()
    here, there = Recorder(), Recorder()
    await left.start(here)
    await right.start(there)
    try:
        for message in messages:
            left.send(message)
        async with asyncio.timeout(5):
            received = await there.wait_for(len(messages))
        assert all(a is b for a, b in zip(received, messages, strict=True))
        assert set(there.sizes) == {0}
        assert here.messages == []
    finally:
        await left.close()
        await right.close()


@pytest.mark.requirement("T-17", "T-33")
async def test_params_and_results_are_the_senders_own_objects() -> None:
    seen: list[Any] = []

    def handle(params: Any, context: Context) -> Any:
        seen.append(params)
        return params

    left, right = channel_pair()
    builder = Connection.builder().on_request("m", handle)
    async with asyncio.timeout(5), builder.connect(right), Connection.builder().connect(left) as us:
        for value in ({"a": [1]}, ("tuple",), {1, 2}, lambda: None, object(), 1 + 2j, b"bytes"):
            assert await us.request("m", value) is value
            assert seen.pop() is value


class Blob(TypedRequest[bytes]):
    METHOD = "blob"
    data: bytes


@pytest.mark.requirement("T-51", "T-17", "T-53")
async def test_ten_megabytes_cross_a_channel_without_being_copied() -> None:
    seen: list[Blob] = []

    def keep(request: Blob, context: Context) -> bytes:
        seen.append(request)
        return request.data

    left, right = channel_pair()
    builder = Connection.builder().on_request(Blob, keep)
    async with asyncio.timeout(5), builder.connect(right), Connection.builder().connect(left) as us:
        blob = Blob(bytes(10 * 2**20))
        await us.request(Blob(b"warm up"))
        tracemalloc.start()
        try:
            result = await us.request(blob)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert_type(result, bytes)
        assert result is blob.data
        assert seen[1] is blob
        assert peak < 2**20


@pytest.mark.requirement("T-34")
def test_a_channel_has_no_way_to_decode() -> None:
    assert not issubclass(ChannelTransport, FrameTransport)
    imported = set(vars(__import__(ChannelTransport.__module__, fromlist=["x"])))
    assert not imported & {"decode_frame", "encode_message", "LineFramer", "json", "msgspec"}


@pytest.mark.requirement("T-45", "T-07", "T-41", "contract:C5")
@pytest.mark.usefixtures("no_json")
async def test_handlers_make_a_chain_of_rewriting_proxies_that_keeps_order() -> None:
    """Three links of `on_message` handlers, each with a connection to the next."""

    def link(onward: Connection, name: str) -> Any:
        async def pass_on(message: Request | Notification, context: Context) -> Any:
            params = [*message.params, name]
            if isinstance(message, Request):
                return [*await onward.request(message.method, params), name]
            onward.send_notification(message.method, params)
            return None

        return pass_on

    notified: list[Any] = []
    agent = (
        Connection.builder()
        .on_request("ask", lambda params, context: [*params, "agent"])
        .on_notification("tell", lambda params, context: notified.append(params))
    )
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        end, far = channel_pair()
        group.create_task(agent.serve_with(far))
        onward = await Connection.builder().open(end)
        links = [onward]
        for name in ("third", "second", "first"):
            near, far = channel_pair()
            builder = Connection.builder().name(name).on_message(link(onward, name))
            group.create_task(builder.serve_with(far))
            onward = await Connection.builder().open(near)
            links.append(onward)
        answers = []
        for n in range(10):
            onward.send_notification("tell", [n])
            answers.append(group.create_task(onward.request("ask", [n])))
        for n, answer in enumerate(answers):
            way = ["first", "second", "third"]
            assert await answer == [n, *way, "agent", *reversed(way)]
        assert [params[0] for params in notified] == list(range(10))
        for connection in links:
            await connection.aclose()
