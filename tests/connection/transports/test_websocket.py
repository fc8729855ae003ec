"""WebSockets: one JSON text per message, both sides, and every way they end."""

import asyncio
import base64
import contextlib
import hashlib
import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus

from bullpen.connection import (
    AddressError,
    Connection,
    Notification,
    Request,
    TransportClosed,
    TransportError,
    WebSocketTransport,
)
from bullpen.connection.listener import listen_websocket
from bullpen.testing import Recorder
from tests.connection.transports.leftovers import wait_until

echo = Connection.builder().on_request("echo", lambda value, context: value)


@asynccontextmanager
async def served(*messages: str | bytes, **options: Any) -> AsyncIterator[tuple[str, list[Any]]]:
    """Serve somebody who says some things and writes down what it hears."""
    heard: list[Any] = []

    async def handle(websocket: ServerConnection) -> None:
        for message in messages:
            await websocket.send(message)
        with contextlib.suppress(ConnectionClosed):
            while True:
                heard.append(await websocket.recv())

    async with serve(handle, "127.0.0.1", 0, close_timeout=0.5, **options) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}", heard


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[tuple[WebSocketTransport, Recorder]]:
    recorder = Recorder()
    transport = WebSocketTransport(url, **options)
    await transport.start(recorder)
    try:
        async with asyncio.timeout(5):
            yield transport, recorder
    finally:
        await transport.close()
        await recorder.stop_workers()


@pytest.mark.requirement("T-48")
def test_the_library_is_not_loaded_before_it_is_used() -> None:
    code = """
import sys
from bullpen.connection import WebSocketTransport, listen, open_transport
open_transport("ws://127.0.0.1:80")
print([name for name in sys.modules if "websockets" in name])
"""
    output = subprocess.run([sys.executable, "-Ic", code], check=True, capture_output=True)
    assert output.stdout.strip() == b"[]"


async def test_without_the_library_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(TransportError, match=re.escape("pip install websockets")):
        await WebSocketTransport("ws://127.0.0.1:80").start(Recorder())


@pytest.mark.requirement("T-48", "T-16")
async def test_each_message_is_one_text() -> None:
    async with served() as (url, heard), opened(url) as (transport, _):
        transport.send(Request(1, "first"))
        transport.send(Notification("second", ["a\nb"]))
        await transport.close()
        assert heard == [
            '{"jsonrpc":"2.0","id":1,"method":"first"}',
            '{"jsonrpc":"2.0","method":"second","params":["a\\nb"]}',
        ]


async def test_text_and_binary_and_pretty_printed_messages_are_received() -> None:
    messages: list[str | bytes] = [
        '{"method": "text"}',
        b'{"method": "binary"}',
        '{\n  "method": "pretty"\n}',
    ]
    async with served(*messages) as (url, _), opened(url) as (_, recorder):
        assert await recorder.wait_for(3) == [
            Notification("text"),
            Notification("binary"),
            Notification("pretty"),
        ]


@pytest.mark.requirement("error:invalid-json")
async def test_a_binary_that_is_no_text_is_answered_like_any_bad_json() -> None:
    async with served(b'{"method": "\xff"}') as (url, heard):
        async with Connection.builder().connect(WebSocketTransport(url)) as connection:
            await wait_until(lambda: bool(heard))
            assert not connection.is_closed
        assert json.loads(heard[0])["error"]["code"] == -32700


async def test_a_message_longer_than_we_take_ends_the_connection_with_the_reason() -> None:
    message = json.dumps({"method": "x" * 1000})
    async with served(message) as (url, _), opened(url, max_frame_bytes=100) as (_, recorder):
        cause = await recorder.wait_end()
        assert isinstance(cause, TransportClosed)
        assert "message too big" in str(cause)


async def test_a_message_longer_than_the_peer_takes_ends_the_connection_with_the_reason() -> None:
    async with served(max_size=100) as (url, _), opened(url) as (transport, recorder):
        transport.send(Notification("x" * 1000))
        cause = await recorder.wait_end()
        assert isinstance(cause, TransportClosed)
        assert "message too big" in str(cause)


@pytest.mark.requirement("T-08")
async def test_a_peer_that_vanishes_without_a_goodbye_is_no_clean_end() -> None:
    async def vanish(websocket: ServerConnection) -> None:
        websocket.transport.abort()

    async with serve(vanish, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        async with opened(url) as (_, recorder):
            assert isinstance(await recorder.wait_end(), TransportClosed)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ws://127.0.0.1:1", "Connect call failed|Connection refused"),
        ("ws://", "isn't a valid URI"),
        ("http://127.0.0.1/", "isn't a valid URI"),
        ("ws://no.such.host.invalid", "no.such.host.invalid"),
    ],
)
async def test_where_nobody_is_one_is_told_so(url: str, reason: str) -> None:
    with pytest.raises(AddressError, match=reason):
        await WebSocketTransport(url).start(Recorder())


@pytest.mark.requirement("T-31")
@pytest.mark.parametrize(
    ("path", "reason"),
    [("/no/such/socket", "No such file"), ("/tmp/" + "x" * 200, "the path has 205 bytes")],
)
async def test_where_no_unix_socket_can_be_one_is_told_so(path: str, reason: str) -> None:
    with pytest.raises(AddressError, match=reason):
        await WebSocketTransport.unix(path).start(Recorder())


async def test_one_that_speaks_http_only_is_refused_with_its_status() -> None:
    async def refuse(websocket: ServerConnection, request: Any) -> Any:
        return websocket.respond(404, "nothing here")

    async with serve(print, "127.0.0.1", 0, process_request=refuse) as server:  # type: ignore[arg-type]
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        with pytest.raises(AddressError, match="HTTP 404"):
            await WebSocketTransport(url).start(Recorder())


@pytest.mark.requirement("contract:X3")
async def test_a_peer_that_does_not_return_the_goodbye_does_not_hold_the_close() -> None:
    async def shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = re.search(r"(?i)sec-websocket-key: (\S+)", head)
        assert key
        magic = hashlib.sha1(f"{key[1]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n" % base64.b64encode(magic)
        )
        await reader.read()  # and says nothing more
        writer.close()

    async with await asyncio.start_server(shake_hands, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with opened(url) as (transport, _):
            await transport.close()


# Serving


async def test_peers_are_served() -> None:
    async with listen_websocket("127.0.0.1", 0, echo) as listener:
        assert re.fullmatch(r"ws://127.0.0.1:\d+", listener.address)
        async with Connection.builder().connect(WebSocketTransport(listener.address)) as peer:
            assert await peer.request("echo", "é") == "é"
            assert listener.peers == 1


async def test_a_page_in_a_browser_is_refused() -> None:
    async with listen_websocket("127.0.0.1", 0, echo) as listener:
        with pytest.raises(InvalidStatus, match="HTTP 403"):
            await connect(listener.address, origin="https://any.site")  # type: ignore[arg-type]


async def test_one_too_many_is_refused_and_counted() -> None:
    async with (
        listen_websocket("127.0.0.1", 0, echo, max_peers=1) as listener,
        Connection.builder().connect(WebSocketTransport(listener.address)) as peer,
    ):
        assert await peer.request("echo", 1) == 1
        with pytest.raises(AddressError, match="HTTP 503"):
            await WebSocketTransport(listener.address).start(Recorder())
        assert listener.refused == 1


async def test_the_end_of_serving_says_goodbye_to_everybody() -> None:
    async with listen_websocket("127.0.0.1", 0, echo) as listener:
        peer = await Connection.builder().open(WebSocketTransport(listener.address))
        assert await peer.request("echo", 1) == 1
    await peer.wait_closed()
    assert peer.is_clean
    assert listener.peers == 0


async def test_a_message_longer_than_a_server_takes_is_refused_by_it() -> None:
    async with (
        listen_websocket("127.0.0.1", 0, echo, max_frame_bytes=100) as listener,
        connect(listener.address) as websocket,
    ):
        await websocket.send("x" * 101)
        with pytest.raises(ConnectionClosedError, match="message too big"):
            await websocket.recv()


async def test_a_socket_somebody_else_listens_on_is_said_to_be_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressError, match=f"ws://127.0.0.1:{port}: Address already in use"):
            async with listen_websocket("127.0.0.1", port, echo):
                pass
