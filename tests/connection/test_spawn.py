"""Work spawned on a connection lives no longer than it, and fails where it can be heard."""

import asyncio
import gc
from typing import Any

import pytest

from bullpen.connection import (
    Connection,
    ConnectionClosed,
    Context,
    Notification,
    Request,
    Response,
    Stage,
    Trace,
)
from tests.connection.peers import MessagePeer, logged, settle

pytestmark = pytest.mark.usefixtures("no_escaped_errors")


@pytest.mark.requirement("T-15")
async def test_spawned_work_runs_while_messages_flow_and_ends_with_the_connection() -> None:
    seen: list[Any] = []

    async def work(connection: Connection) -> None:
        try:
            seen.append(await connection.request("from the work"))
            await asyncio.get_running_loop().create_future()
        finally:
            seen.append("cancelled")

    peer = MessagePeer()
    builder = Connection.builder().on_notification("n", lambda params, c: seen.append(params))
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        task = connection.spawn(work(connection))
        await peer.heard(1)
        await peer.say(Notification("n", 1), Response(1, "answer"), Notification("n", 2))
        await settle()
        assert sorted(map(str, seen)) == ["1", "2", "answer"]
        assert not task.done()
    assert task.cancelled()
    assert seen[-1] == "cancelled"


@pytest.mark.requirement("T-15")
async def test_a_handler_may_spawn_work_that_outlives_it() -> None:
    release = asyncio.Event()

    async def work(connection: Connection) -> None:
        await release.wait()
        await connection.notify("done")

    def start(params: Any, context: Context) -> str:
        context.connection.spawn(work(context.connection))
        return "started"

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("start", start).connect(peer):
        await peer.say(Request(1, "start"))
        assert await peer.heard(1) == [Response(1, "started")]
        release.set()
        assert (await peer.heard(2))[1] == Notification("done")


@pytest.mark.requirement("T-15", "error:spawned", "L-42")
@pytest.mark.parametrize("fatal", [False, True])
async def test_work_that_fails_is_heard_with_the_place_it_was_spawned_at(
    fatal: bool, caplog: pytest.LogCaptureFixture
) -> None:
    failure = ValueError("the work failed")

    async def work() -> None:
        raise failure

    traces: list[Trace] = []
    peer = MessagePeer()
    builder = Connection.builder().name("busy").observe(traces.append)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        caller = asyncio.create_task(connection.request("m"))
        await peer.heard(1)
        traces.clear()
        connection.spawn(work(), name="dig", fatal=fatal)
        await settle()
        assert [(trace.stage, trace.detail) for trace in traces] == [(Stage.FAILED, failure)]
        assert __file__ in str(failure.__notes__)
        (record,) = logged(caplog)
        assert record.getMessage().startswith("busy: busy:dig, spawned at ")
        assert __file__ in record.getMessage()
        assert connection.is_closed is fatal
        if fatal:
            assert connection.cause is failure
            with pytest.raises(ConnectionClosed) as caught:
                await caller
            assert caught.value.cause is failure
            await connection.wait_closed()
            assert not connection.is_clean
        else:
            await peer.say(Response(1, "unharmed"))
            assert await caller == "unharmed"


@pytest.mark.requirement("L-42")
async def test_spawned_work_is_not_collected_with_the_garbage() -> None:
    done = asyncio.Event()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        loop.call_later(0.01, future.set_result, None)
        await future
        done.set()

    async with asyncio.timeout(5), Connection.builder().connect(MessagePeer()) as connection:
        connection.spawn(work())
        gc.collect()
        await done.wait()


@pytest.mark.requirement("T-15")
async def test_work_can_be_awaited_and_cancelled_by_who_spawned_it() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "result"

    async with asyncio.timeout(5), Connection.builder().connect(MessagePeer()) as connection:
        assert await connection.spawn(work()) == "result"
        other = connection.spawn(asyncio.sleep(3600))
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other
        assert not connection.is_closed


@pytest.mark.requirement("contract:X1", "T-15")
async def test_nothing_can_be_spawned_on_a_closed_connection() -> None:
    async with asyncio.timeout(5), Connection.builder().connect(MessagePeer()) as connection:
        pass
    with pytest.raises(ConnectionClosed):
        connection.spawn(asyncio.sleep(0))  # a coroutine never awaited would be a warning
