"""The real Copilot CLI in server mode, both generations of its protocol, many sessions at once."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from bullpen.agents.providers.copilot import CopilotGateway, Tool
from bullpen.connection import RemoteError
from bullpen.connection.channel import SessionChannel
from bullpen.connection.errors import ProcessExited, RouterStopped, SessionFailed
from bullpen.connection.routed import Cancelled, Idle, PendingToolCall, PermissionRequest
from bullpen.connection.router import MessageRouter
from bullpen.testing.models import ModelServer, Say, Turn, Wait
from tests.programs.servers import WEATHER, copilot, session

pytestmark = [
    pytest.mark.program,
    pytest.mark.timeout(1000),  # the first run downloads
    pytest.mark.xdist_group("programs"),  # each takes a core and half a gigabyte
]

GENERATIONS = pytest.mark.parametrize("name", ["copilot", "copilot-0.0.420"])


async def send(router: MessageRouter, channel: SessionChannel, prompt: str) -> None:
    await router.request("session.send", {"sessionId": channel.session_id, "prompt": prompt})


@GENERATIONS
@pytest.mark.requirement("D-01", "D-02", "D-20", "D-27")
async def test_ten_sessions_stream_side_by_side_over_one_connection(name: str, home: Path) -> None:
    async with ModelServer() as models, copilot(name, home, models) as (router, _pid):

        async def ask(number: int) -> tuple[str, list[str]]:
            chunks: list[str] = []
            _, channel = await router.create_session(session(models))
            async with channel:
                await send(router, channel, f"<<slowly 0.02 the answer of session {number}>>")
                return await channel.read_streaming(chunks.append), chunks

        async with asyncio.timeout(120):
            answers = await asyncio.gather(*map(ask, range(10)))
        for number, (text, chunks) in enumerate(answers):
            assert text == f"the answer of session {number}"
            assert "".join(chunks) == text
            assert len(chunks) > 1  # it came in pieces
        assert router.stats().routes == 0
        assert router.stats().pending == 0


@GENERATIONS
@pytest.mark.requirement("D-11", "D-22", "D-28", "D-31", "L-9")
async def test_a_tool_of_ours_is_called_and_its_result_reaches_the_model(
    name: str, home: Path
) -> None:
    async with ModelServer() as models, copilot(name, home, models) as (router, _pid):
        tool = {**WEATHER, "skipPermission": True}
        params = session(models, tools=[tool])
        _, channel = await router.create_session(params, permit=lambda _: True)
        async with channel, asyncio.timeout(60):
            await send(router, channel, '<<tool get_weather {"city": "Oslo"} ;; results>>')
            called = await channel.read_streaming_for_tools()
            assert isinstance(called, PendingToolCall)
            assert called.params.tool_name == "get_weather"
            assert called.params.arguments == {"city": "Oslo"}
            await channel.answer_tool_call(called.call, "12 degrees and rain")
            ended = await channel.read_streaming_for_tools()
        assert isinstance(ended, Idle)
        assert "12 degrees and rain" in ended.text


@GENERATIONS
@pytest.mark.requirement("L-9")
@pytest.mark.parametrize("allow", [True, False], ids=["granted", "refused"])
async def test_what_a_session_asks_leave_for_happens_only_if_it_is_granted(
    name: str,
    allow: bool,
    home: Path,
) -> None:
    asked: list[PermissionRequest] = []

    def permit(request: PermissionRequest) -> bool:
        asked.append(request)
        return allow

    async with ModelServer() as models, copilot(name, home, models) as (router, _pid):
        _, channel = await router.create_session(session(models), permit=permit)
        async with channel, asyncio.timeout(60):
            await send(router, channel, "<<bash touch made-by-the-tool ;; say done>>")
            await channel.read_streaming()
    assert [request.kind for request in asked] == ["shell"]
    assert "touch made-by-the-tool" in asked[0].details["fullCommandText"]
    assert (home / "project" / "made-by-the-tool").exists() is allow


@GENERATIONS
@pytest.mark.requirement("D-29", "L-12", "contract:C4")
async def test_a_turn_aborted_in_mid_stream_leaves_nothing_to_the_next(
    name: str, home: Path
) -> None:
    async with ModelServer() as models, copilot(name, home, models) as (router, _pid):
        models.script("never ends", Turn(Say("one two three "), Wait("never"), Say("four")))
        _, channel = await router.create_session(session(models))
        async with channel, asyncio.timeout(60):
            token = asyncio.Event()
            await send(router, channel, "a turn that never ends")
            outcome = await channel.read_streaming_with_cancellation(lambda _: token.set(), token)
            assert isinstance(outcome, Cancelled)
            assert outcome.text.startswith("one")
            await send(router, channel, "<<say a clean turn>>")
            assert await channel.read_streaming() == "a clean turn"


@pytest.mark.requirement("D-34")
async def test_an_error_of_the_model_fails_its_turn_and_no_other(home: Path) -> None:
    async with ModelServer() as models, copilot("copilot", home, models) as (router, _pid):
        _, failing = await router.create_session(session(models))
        _, working = await router.create_session(session(models))
        async with failing, working, asyncio.timeout(60):
            await send(router, failing, "<<err 400 no such model>>")
            with pytest.raises(SessionFailed, match=r"400|no such model"):
                await failing.read_streaming()
            await send(router, working, "<<say still here>>")
            assert await working.read_streaming() == "still here"
            await send(router, failing, "<<say and here again>>")
            assert await failing.read_streaming() == "and here again"


@GENERATIONS
@pytest.mark.requirement("D-45", "D-47", "D-48", "D-49", "contract:X1")
async def test_a_killed_server_leaves_nobody_waiting(name: str, home: Path) -> None:
    async with ModelServer() as models, copilot(name, home, models) as (router, pid):
        models.script("never ends", Turn(Say("begun "), Wait("never")))
        _, idle = await router.create_session(session(models))
        _, streaming = await router.create_session(session(models))
        await send(router, streaming, "a turn that never ends")
        begun = asyncio.Event()
        waiting = [
            asyncio.ensure_future(_drain(idle)),
            asyncio.ensure_future(streaming.read_streaming(lambda _: begun.set())),
        ]
        async with asyncio.timeout(60):
            await begun.wait()
            os.kill(pid, signal.SIGSTOP)  # so that it cannot answer what follows
            waiting.append(asyncio.ensure_future(router.request("ping", {})))
            waiting.append(asyncio.ensure_future(_create(router, models)))
            await asyncio.sleep(0)
            os.kill(pid, signal.SIGKILL)
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        for outcome in outcomes:
            assert isinstance(outcome, RouterStopped)
            assert isinstance(outcome.cause, ProcessExited)
            assert outcome.cause.status == -signal.SIGKILL
        with pytest.raises(RouterStopped):
            await router.request("ping", {})


async def _drain(channel: SessionChannel) -> None:
    while True:
        await channel.recv()


async def _create(router: MessageRouter, models: ModelServer) -> None:
    await router.create_session(session(models))


@pytest.mark.requirement("D-18")
async def test_the_server_is_reached_by_the_port_it_prints(home: Path) -> None:
    async with (
        ModelServer() as models,
        copilot("copilot", home, models, over="tcp") as (
            router,
            _pid,
        ),
    ):
        assert (await router.request("ping", {"message": "hi"}))["message"] == "pong: hi"
        _, channel = await router.create_session(session(models))
        async with channel, asyncio.timeout(60):
            await send(router, channel, "<<say over a port>>")
            assert await channel.read_streaming() == "over a port"


@pytest.mark.requirement("D-05", "D-16")
async def test_an_error_of_the_server_is_told_to_the_caller(home: Path) -> None:
    async with ModelServer() as models, copilot("copilot", home, models) as (router, _pid):
        with pytest.raises(RemoteError, match=r"no\.such\.method"):
            await router.request("no.such.method", {})


@pytest.mark.requirement("D-44", "L-7")
async def test_the_gateway_starts_one_server_for_all_who_ask_at_once(home: Path) -> None:
    starts: list[MessageRouter] = []
    async with ModelServer() as models, copilot("copilot", home, models) as (router, _pid):

        async def start() -> MessageRouter:
            starts.append(router)
            await asyncio.sleep(0)
            return router

        weather = Tool(
            name="get_weather",
            description=WEATHER["description"],  # type: ignore[arg-type]
            parameters=WEATHER["parameters"],  # type: ignore[arg-type]
            run=lambda arguments: f"sunny in {arguments['city']}",
        )
        async with CopilotGateway(start) as gateway, asyncio.timeout(60):
            first, second = await asyncio.gather(
                gateway.create_session(session(models)), gateway.create_session(session(models))
            )
            prompt = '<<tool get_weather {"city": "Bergen"} ;; results>>'
            plain, with_tools = await asyncio.gather(
                first.ask("<<say plain>>"), second.ask_with_tools(prompt, [weather])
            )
            assert plain == "plain"
            assert "sunny in Bergen" in with_tools
            assert len(starts) == 1
