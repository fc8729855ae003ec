"""A conversation with Copilot: a turn at a time, each of them whole."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.agents.providers.copilot import CopilotGateway, CopilotSession, Tool
from bullpen.connection.errors import RequestTimeout, SessionFailed
from bullpen.connection.routed import Cancelled, Idle
from bullpen.connection.router import MessageRouter
from bullpen.jsonrpc.errors import RemoteError
from bullpen.testing.cli_server import FakeCliServer, FakeSession
from tests.connection.routers import settle, sockets

both_protocols = pytest.mark.parametrize("protocol", [2, 3])


@asynccontextmanager
async def conversation(
    server: FakeCliServer, **options: Any
) -> AsyncIterator[tuple[CopilotSession, FakeSession]]:
    async with (
        asyncio.timeout(10),
        server.connected(sockets) as transport,
        CopilotGateway(lambda: MessageRouter.open(transport)) as gateway,
    ):
        session = await gateway.create_session({"model": "m", "streaming": True}, **options)
        yield session, await server.session(session.session_id)


def adding() -> Tool:
    return Tool(
        name="add",
        description="add two numbers",
        parameters={"type": "object"},
        run=lambda arguments: arguments["a"] + arguments["b"],
    )


# One turn at a time


@pytest.mark.requirement("D-44", "D-27")
@both_protocols
async def test_a_prompt_is_answered_with_the_whole_text(protocol: int) -> None:
    server = FakeCliServer(f"protocol {protocol}")
    async with conversation(server) as (session, its_end):
        chunks: list[str] = []
        assert await session.ask("one two three", chunks.append) == "one two three"
        assert chunks == ["one ", "two ", "three"]
        assert its_end.prompts == ["one two three"]
        assert await session.ask("again") == "again"


@pytest.mark.requirement("L-10")
async def test_two_prompts_at_once_are_answered_one_after_the_other() -> None:
    server = FakeCliServer()
    async with conversation(server) as (session, its_end):
        first = asyncio.ensure_future(session.ask("first"))
        second = asyncio.ensure_future(session.ask("second"))
        assert await its_end.prompted() == "first"
        await settle()
        assert its_end.prompts == ["first"]
        its_end.answer("answer to the first")
        assert await first == "answer to the first"
        assert await its_end.prompted() == "second"
        its_end.answer("answer to the second")
        assert await second == "answer to the second"


@pytest.mark.requirement("L-10", "L-12")
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
async def test_prompts_asked_and_given_up_at_random_get_their_own_answers(seed: int) -> None:
    chance = random.Random(seed)
    server = FakeCliServer(f"protocol {chance.choice([2, 3])}")
    async with conversation(server) as (session, _):

        async def ask(number: int) -> None:
            asking = asyncio.ensure_future(session.ask(f"prompt {number} " * 3))
            if chance.random() < 0.4:
                await settle(chance.randrange(25))
                asking.cancel()
            (outcome,) = await asyncio.gather(asking, return_exceptions=True)
            if not asking.cancelled():
                assert outcome == f"prompt {number} " * 3

        await asyncio.gather(*(ask(number) for number in range(8)))
        assert await session.ask("the last") == "the last"


# Giving up


@pytest.mark.requirement("L-12", "contract:C4", "D-29")
@both_protocols
async def test_after_a_prompt_given_up_while_it_streams_the_next_is_clean(protocol: int) -> None:
    server = FakeCliServer(protocol=protocol)
    async with conversation(server) as (session, its_end):
        heard = asyncio.Event()
        asking = asyncio.ensure_future(session.ask("first", lambda text: heard.set()))
        await its_end.prompted()
        its_end.delta("stale ")
        await heard.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await server.wait_for("session.abort")
        again = asyncio.ensure_future(session.ask("second"))
        assert await its_end.prompted() == "second"
        its_end.answer("fresh")
        assert await again == "fresh"


@pytest.mark.requirement("L-12", "contract:C4")
@both_protocols
async def test_after_a_prompt_given_up_while_it_is_sent_the_next_is_clean(protocol: int) -> None:
    server = FakeCliServer(f"protocol {protocol}")
    gate = server.hold("session.send")
    async with conversation(server) as (session, _):
        asking = asyncio.ensure_future(session.ask("the first prompt"))
        asked = await gate.next()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        asked.proceed()  # the server had it already, and answers
        gate.open()
        assert await session.ask("the second") == "the second"


@pytest.mark.requirement("L-12", "contract:C4")
async def test_after_a_prompt_whose_sending_took_too_long_the_next_is_clean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bullpen.agents.providers.copilot.session.SEND_SECONDS", 0.02)
    server = FakeCliServer("")
    gate = server.hold("session.send")
    async with conversation(server) as (session, _):
        with pytest.raises(RequestTimeout):
            await session.ask("the first prompt")
        (await gate.next()).proceed()
        gate.open()
        assert await session.ask("the second") == "the second"


@pytest.mark.requirement("L-12", "contract:C4", "L-9")
@both_protocols
async def test_after_a_prompt_given_up_while_a_tool_runs_the_next_is_clean(protocol: int) -> None:
    server = FakeCliServer(f"protocol {protocol}; tool wait")
    running = asyncio.Event()

    async def wait(arguments: Any) -> None:
        running.set()
        await asyncio.Event().wait()

    tool = Tool(name="wait", description="", parameters={}, run=wait)
    async with conversation(server) as (session, _):
        asking = asyncio.ensure_future(session.ask_with_tools("first", [tool]))
        await running.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await server.wait_for("session.abort")
        assert await session.ask_with_tools("do: say fresh", [tool]) == "fresh"


@pytest.mark.requirement("D-29", "contract:C4")
async def test_a_prompt_is_given_up_when_its_token_is_set() -> None:
    server = FakeCliServer("")
    async with conversation(server) as (session, _):
        token = asyncio.Event()
        outcome = await session.ask_until("do: say this much; hang", token, lambda _: token.set())
        assert isinstance(outcome, Cancelled)
        assert outcome.text.startswith("this ")
        assert await session.ask_until("all of it", asyncio.Event()) == Idle("all of it")


# Tools


@pytest.mark.requirement("L-9", "D-28")
@both_protocols
async def test_a_tool_is_seen_to_run_and_its_result_reaches_the_server(protocol: int) -> None:
    calls: list[Any] = []

    async def look_up(arguments: Any) -> str:
        calls.append(arguments)
        await asyncio.sleep(0)
        return f"{arguments['city']}: rain"

    tool = Tool(name="weather", description="", parameters={}, run=look_up)
    server = FakeCliServer(
        f'protocol {protocol}; tool weather {{"city": "Oslo"}}; tool weather {{"city": "Rome"}}'
    )
    async with conversation(server) as (session, _):
        # The fake says what the tool answered: it would not, had the tool not run.
        assert await session.ask_with_tools("go", [tool]) == "Oslo: rainRome: rain"
        assert calls == [{"city": "Oslo"}, {"city": "Rome"}]


@pytest.mark.requirement("L-9", "D-44")
async def test_tools_have_a_session_of_their_own_that_is_kept_for_the_next_prompt() -> None:
    server = FakeCliServer('tool add {"a": 1, "b": 2}')
    async with conversation(server) as (session, _):
        tools = [adding()]
        assert await session.ask_with_tools("go", tools) == "3"
        assert await session.ask_with_tools("again", tools) == "3"
        assert server.count("session.create") == 2
        created = server.asked[1].params
        assert [tool["name"] for tool in created["tools"]] == ["add"]
        assert (created["model"], created["streaming"]) == ("m", True)
        assert await session.ask_with_tools("do: say other", []) == "other"
        assert (server.count("session.create"), len(server.sessions)) == (3, 2)
        await session.aclose()
        assert server.sessions == {}


def failing(arguments: Any) -> None:
    raise LookupError("no such city")


@pytest.mark.requirement("L-9", "L-4")
@both_protocols
@pytest.mark.parametrize(
    ("run", "words"),
    [
        (failing, "LookupError: no such city"),
        (lambda arguments: object(), "cannot"),
        (lambda arguments: {"textResultForLlm": "as it is"}, "as it is"),
        (lambda arguments: [1, {"a": None}], '[1,{"a":null}]'),
        (lambda arguments: None, "null"),
        (lambda arguments: "\ud83d", "\ud83d"),
    ],
    ids=["raises", "unserializable", "as-is", "json", "none", "surrogate"],
)
async def test_whatever_a_tool_does_the_server_is_told(protocol: int, run: Any, words: str) -> None:
    server = FakeCliServer(f"protocol {protocol}; tool odd")
    tool = Tool(name="odd", description="", parameters={}, run=run)
    async with conversation(server) as (session, _):
        assert words in await session.ask_with_tools("go", [tool])


@pytest.mark.requirement("L-9", "L-4")
@both_protocols
async def test_a_tool_nobody_offered_is_answered_as_unknown(protocol: int) -> None:
    server = FakeCliServer(f"protocol {protocol}; tool invented")
    async with conversation(server) as (session, _):
        assert "no tool 'invented'" in await session.ask_with_tools("go", [adding()])
        assert "not available" in await session.ask("go")


@pytest.mark.requirement("L-9")
async def test_a_model_that_calls_tools_for_ever_is_stopped_and_that_is_said() -> None:
    fifty = "; ".join(['tool add {"a": 1, "b": 1}'] * 50)
    server = FakeCliServer(f'{fifty}; tool add {{"a": 1, "b": 1}}')
    async with conversation(server) as (session, _):
        assert await session.ask_with_tools(f"do: {fifty}", [adding()]) == "2" * 50
        with pytest.raises(SessionFailed, match="50 tool calls"):
            await session.ask_with_tools("go", [adding()])
        assert server.count("session.abort") == 1
        assert await session.ask_with_tools("do: say fresh", [adding()]) == "fresh"


@pytest.mark.requirement("L-9")
@both_protocols
async def test_leave_is_asked_of_whoever_opened_the_session(protocol: int) -> None:
    server = FakeCliServer(f"protocol {protocol}; permission shell")
    async with conversation(server, permit=lambda asked: asked.kind == "shell") as (session, _):
        assert await session.ask("go") in ("approved", "approve-once")
        assert await session.ask_with_tools("go", [adding()]) in ("approved", "approve-once")
    server = FakeCliServer(f"protocol {protocol}; permission shell")
    async with conversation(server) as (session, _):
        assert await session.ask("go") in ("denied-interactively-by-user", "reject")


# Errors


@pytest.mark.requirement("D-34")
@both_protocols
async def test_an_error_of_the_model_is_raised_and_the_next_prompt_is_fine(protocol: int) -> None:
    server = FakeCliServer(f"protocol {protocol}")
    async with conversation(server) as (session, _):
        with pytest.raises(SessionFailed, match="400 no such model"):
            await session.ask("do: say some words; fail 400 no such model")
        assert await session.ask("fine") == "fine"


@pytest.mark.requirement("D-34", "L-12")
async def test_a_prompt_the_server_refuses_is_raised_and_leaves_no_turn_to_wait_for() -> None:
    server = FakeCliServer("refuse session.send -32603 busy")
    async with conversation(server) as (session, _):
        with pytest.raises(RemoteError, match="busy"):
            await session.ask("first")
        server.script.refused.clear()
        assert await session.ask("second") == "second"
        assert server.count("session.abort") == 0


@pytest.mark.requirement("L-5")
async def test_closing_a_session_ends_it_at_the_server() -> None:
    server = FakeCliServer("")
    async with conversation(server) as (session, _):
        async with session:
            await session.ask("hello")
            assert len(server.sessions) == 1
        assert server.sessions == {}
        await session.aclose()
        assert server.count("session.destroy") == 1
