"""Whoever connects is served, so far as there is room, and nothing stays when serving ends."""

import asyncio
import errno
import logging
import os
import re
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from bullpen.connection import (
    AddressError,
    Connection,
    ContentLengthFramer,
    Context,
    RemoteError,
    RpcError,
    SocketTransport,
    Transport,
    WebSocketTransport,
    listen_tcp,
    listen_unix,
)
from bullpen.connection import listener as room
from bullpen.connection.listener import Listener, listen_inproc, listen_websocket_unix
from bullpen.connection.transports.inproc import InprocTransport
from bullpen.testing import Recorder
from tests.connection.transports.leftovers import descriptors, wait_until

echo = Connection.builder().on_request("echo", lambda value, context: value)
client = Connection.builder()


@pytest.fixture
def path(home: Path) -> str:
    return str(home / "run/socket")


def place(listener: Listener) -> tuple[str, int]:
    host, port = listener.address.removeprefix("tcp://").split(":")
    return host, int(port)


def tcp(listener: Listener, **options: Any) -> SocketTransport:
    return SocketTransport.tcp(*place(listener), **options)


def read(path: str) -> str:
    return Path(path).read_text()


def replace(path: str, text: str) -> None:
    Path(path).unlink(missing_ok=True)
    Path(path).write_text(text)


def is_socket(path: str) -> bool:
    return Path(path).is_socket()


@pytest.mark.requirement("T-37", "T-46")
async def test_every_peer_gets_a_connection_of_its_own() -> None:
    async def ask_back(_: Any, context: Context) -> Any:
        return await context.connection.request("who")

    async def visit(listener: Listener, name: str) -> Any:
        visitor = client.on_request("who", lambda _, context: name)
        async with visitor.connect(tcp(listener)) as connection:
            return await connection.request("ask back")

    server = Connection.builder().on_request("ask back", ask_back)
    names = [f"visitor {n}" for n in range(50)]
    async with listen_tcp("127.0.0.1", 0, server) as listener:
        assert await asyncio.gather(*(visit(listener, name) for name in names)) == names


async def test_the_address_names_the_port_that_was_free() -> None:
    async with listen_tcp("127.0.0.1", 0, echo) as listener:
        assert re.fullmatch(r"tcp://127\.0\.0\.1:[1-9]\d+", listener.address)
        assert "0 peers" in repr(listener)


async def test_the_framing_is_the_one_asked_for() -> None:
    async with listen_tcp("127.0.0.1", 0, echo, framer=ContentLengthFramer) as listener:
        transport = tcp(listener, framer=ContentLengthFramer())
        async with client.connect(transport) as connection:
            assert await connection.request("echo", 1) == 1


async def test_one_too_many_is_hung_up_on_and_counted_until_there_is_room() -> None:
    async with listen_tcp("127.0.0.1", 0, echo, max_peers=2) as listener:
        first, second = await client.open(tcp(listener)), await client.open(tcp(listener))
        for peer in (first, second):
            await peer.request("echo", 1)
        third = await client.open(tcp(listener))
        await third.wait_closed()
        assert third.is_clean
        assert (listener.peers, listener.refused) == (2, 1)
        await first.aclose()
        await wait_until(lambda: listener.peers == 1)
        async with client.connect(tcp(listener)) as fourth:
            assert await fourth.request("echo", 4) == 4
        await second.aclose()
        assert listener.refused == 1


async def test_leaving_the_block_ends_every_connection_and_leaves_nothing() -> None:
    before = descriptors()
    async with listen_tcp("127.0.0.1", 0, echo) as listener:
        peers = [await client.open(tcp(listener)) for _ in range(3)]
        for peer in peers:
            await peer.request("echo", 1)
        waiting = asyncio.ensure_future(listener.wait_closed())
        late = await client.open(tcp(listener))  # connected, and not accepted yet
    for peer in (*peers, late):
        await peer.wait_closed()
    await waiting
    await asyncio.sleep(0)
    assert listener.peers == 0
    assert descriptors() == before


async def test_a_peer_whose_serving_is_cancelled_before_it_begins_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accept = Listener.accept

    def accept_and_cancel(listener: Listener, transport: Transport) -> "asyncio.Task[None]":
        serving = accept(listener, transport)
        serving.cancel()
        return serving

    monkeypatch.setattr(Listener, "accept", accept_and_cancel)
    async with listen_tcp("127.0.0.1", 0, echo) as listener:
        peer = await client.open(tcp(listener))
        await peer.wait_closed()
        assert peer.is_clean


async def test_one_peers_failure_is_noted_and_not_raised(caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener("test:", echo)
    await listener.accept(InprocTransport("nobody"))
    assert "test:: a peer cannot be served" in caplog.text
    assert listener.peers == 0


async def test_a_peer_that_breaks_off_leaves_the_others_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with (
        listen_tcp("127.0.0.1", 0, echo, framer=ContentLengthFramer) as listener,
        client.connect(tcp(listener, framer=ContentLengthFramer())) as other,
    ):
        assert await other.request("echo", 1) == 1
        _, writer = await asyncio.open_connection(*place(listener))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await wait_until(lambda: "a peer is gone: framing lost" in caplog.text)
        writer.close()
        assert await other.request("echo", 2) == 2


async def test_out_of_descriptors_it_accepts_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(room, "SHORTAGE_SECONDS", 0.01)
    accept = socket.socket.accept
    shortages = [OSError(errno.EMFILE, "Too many open files")] * 3

    def accept_if_possible(listening: socket.socket) -> Any:
        if shortages:
            raise shortages.pop()
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", accept_if_possible)
    async with (
        listen_tcp("127.0.0.1", 0, echo) as listener,
        client.connect(tcp(listener)) as connection,
    ):
        assert await connection.request("echo", 1) == 1
    assert not shortages
    assert "cannot accept: Too many open files" in caplog.text


# Unix sockets


async def test_a_unix_socket_is_its_owners_alone_before_anybody_can_connect(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    listen = socket.socket.listen

    def look_and_listen(listening: socket.socket, backlog: int) -> None:
        modes.append(stat.S_IMODE(os.lstat(path).st_mode))
        listen(listening, backlog)

    monkeypatch.setattr(socket.socket, "listen", look_and_listen)
    async with listen_unix(path, echo) as listener:
        assert listener.address == f"unix://{path}"
        async with client.connect(SocketTransport.unix(path)) as connection:
            assert await connection.request("echo", 1) == 1
    assert modes == [0o600]


async def test_the_socket_is_removed_in_the_end(path: str) -> None:
    async with listen_unix(path, echo):
        assert is_socket(path)
    assert not is_socket(path)


async def test_a_socket_that_took_its_place_is_left_alone(path: str) -> None:
    async with listen_unix(path, echo):
        replace(path, "somebody else's")
    assert read(path) == "somebody else's"


async def test_what_a_dead_server_left_is_replaced(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    async with listen_unix(path, echo), client.connect(SocketTransport.unix(path)) as connection:
        assert await connection.request("echo", 1) == 1


async def test_a_living_server_is_not_replaced(path: str) -> None:
    async with listen_unix(path, echo):
        with pytest.raises(AddressError, match="somebody else is serving there"):
            await listen_unix(path, echo).__aenter__()
        async with client.connect(SocketTransport.unix(path)) as connection:
            assert await connection.request("echo", 1) == 1


async def test_what_is_no_socket_is_not_replaced(path: str) -> None:
    replace(path, "precious")
    with pytest.raises(AddressError, match="something that is not a socket"):
        await listen_unix(path, echo).__aenter__()
    assert read(path) == "precious"


@pytest.mark.requirement("T-31")
@pytest.mark.parametrize(
    ("path", "reason"),
    [("/tmp/" + "x" * 200, "the path has 205 bytes"), ("/no/such/directory/s", "No such file")],
)
async def test_where_a_socket_cannot_be_made_it_is_explained(path: str, reason: str) -> None:
    before = descriptors()
    with pytest.raises(AddressError, match=reason):
        await listen_unix(path, echo).__aenter__()
    assert descriptors() == before


async def test_a_peer_that_may_not_be_served_hears_why_and_is_hung_up_on(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    def authorize(connected: socket.socket) -> RpcError | None:
        seen.append(connected.family)
        return RpcError(-32024, "not you", {"reason": "stranger"}) if len(seen) == 1 else None

    async with listen_unix(path, echo, authorize=authorize) as listener:
        stranger = await client.open(SocketTransport.unix(path))
        with pytest.raises(RemoteError) as caught:
            await stranger.request("echo", 1)
        assert (caught.value.code, caught.value.data) == (-32024, {"reason": "stranger"})
        await stranger.wait_closed()
        assert stranger.is_clean
        await wait_until(lambda: listener.peers == 0)
        assert listener.refused == 1
        assert "refused a peer: not you (-32024)" in caplog.text
        async with client.connect(SocketTransport.unix(path)) as welcome:
            assert await welcome.request("echo", 2) == 2
    assert seen == [socket.AF_UNIX, socket.AF_UNIX]


async def test_a_peer_that_may_not_be_served_and_says_nothing_is_hung_up_on_as_well(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "REFUSAL_SECONDS", 0.01)
    no = RpcError(-32024, "not you")
    async with listen_unix(path, echo, authorize=lambda connected: no) as listener:
        silent = await client.open(SocketTransport.unix(path))
        await silent.wait_closed()
        assert silent.is_clean
        await wait_until(lambda: listener.peers == 0)


async def test_a_notification_of_a_peer_that_may_not_be_served_reaches_nobody(path: str) -> None:
    told: list[Any] = []
    server = echo.on_notification("told", lambda value, context: told.append(value))
    no = RpcError(-32024, "not you")
    async with listen_unix(path, server, authorize=lambda connected: no):
        stranger = await client.open(SocketTransport.unix(path))
        await stranger.notify("told", 1)
        await stranger.wait_closed()
    assert told == []


async def test_websockets_are_served_on_a_unix_socket_as_well(path: str) -> None:
    async with listen_websocket_unix(path, echo) as listener:
        assert listener.address == f"ws+unix://{path}"
        assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600
        async with client.connect(WebSocketTransport.unix(path)) as connection:
            assert await connection.request("echo", 1) == 1
    assert not is_socket(path)


# Names in this process


async def test_a_name_is_served_without_a_socket() -> None:
    nothing_json_knows = object()
    async with listen_inproc("here", echo), client.connect(InprocTransport("here")) as connection:
        assert await connection.request("echo", nothing_json_knows) is nothing_json_knows


async def test_a_name_nobody_serves_or_somebody_else_does_is_said_to_be_so() -> None:
    with pytest.raises(AddressError, match="nobody serves under this name"):
        await InprocTransport("nobody").start(Recorder())
    async with listen_inproc("taken", echo, max_peers=0):
        with pytest.raises(AddressError, match="somebody serves under this name already"):
            await listen_inproc("taken", echo).__aenter__()
        with pytest.raises(AddressError, match="too many peers"):
            await InprocTransport("taken").start(Recorder())
        with pytest.raises(AddressError, match="in another event loop"):
            await asyncio.to_thread(asyncio.run, InprocTransport("taken").start(Recorder()))


async def test_a_port_that_is_taken_or_no_host_is_said_to_be_so() -> None:
    before = descriptors()
    async with listen_tcp("127.0.0.1", 0, echo) as listener:
        port = int(listener.address.rpartition(":")[2])
        with pytest.raises(AddressError, match="Address already in use"):
            await listen_tcp("127.0.0.1", port, echo).__aenter__()
    with pytest.raises(AddressError, match=r"no\.such\.host\.invalid"):
        await listen_tcp("no.such.host.invalid", 0, echo).__aenter__()
    await asyncio.sleep(0)
    assert descriptors() == before
