"""The fake CLI server says what the real one says, in the order the test or its script wants."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.connection import (
    Connection,
    ContentLengthFramer,
    Notification,
    RemoteError,
    Request,
    SocketTransport,
)
from bullpen.testing.cli_server import FakeCliServer, ScriptError, parse_script, script
from bullpen.testing.cli_server.script import Refusal, Shuffle, Step

RECORDINGS = Path(__file__).parents[1] / "recordings" / "copilot"
MODULE = [sys.executable, "-m", "bullpen.testing.cli_server"]


class Client:
    """A connection to the server that writes down all it hears."""

    def __init__(self, connection: Connection, heard: list[Any]) -> None:
        self.request = connection.request
        self.heard = heard

    def events(self, event_type: str) -> list[Any]:
        said = [m.params["event"] for m in self.heard if m.method == "session.event"]
        return [event for event in said if event["type"] == event_type]

    @property
    def types(self) -> list[str]:
        return [
            m.params["event"]["type"] if m.method == "session.event" else m.method
            for m in self.heard
        ]


@contextlib.asynccontextmanager
async def client_of(server: FakeCliServer) -> AsyncIterator[Client]:
    heard: list[Any] = []

    def hear(message: Request | Notification, context: Any) -> Any:
        heard.append(message)
        if message.method == "tool.call":
            return {"result": {"textResultForLlm": "sunny", "resultType": "success"}}
        return {"result": {"kind": "approved"}}

    async with (
        asyncio.timeout(10),
        server.connected() as transport,
        Connection.builder().on_message(hear).connect(transport) as connection,
    ):
        yield Client(connection, heard)


# The same wire as the real server


def recorded(*names: str) -> list[Any]:
    rows = []
    for name in names:
        lines = (RECORDINGS / f"{name}.ndjson").read_text(encoding="utf-8").splitlines()
        rows += [json.loads(line) for line in lines]
    return [row["msg"] for row in rows if row["dir"] == "<-"]


def shapes(messages: list[Any]) -> dict[str, set[str]]:
    """Return the members seen in each kind of event, request and result."""
    found: dict[str, set[str]] = {}
    for message in messages:
        params = message.get("params", {})
        if message.get("method") == "session.event":
            event = params["event"]
            found.setdefault("event", set()).update(event)
            found.setdefault(event["type"], set()).update(event["data"])
        elif "method" in message:
            found.setdefault(message["method"], set()).update(params)
        elif "result" in message and isinstance(message["result"], dict):
            kind = "result " + min(message["result"], default="")
            found.setdefault(kind, set()).update(message["result"])
    return found


async def everything(protocol: int) -> list[Any]:
    """Have the server say all it can say; return it as it would be on the wire."""
    server = FakeCliServer(protocol=protocol)
    results = []
    async with client_of(server) as client:
        if protocol > 2:
            results.append(await client.request("connect", {}))
        results.append(await client.request("ping", {"message": "x"}))
        created = await client.request("session.create", {"sessionId": "s", "model": "m"})
        session = server.sessions["s"]
        prompt = {"sessionId": "s", "prompt": "hello"}
        results += [created, await client.request("session.send", prompt)]
        session.answer("one ", "two")
        tool, leave = session.call_tool("t", {"a": 1}), session.ask_permission("shell")
        if protocol > 2:
            for method, result in [
                ("session.tools.handlePendingToolCall", "sunny"),
                ("session.permissions.handlePendingPermissionRequest", {"kind": "approve-once"}),
            ]:
                answer = {"sessionId": "s", "requestId": next(iter(session.asked))}
                results.append(await client.request(method, {**answer, "result": result}))
        await asyncio.gather(tool, leave)
        await client.request("session.send", prompt)
        session.error("400 no")
        results.append(await client.request("session.abort", {"sessionId": "s"}))
        results.append(await client.request("session.destroy", {"sessionId": "s"}))
        return [{"method": m.method, "params": m.params} for m in client.heard] + [
            {"result": result} for result in results
        ]


@pytest.mark.parametrize(
    ("protocol", "names"),
    [(2, ["v2_multi_10"]), (3, ["multi_10_stdio", "single_session"])],
    ids=["older", "newer"],
)
async def test_nothing_it_says_has_a_member_the_real_server_does_not_say(
    protocol: int, names: list[str]
) -> None:
    real, fake = shapes(recorded(*names)), shapes(await everything(protocol))
    not_recorded = {"session.error"} if protocol == 2 else {"result message"}  # that of a ping
    for kind, members in fake.items():
        if kind not in not_recorded:
            assert members <= real[kind], (kind, members - real[kind])
    assert len(fake) > 15


@pytest.mark.parametrize(
    ("protocol", "order"),
    [
        (2, ["session.start", "session.lifecycle", "reply"]),
        (3, ["session.lifecycle", "reply", "session.start", "session.lifecycle"]),
    ],
)
async def test_a_session_starts_before_or_after_the_answer_as_its_generation_does(
    protocol: int, order: list[str]
) -> None:
    server = FakeCliServer(protocol=protocol)
    said: list[str] = []

    def hear(trace: Any) -> None:
        if trace.stage == "received":
            message: Any = trace.message
            method = getattr(message, "method", "reply")
            said.append(message.params["event"]["type"] if method == "session.event" else method)

    async with (
        asyncio.timeout(5),
        server.connected() as transport,
        Connection.builder().observe(hear).connect(transport) as connection,
    ):
        await connection.request("session.create", {})
        await connection.request("ping")
        assert said[: len(order)] == order


async def test_what_it_refuses_it_refuses_in_the_words_of_the_real_server() -> None:
    failures = [m["error"] for m in recorded("single_session") if "error" in m]
    async with client_of(FakeCliServer()) as client:
        for method, params in [
            ("no.such.method", {}),
            ("session.send", {"sessionId": "nope", "prompt": "x"}),
            ("session.send", {}),
        ]:
            with pytest.raises(RemoteError) as caught:
                await client.request(method, params)
            assert {"code": caught.value.code, "message": caught.value.message} in failures
        assert await client.request("session.destroy", {"sessionId": "nope"}) == {"success": False}
    async with client_of(FakeCliServer(protocol=2)) as client:
        with pytest.raises(RemoteError, match="Unhandled method connect"):
            await client.request("connect", {})


async def test_an_answer_to_what_was_not_asked_is_not_a_success() -> None:
    async with client_of(FakeCliServer()) as client:
        await client.request("session.create", {"sessionId": "s"})
        params = {"sessionId": "s", "requestId": "never asked", "result": "x"}
        for method in (
            "session.tools.handlePendingToolCall",
            "session.permissions.handlePendingPermissionRequest",
        ):
            assert await client.request(method, {**params, "result": {}}) == {"success": False}


# The test decides


async def test_held_requests_wait_for_the_test_and_are_answered_as_it_likes() -> None:
    server = FakeCliServer()
    gate = server.hold("ping")
    async with client_of(server) as client:
        asking = [asyncio.ensure_future(client.request("ping", {"message": n})) for n in range(3)]
        first, second, third = await gate.take(3)
        third.proceed()
        second.respond("something else")
        first.fail(-32000, "no")
        outcomes: list[Any] = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(outcomes[0], RemoteError)
        assert outcomes[1] == "something else"
        assert outcomes[2]["message"] == "pong: 2"
        gate.open()
        assert (await client.request("ping", {"message": 3}))["message"] == "pong: 3"
        assert server.methods == ["ping"] * 4


async def test_without_a_script_it_says_nothing_of_its_own_accord() -> None:
    server = FakeCliServer()
    async with client_of(server) as client:
        await client.request("session.create", {"sessionId": "s"})
        await client.request("session.send", {"sessionId": "s", "prompt": "hello"})
        await client.request("ping")
        assert await server.sessions["s"].prompted() == "hello"
        assert "assistant.message" not in client.types
        assert server.sessions["s"].is_processing
        await client.request("session.abort", {"sessionId": "s"})
        await client.request("ping")
        assert client.types[-1] == "session.idle"
        assert client.events("session.idle")[0]["data"]["aborted"]


async def test_the_sessions_of_a_connection_end_with_it() -> None:
    server = FakeCliServer()
    async with client_of(server) as client:
        await client.request("session.create", {})
        assert len(await server.wait_sessions(1)) == 1
    assert server.sessions == {}
    assert server.connections == 1


# The script


def test_every_command_is_understood_and_documented() -> None:
    for name in script._COMMANDS:
        assert f"    {name}" in (script.__doc__ or ""), name
    parsed = parse_script(
        "noise 2; greet Hi there; port-line nonsense; exit 3; child; stubborn\n"
        "protocol 2; own-ids; swallow ping; refuse session.send -5 not now\n"
        "shuffle session.create 3 9\n"
        'say a b; stream 2; flood 3 4 5; tool t {"a": [1]}; permission shell; fail why; hang; '
        "stderr oh; crash 7; crash kill"
    )
    assert (parsed.noise, parsed.greeting, parsed.port_line) == (2, "Hi there", "nonsense")
    assert (parsed.exit_status, parsed.has_child, parsed.is_stubborn) == (3, True, True)
    assert (parsed.protocol, parsed.own_ids, parsed.swallowed) == (2, True, {"ping"})
    assert parsed.refused == {"session.send": Refusal(-5, "not now")}
    assert parsed.shuffled == {"session.create": Shuffle(3, 9)}
    assert parsed.steps == [
        Step("say", "a b"),
        Step("stream", numbers=(2,)),
        Step("flood", numbers=(3, 4, 5)),
        Step("tool", "t", arguments={"a": [1]}),
        Step("permission", "shell"),
        Step("fail", "why"),
        Step("hang"),
        Step("stderr", "oh"),
        Step("crash", numbers=(7,)),
        Step("crash"),
    ]
    assert parse_script("no-port-line").port_line == ""
    assert parse_script(" ; \n ;").steps == []


@pytest.mark.parametrize(
    "text",
    ["dance", "stream", "stream x", "flood 1 2", "crash now", "refuse ping", "tool t {", "exit"],
)
def test_a_command_that_cannot_be_understood_is_named(text: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(f"stream 1; {text}")
    assert caught.value.command == text


async def test_a_prompt_may_bring_steps_of_its_own_and_is_told_what_is_wrong_with_them() -> None:
    async with client_of(FakeCliServer("say the usual")) as client:
        await client.request("session.create", {"sessionId": "s"})
        for prompt in ("hello", "do: say something else", "do: dance"):
            await client.request("session.send", {"sessionId": "s", "prompt": prompt})
            await client.request("ping")  # answered after the turn, which takes no time
            said = [event["data"]["content"] for event in client.events("assistant.message")]
            failed = [event["data"]["message"] for event in client.events("session.error")]
            client.heard.clear()
            if prompt == "do: dance":
                assert "'dance': there is no such command" in failed
            else:
                assert said == ["the usual" if prompt == "hello" else "something else"]


async def test_what_is_shuffled_is_shuffled_the_same_way_by_the_same_seed() -> None:
    orders = []
    for seed in (1, 1, 2):
        server = FakeCliServer(f"shuffle ping 8 {seed}")
        order: list[int] = []
        async with client_of(server) as client:

            async def ask(client: Client, number: int, order: list[int]) -> None:
                await client.request("ping", {"message": number})
                order.append(number)

            await asyncio.gather(*(ask(client, number, order) for number in range(8)))
        orders.append(order)
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(8))


# As a process


async def start(*arguments: str, **options: Any) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *MODULE, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, **options
    )


async def test_as_a_process_it_names_its_port_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with asyncio.timeout(20):
        process = await start("--headless", "--port", "0", "--journal", str(journal))
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        assert line.startswith("CLI server listening on port ")
        transport = SocketTransport.tcp(
            "127.0.0.1", int(line.split()[-1]), framer=ContentLengthFramer()
        )
        async with Connection.builder().connect(transport) as connection:
            assert (await connection.request("ping", {}))["protocolVersion"] == 3
        process.send_signal(signal.SIGTERM)
        await process.communicate()
        assert process.returncode == 0
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [entry["what"] for entry in entries] == ["started", "accepted", "closed", "ended"]
    assert {entry["pid"] for entry in entries} == {process.pid}


async def test_over_stdio_it_says_nothing_before_it_is_asked_and_ends_with_its_input(
    tmp_path: Path,
) -> None:
    path = tmp_path / "script"
    path.write_text("protocol 2\nnoise 1\n")
    async with asyncio.timeout(20):
        process = await start("--server", "--stdio", "--script", f"@{path}")
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"message":"x"}}'
        output, errors = await process.communicate(ContentLengthFramer().frame([ping]))
        (frame,) = ContentLengthFramer().feed(output)
        assert isinstance(frame, bytes)
        assert json.loads(frame)["result"]["message"] == "pong: x"
        assert errors == b"noise 0\n"
        assert process.returncode == 0


async def test_a_script_it_cannot_read_ends_it_with_the_reason() -> None:
    async with asyncio.timeout(20):
        process = await start("--script", "dance")
        _, errors = await process.communicate()
        assert process.returncode == 1
        assert b"'dance': there is no such command" in errors
