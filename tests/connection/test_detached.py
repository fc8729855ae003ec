"""A request whose handler handed on the duty to answer is still a request."""

import asyncio
import json
import socket

import pytest

from bullpen.connection import MCP, Connection, Context, SocketTransport, channel_pair
from bullpen.connection.proxy import proxy


@pytest.mark.requirement("contract:X4")
async def test_it_is_answered_after_the_peers_last_word() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)

    async def hand_on(_params: object, context: Context) -> None:
        responder = context.detach()
        context.connection.on_close(lambda _cause: responder.respond("after all"))

    loop = asyncio.get_running_loop()
    builder = Connection.builder().on_request("ask", hand_on)
    with theirs:
        async with asyncio.timeout(5):
            await loop.sock_sendall(theirs, b'{"jsonrpc":"2.0","id":1,"method":"ask"}\n')
            theirs.shutdown(socket.SHUT_WR)
            await builder.serve_with(SocketTransport.over(ours))
            answer = json.loads(await loop.sock_recv(theirs, 4096))
    assert answer["result"] == "after all"


@pytest.mark.requirement("contract:C3", "contract:C5")
async def test_a_cancelled_one_that_stays_unanswered_is_forgotten_at_every_hop() -> None:
    begun, interrupted = asyncio.Event(), asyncio.Event()

    async def wait(_params: object, _context: Context) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()

    builder = Connection.builder().dialect(MCP)
    client, near = channel_pair()
    far, agent = channel_pair()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(proxy(near, far, builder=builder))
        async with (
            builder.on_request("wait", wait).connect(agent) as served,
            builder.connect(client) as connection,
        ):
            asking = group.create_task(connection.request("wait"))
            await begun.wait()
            asking.cancel()
            await interrupted.wait()
            assert connection.stats().requests_pending == 0
        assert served.stats().requests_running == 0
