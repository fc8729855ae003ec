"""A session is created whole or not at all, and never confused with another."""

import asyncio
import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.connection import Connection, RemoteError, RequestTimeout, Stage, Trace
from bullpen.connection.channel import Overflow, SessionChannel, SessionLimits
from bullpen.connection.errors import (
    RouterStopped,
    SessionCreateTimeout,
    SessionExists,
    SlowConsumer,
)
from bullpen.connection.routed import PermissionRequest, SessionEvent, ToolCall
from bullpen.connection.router import MessageRouter
from bullpen.testing.cli_server import Asked, FakeCliServer, FakeSession
from tests.connection.routers import (
    BareServer,
    in_pieces,
    next_event,
    numbers,
    opened,
    routed,
    settle,
    sockets,
)


async def create(router: MessageRouter, model: str) -> tuple[str, SessionChannel]:
    return await router.create_session({"model": model})


def is_empty(router: MessageRouter) -> bool:
    stats = router.stats()
    return not any((stats.routes, stats.pending, stats.orphans, stats.held_messages))


# Which session is whose


@pytest.mark.requirement("D-13", "L-1")
@pytest.mark.parametrize("starts", list(itertools.permutations(range(4))), ids=str)
async def test_parallel_creations_get_the_session_they_asked_for_however_starts_are_permuted(
    starts: tuple[int, ...],
) -> None:
    server = FakeCliServer()
    gate = server.hold("session.create")
    async with asyncio.timeout(5), routed(server, sockets) as router:
        creating = [asyncio.ensure_future(create(router, f"model-{n}")) for n in range(4)]
        asked = await gate.take(4)
        sessions = [each.open_session(f"the-{each.params['model']}-one") for each in asked]
        for number in starts:
            sessions[number].start()
        for number in reversed(starts):
            asked[number].respond(sessions[number].created())
        for number, (session_id, channel) in enumerate(await asyncio.gather(*creating)):
            assert session_id == channel.session_id == f"the-model-{number}-one"
            start = await next_event(channel, "session.start")
            assert start.data["selectedModel"] == f"model-{number}"
            assert channel.stats().queued_events == 0


class Creation:
    """The steps by which a server makes one session: what it says, in its own order."""

    def __init__(self, asked: Asked, chance: random.Random) -> None:
        self._asked = asked
        self._session = asked.open_session(f"{asked.params['model']}/{chance.random()}")
        early = [*[self._emit] * chance.randrange(4), self._session.start]
        chance.shuffle(early)
        late = [self._emit] * chance.randrange(4)
        self.steps = [*early, self._respond, *late]
        if chance.random() < 0.5:  # newer servers start the session after they answered
            self.steps.remove(self._session.start)
            self.steps.append(self._session.start)
        self.emitted = 0

    def _emit(self) -> None:
        self._session.emit("number", {"number": [self._session.model, self.emitted]})
        self.emitted += 1

    def _respond(self) -> None:
        self._asked.respond(self._session.created())


@pytest.mark.requirement("D-37", "D-13", "D-19", "L-1", "L-3")
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), piece=st.sampled_from([97, 4096, 2**18]))
async def test_a_hundred_parallel_creations_are_never_confused(seed: int, piece: int) -> None:
    server = FakeCliServer()
    gate = server.hold("session.create")
    chance = random.Random(seed)
    async with asyncio.timeout(30), routed(server, in_pieces(piece)) as router:
        creating = [asyncio.ensure_future(create(router, f"model-{n}")) for n in range(100)]
        creations = [Creation(asked, chance) for asked in await gate.take(100)]
        order = [creation for creation in creations for _ in creation.steps]
        chance.shuffle(order)
        for creation in order:
            creation.steps.pop(0)()
            if chance.random() < 0.1:
                await settle(chance.randrange(3))
        for number, (session_id, channel) in enumerate(await asyncio.gather(*creating)):
            model = f"model-{number}"
            assert session_id.startswith(f"{model}/")
            emitted = next(c.emitted for c in creations if c._session.session_id == session_id)
            assert await numbers(channel, emitted) == [[model, n] for n in range(emitted)]
        assert router.stats().unknown_events == 0
        assert router.stats().held_messages == 0


@pytest.mark.requirement("D-19", "L-3")
@pytest.mark.parametrize("protocol", [2, 3])
async def test_the_channel_holds_what_came_before_the_creation_was_answered(protocol: int) -> None:
    server = FakeCliServer(protocol=protocol)
    gate = server.hold("session.create")
    async with asyncio.timeout(5), routed(server, sockets) as router:
        creating = asyncio.ensure_future(router.create_session())
        asked = await gate.next()
        session = asked.open_session("the server's own")
        session.start()
        permission = session.ask_permission("shell")
        session.delta("early")
        tool = session.call_tool("t")
        asked.respond(session.created())
        session.delta("late")
        session_id, channel = await creating
        assert session_id == "the server's own"
        received = [await channel.recv() for _ in range(5)]
        kinds = [SessionEvent, PermissionRequest, SessionEvent, ToolCall, SessionEvent]
        assert [type(message) for message in received] == kinds
        texts = [m.text for m in received if isinstance(m, SessionEvent)][1:]
        assert texts == ["early", "late"]
        call = received[3]
        assert isinstance(call, ToolCall)
        await channel.answer_tool_call(call, "an early call is answered like any other")
        assert (await tool)["resultType"] == "success"
        del permission


@pytest.mark.requirement("D-36", "L-2")
async def test_the_route_is_there_before_the_next_message_of_the_same_read() -> None:
    server = BareServer()
    async with asyncio.timeout(5), server.routed() as router:
        creating = asyncio.ensure_future(router.create_session())
        asked = await server.hear()
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"sessionId": "another"}}
        call = {"sessionId": "another", "toolCallId": "1", "toolName": "t"}
        server.say(
            server.event("another", "number", number=1),
            answer,
            server.event("another", "number", number=2),
            {"jsonrpc": "2.0", "id": 0, "method": "tool.call", "params": call},
        )
        _, channel = await creating
        assert await numbers(channel, 2) == [1, 2]
        assert isinstance(await channel.recv(), ToolCall)
        assert router.stats().unknown_events == router.stats().refused_requests == 0


@pytest.mark.requirement("D-36")
async def test_a_session_has_its_route_before_its_creation_is_even_sent() -> None:
    server = FakeCliServer()
    routes_at: dict[Stage, int] = {}
    routers: list[MessageRouter] = []

    def watch(trace: Trace) -> None:
        if getattr(trace.message, "method", "") == "session.create":
            routes_at[trace.stage] = routers[0].stats().routes

    builder = Connection.builder().observe(watch)
    async with asyncio.timeout(5), routed(server, builder=builder) as router:
        routers.append(router)
        await opened(router, server)
        assert routes_at[Stage.SENT] == 1


@pytest.mark.requirement("D-36")
async def test_a_creation_sends_the_params_it_was_given_and_an_id_of_its_own() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server, sockets) as router:
        given_params = {"model": "m", "streaming": True}
        session_id, _channel = await router.create_session(given_params)
        assert given_params == {"model": "m", "streaming": True}
        asked = server.asked[0].params
        assert asked == {"model": "m", "streaming": True, "sessionId": session_id}


@pytest.mark.requirement("D-08", "D-36")
async def test_an_id_that_is_open_here_is_not_created_a_second_time() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        _, channel = await router.create_session({"sessionId": "one"})
        with pytest.raises(SessionExists, match="'one'"):
            await router.create_session({"sessionId": "one"})
        assert server.count("session.create") == 1
        server.sessions["one"].emit("number", {"number": 1})
        assert await numbers(channel, 1) == [1]


@pytest.mark.requirement("D-08", "D-37")
async def test_a_server_that_gives_one_id_twice_does_not_take_a_session_from_its_owner() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, session = await opened(router, server)
        gate = server.hold("session.create")
        creating = asyncio.ensure_future(router.create_session())
        (await gate.next()).respond({"sessionId": channel.session_id})
        with pytest.raises(SessionExists):
            await creating
        session.emit("number", {"number": 1})
        assert await numbers(channel, 1) == [1]
        assert server.count("session.destroy") == 0
        assert router.stats().routes == 1


# Traffic that comes too early


@pytest.mark.requirement("L-3", "contract:B1")
async def test_early_traffic_is_held_no_longer_than_a_creation_is_under_way() -> None:
    server = BareServer()
    async with asyncio.timeout(5), server.routed() as router:
        creating = asyncio.ensure_future(router.create_session())
        asked = await server.hear()
        call = {"sessionId": "stray", "toolCallId": "1", "toolName": "t"}
        server.say(
            *[server.event("stray", "number", number=n) for n in range(5)],
            {"jsonrpc": "2.0", "id": 5, "method": "tool.call", "params": call},
        )
        await settle()
        assert router.stats().held_messages == 6
        result = {"sessionId": asked["params"]["sessionId"]}
        server.say({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        await creating
        assert router.stats().held_messages == 0
        assert router.stats().unknown_events >= 5
        refused = await server.hear()
        assert (refused["id"], "error" in refused) == (5, True)


@pytest.mark.requirement("L-3", "contract:B1", "L-30")
async def test_early_traffic_is_held_within_bounds_and_the_oldest_goes_first() -> None:
    server = BareServer()
    async with asyncio.timeout(20), server.routed() as router:
        creating = asyncio.ensure_future(router.create_session())
        asked = await server.hear()
        for stray in range(2000):  # as the last words of many sessions that were closed
            server.say(*[server.event(f"stray-{stray}", "number", number=n) for n in range(10)])
            await settle(3)
        server.say(server.event("ours", "number", number=7))
        for number in range(3000):
            server.say(server.event("chatty", "number", number=number))
            await settle(1)
        assert router.stats().held_messages <= 10_000
        server.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"sessionId": "ours"}})
        _, channel = await creating
        assert await numbers(channel, 1) == [7]


@pytest.mark.requirement("L-3", "contract:B1")
async def test_early_traffic_is_held_within_a_bound_of_bytes() -> None:
    server = BareServer()
    async with asyncio.timeout(20), server.routed() as router:
        creating = asyncio.ensure_future(router.create_session())
        await server.hear()
        for _ in range(800):  # 80 MB
            server.say(server.event("stray", "number", number="x" * 100_000))
            await settle(2)
        assert router.stats().held_messages * 100_000 <= 33 * 2**20
        assert router.stats().unknown_events > 400
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        assert router.stats().held_messages == 0


# Creations that fail


@pytest.mark.requirement("D-38", "D-52")
async def test_a_creation_the_server_refuses_leaves_nothing_behind() -> None:
    server = FakeCliServer("refuse session.create -32603 no such model")
    async with asyncio.timeout(5), routed(server, sockets) as router:
        with pytest.raises(RemoteError, match="no such model") as caught:
            await router.create_session({"model": "x"})
        assert caught.value.code == -32603
        assert is_empty(router)
        await router.request("ping")
        assert server.count("session.destroy") == 0


@pytest.mark.requirement("D-46", "D-38", "D-52")
async def test_a_creation_that_is_never_answered_fails_in_time_and_in_its_own_way() -> None:
    server = FakeCliServer("swallow session.create")
    async with asyncio.timeout(5), routed(server, sockets) as router:
        with pytest.raises(SessionCreateTimeout) as caught:
            await router.create_session(timeout=0.01)
        assert not isinstance(caught.value, RouterStopped | RequestTimeout)
        assert caught.value.timeout_seconds == 0.01
        stats = router.stats()
        assert (stats.routes, stats.pending, stats.held_messages) == (0, 0, 0)
        assert (await router.request("ping"))["protocolVersion"] == 3


@pytest.mark.requirement("D-38", "L-6")
async def test_a_session_made_after_we_gave_up_on_it_is_destroyed() -> None:
    server = FakeCliServer()
    gate = server.hold("session.create")
    async with asyncio.timeout(5), routed(server, sockets) as router:
        with pytest.raises(SessionCreateTimeout):
            await router.create_session(timeout=0.01)
        assert router.stats().orphans == 1
        gate.open()
        await server.wait_for("session.destroy")
        await server.wait_sessions(0)
        assert is_empty(router)


@pytest.mark.requirement("D-38", "L-6")
async def test_a_session_that_was_tried_again_is_not_destroyed_for_the_first_try() -> None:
    server = FakeCliServer()
    gate = server.hold("session.create")
    async with asyncio.timeout(5), routed(server, sockets) as router:
        with pytest.raises(SessionCreateTimeout):
            await router.create_session({"sessionId": "one"}, timeout=0.01)
        again = asyncio.ensure_future(router.create_session({"sessionId": "one"}))
        first, second = await gate.take(2)
        second.proceed()
        _, channel = await again
        first.respond({"sessionId": "one"})
        server.sessions["one"].emit("number", {"number": 1})
        assert await numbers(channel, 1) == [1]
        await router.request("ping")
        assert (server.count("session.destroy"), router.stats().orphans) == (0, 0)


@pytest.mark.requirement("D-38", "L-6")
async def test_what_comes_for_a_session_we_gave_up_on_is_answered_and_dropped() -> None:
    server = FakeCliServer(protocol=2)
    gate = server.hold("session.create")
    async with asyncio.timeout(5), routed(server, sockets) as router:
        with pytest.raises(SessionCreateTimeout):
            await router.create_session(timeout=0.01)
        asked = await gate.next()
        session = asked.open_session()
        session.start()
        with pytest.raises(RemoteError):
            await session.call_tool("t")
        asked.respond(session.created())
        await server.wait_sessions(0)
        assert is_empty(router)


@pytest.mark.requirement("D-38", "L-6")
@pytest.mark.parametrize("own_ids", [False, True])
@pytest.mark.parametrize("rounds", range(16))
async def test_a_creation_cancelled_at_any_moment_leaves_nothing_on_either_side(
    rounds: int, own_ids: bool
) -> None:
    server = FakeCliServer("own-ids" if own_ids else "")
    async with asyncio.timeout(5), routed(server) as router:
        creating = asyncio.ensure_future(router.create_session())
        await settle(rounds)
        creating.cancel()
        (outcome,) = await asyncio.gather(creating, return_exceptions=True)
        if isinstance(outcome, tuple):  # it was faster
            await outcome[1].aclose()
        await settle()
        assert server.sessions == {}
        assert is_empty(router)
        assert server.count("session.destroy") == server.count("session.create")
        channel, session = await opened(router, server)  # and the next one is whole
        session.emit("number", {"number": 1})
        assert await numbers(channel, 1) == [1]


@pytest.mark.requirement("D-38", "L-6", "D-37")
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
async def test_creations_cancelled_and_refused_at_random_leave_the_others_whole(seed: int) -> None:
    server = FakeCliServer()
    gate = server.hold("session.create")
    chance = random.Random(seed)
    async with asyncio.timeout(20), routed(server, sockets) as router:
        creating = [asyncio.ensure_future(create(router, f"model-{n}")) for n in range(12)]
        todo: list[Any] = [("answer", asked) for asked in await gate.take(12)]
        todo += [("cancel", work) for work in creating if chance.random() < 0.4]
        chance.shuffle(todo)
        for what, which in todo:
            if what == "cancel":
                which.cancel()
            elif chance.random() < 0.2:
                which.fail(-32603, "no")
            else:
                which.proceed()
            await settle(chance.randrange(4))
        outcomes = await asyncio.gather(*creating, return_exceptions=True)
        made = [outcome for outcome in outcomes if isinstance(outcome, tuple)]
        await server.wait_sessions(len(made))
        await router.request("ping")  # every answer that was on its way is here
        for session_id, channel in made:
            start = await next_event(channel, "session.start")
            assert start.data["sessionId"] == session_id
        stats = router.stats()
        assert (stats.routes, stats.pending, stats.held_messages) == (len(made), 0, 0)
        assert stats.orphans == 0


@pytest.mark.requirement("L-6")
async def test_a_request_given_up_leaves_nothing_pending_and_its_late_answer_is_dropped() -> None:
    server = FakeCliServer()
    gate = server.hold("ping")
    async with asyncio.timeout(5), routed(server, sockets) as router:
        asking = asyncio.ensure_future(router.request("ping"))
        asked = await gate.next()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert router.stats().pending == 0
        asked.proceed()
        with pytest.raises(RequestTimeout):
            await router.request("ping", timeout=0.01)
        assert router.stats().pending == 0
        gate.open()
        assert (await router.request("ping"))["protocolVersion"] == 3


@pytest.mark.requirement("D-38", "L-30")
async def test_sessions_given_up_on_are_remembered_within_a_bound() -> None:
    server = FakeCliServer("swallow session.create")
    async with asyncio.timeout(20), routed(server) as router:
        for _ in range(1000):
            creating = asyncio.ensure_future(router.create_session())
            await asyncio.sleep(0)
            creating.cancel()
            await asyncio.gather(creating, return_exceptions=True)
        assert router.stats().orphans <= 256
        assert router.stats().pending == 0


# Creations of sessions that are flooded before they begin


def flood(session: FakeSession, count: int) -> None:
    for number in range(count):
        session.emit("number", {"number": number})


@pytest.mark.requirement("contract:B3", "D-38")
async def test_a_session_that_pauses_the_connection_can_be_created_under_a_flood() -> None:
    server = FakeCliServer()
    gate = server.hold("session.create")
    limits = SessionLimits(events=10, overflow=Overflow.PAUSE)
    async with asyncio.timeout(5), routed(server, sockets) as router:
        creating = asyncio.ensure_future(router.create_session(limits=limits))
        asked = await gate.next()
        session = asked.open_session()
        flood(session, 18)
        await settle()
        asked.respond(session.created())
        _, channel = await creating
        assert await numbers(channel, 18) == list(range(18))


@pytest.mark.requirement("contract:B3", "D-38", "contract:B2")
async def test_a_creation_that_fails_under_a_flood_lets_the_connection_go_on() -> None:
    server = FakeCliServer()
    limits = SessionLimits(events=10, overflow=Overflow.PAUSE)
    async with asyncio.timeout(5), routed(server, sockets) as router:
        other, others_session = await opened(router, server)
        gate = server.hold("session.create")
        creating = asyncio.ensure_future(router.create_session(limits=limits))
        asked = await gate.next()
        flood(asked.open_session(), 100)
        await settle()
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        others_session.emit("number", {"number": 1})
        assert await numbers(other, 1) == [1]
        assert (await router.request("ping"))["protocolVersion"] == 3


@pytest.mark.requirement("contract:B3", "D-19")
async def test_a_session_flooded_before_it_began_ends_with_a_reason_after_what_was_queued() -> None:
    server = FakeCliServer()
    gate = server.hold("session.create")
    async with asyncio.timeout(5), routed(server, sockets) as router:
        creating = asyncio.ensure_future(router.create_session(limits=SessionLimits(events=10)))
        asked = await gate.next()
        session = asked.open_session()
        flood(session, 30)
        asked.respond(session.created())
        _, channel = await creating
        assert await numbers(channel, 20) == list(range(20))
        with pytest.raises(SlowConsumer):
            await numbers(channel, 2)
