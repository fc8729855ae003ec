"""`bullpen mcp`: lines through and back, at next to no cost, and whatever becomes of the daemon."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.cli import pump
from tests.cli.commands import PROGRAM, execute
from tests.cli.test_main import modules_after
from tests.servers.mcp.room import LINE_LIMIT, SECONDS, RawPeer, Room, served
from tests.servers.mcp.test_plain import CALL, LIST
from tests.servers.mcp.test_sdk import initialize

BOSS = "secret-of-boss"


class PumpPeer(RawPeer):
    """An agent with a pump."""

    process: asyncio.subprocess.Process

    async def end(self) -> int:
        self.writer.close()
        return await asyncio.wait_for(self.process.wait(), SECONDS)


@asynccontextmanager
async def pumping(*arguments: str, **environment: str) -> AsyncIterator[PumpPeer]:
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        "mcp",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_LIMIT,
        env=os.environ | {"BULLPEN_SECRET": BOSS} | environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    peer = PumpPeer(process.stdout, process.stdin)
    peer.process = process
    try:
        yield peer
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        peer.writer.close()


@pytest.mark.requirement("O-01", "O-14")
async def test_the_seeds_own_lines_go_through_a_pipe_that_ends_with_them() -> None:
    async with served() as (room, _), pumping() as peer:
        peer.write(LIST, CALL)
        peer.writer.write_eof()  # as `printf … | bullpen mcp` does: the answers are still to come
        answers = {each["id"]: each for each in [await peer.read(), await peer.read()]}
        assert await peer.reader.read() == b""
        assert await asyncio.wait_for(peer.process.wait(), SECONDS) == 0
    assert answers[1]["result"]["tools"][0]["name"] == "send_message"
    assert answers[2]["result"]["thinking"] == "簡単です"
    assert [each.from_agent for each in room.messages.values()] == ["grand_boss"]


async def test_the_pump_says_for_whom_it_speaks_and_where() -> None:
    async with served() as (room, _), pumping(TMUX="/tmp/t,1,0", TMUX_PANE="%7") as peer:
        await peer.call("report", activity="running")
        pid = peer.process.pid
    said = room.requests[-1]
    assert (said.name, said.pid, said.cwd) == ("grand_boss", os.getpid(), str(Path.cwd()))
    assert (said.tmux, said.tmux_pane) == ("/tmp/t,1,0", "%7")
    assert pid in room.pids  # by the word of the kernel


async def test_what_a_program_left_of_a_variable_that_is_not_set_is_no_secret() -> None:
    async with served() as (room, _), pumping(BULLPEN_SECRET="${BULLPEN_SECRET}") as peer:
        await peer.call("send_message", to="middle_manager", content="hi")
    assert [each.from_agent for each in room.messages.values()] == ["user"]


@pytest.mark.requirement("mcp:pump")
async def test_it_costs_next_to_nothing() -> None:
    loaded = modules_after("mcp", "--installed")  # at once at the end of an empty input
    assert "bullpen.cli.pump" in loaded
    assert not loaded & {"click", "msgspec", "asyncio", "subprocess", "pathlib", "mcp"}
    async with served(), pumping() as peer:
        await peer.ask("ping")
        used = psutil.Process(peer.process.pid).memory_info().rss
        assert used < 20 * 2**20
        assert await peer.end() == 0


async def test_it_ends_when_nobody_listens_any_more() -> None:
    async with served(), pumping() as peer:
        await peer.ask("ping")
        peer.write({**CALL, "params": silent_call()})
        await peer.writer.drain()
        peer.process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        assert await asyncio.wait_for(peer.process.wait(), SECONDS) == 0


def silent_call() -> dict[str, Any]:
    return {"name": "send_message", "arguments": {"to": "silent", "content": "hi"}}


@pytest.mark.requirement("O-70", "O-101")
async def test_bad_lines_go_through_and_long_ones_are_refused_on_this_side() -> None:
    async with served() as (_, __), pumping() as peer:
        for line, code in (
            (b"hello there", -32700),
            (b'"\xff\xfe"', -32700),
            (b"[" * 50_000, -32700),
            (b'{"id":1}', -32600),
            (b"x" * 20_000_000, -32600),
        ):
            assert (await peer.exchange(line))["error"]["code"] == code, line[:20]
        peer.write(b"", b"   ", b"\r")
        assert (await peer.ask("ping", id="on"))["result"] == {}


@pytest.mark.requirement("O-70", "O-71")
async def test_a_pipe_that_ends_with_what_makes_no_sense_is_answered_and_ends() -> None:
    lines = (
        *(b"{bad", b"{bad", b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', b"[]", b"7"),
        *(b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}', b'{"jsonrpc":"2.0","id":{}}'),
    )
    async with served() as (_, __), pumping() as peer:
        peer.write(*lines)
        peer.writer.write_eof()
        said = await asyncio.wait_for(peer.reader.read(), SECONDS)
        assert await asyncio.wait_for(peer.process.wait(), SECONDS) == 0
    answers = [json.loads(line) for line in said.splitlines()]
    codes = [-32700, -32700, -32600, -32600, -32600, -32700, -32600]
    assert [(each["id"], each["error"]["code"]) for each in answers] == [
        (None, code) for code in codes
    ]


async def test_a_large_message_and_its_answer_go_through_whole() -> None:
    content = "あ\n" * 250_000
    async with served(), pumping() as peer:
        answers = [
            await peer.call("send_message", to="middle_manager", content=content) for _ in range(2)
        ]
    assert {each["result"]["content"] for each in answers} == {f"middle_manager: {content}"}


@pytest.mark.requirement("mcp:pump")
async def test_a_daemon_that_goes_costs_what_was_open_and_the_session_goes_on() -> None:
    async with pumping() as peer:
        first = Room()
        async with served(first):
            await initialize(peer, 0)
            assert (await peer.call("list_agents"))["result"]["structuredContent"]
            params = silent_call()
            peer.write({"jsonrpc": "2.0", "id": "open", "method": "tools/call", "params": params})
            await asyncio.wait_for(first.waiting.wait(), SECONDS)
        lost = await peer.read()
        assert lost["id"] == "open"
        assert lost["error"]["code"] == -32603
        async with served(Room()):
            # Its `initialize` is repeated, and the answer to that is not.
            again = await peer.call("send_message", to="middle_manager", content="hi")
            assert again["result"]["content"] == [{"type": "text", "text": "middle_manager: hi"}]
            assert (await peer.ask("ping", id=0))["result"] == {}
        assert await peer.end() == 0


async def test_an_idle_session_goes_on_as_if_nothing_had_been() -> None:
    async with served(mail={"idle_seconds": 0.2}) as (room, _), pumping() as peer:
        await initialize(peer)
        before = len(room.pids)
        async with asyncio.timeout(SECONDS):
            while await asyncio.to_thread(sockets_of, peer.process.pid):  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # nobody tells of it
        answer = await peer.call("send_message", to="middle_manager", content="hi")
        assert answer["result"]["structuredContent"]["state"] == "answered"
        assert len(room.pids) == before + 1


def sockets_of(pid: int) -> list[Any]:
    return psutil.Process(pid).net_connections("unix")


# Starting a daemon

DAEMON = """
import asyncio, sys
sys.path[:0] = {path!r}
from tests.servers.mcp.room import served

async def main():
    async with served():
        await asyncio.sleep(60)

asyncio.run(main())
"""
UP = """
import pathlib, subprocess, sys
daemon = subprocess.Popen([sys.executable, sys.argv[1]], start_new_session=True)
pathlib.Path(sys.argv[2]).write_text(str(daemon.pid))
daemon.returncode = 0  # it is to outlive us
"""


def test_a_daemon_is_started_if_there_is_none(home: Path, tmp_path: Path) -> None:
    program, told = tmp_path / "daemon.py", tmp_path / "told"
    program.write_text(DAEMON.format(path=sys.path))
    up = [sys.executable, "-c", UP, str(program), str(told)]
    answers, lines = run_pump([LIST], up, home)
    daemon = psutil.Process(int(told.read_text()))
    daemon.kill()
    daemon.wait(SECONDS)
    assert answers[0]["result"]["tools"], lines


def test_without_a_daemon_each_request_hears_so_and_the_pump_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    answers, _ = run_pump([LIST, cancelled, b"?", CALL], [sys.executable, "-c", "exit(1)"], home)
    assert [each["id"] for each in answers] == [1, None, 2]
    assert {each["error"]["code"] for each in answers} == {-32603}
    assert "nor can one be started" in answers[0]["error"]["message"]
    monkeypatch.setattr(pump, "START_SECONDS", 0.1)
    answers, _ = run_pump([LIST], [sys.executable, "-c", ""], home)
    assert "cannot be reached" in answers[0]["error"]["message"]


def run_pump(lines: list[Any], start: list[str], home: Path) -> tuple[list[Any], str]:
    """Let a pump in this process have some lines; return what it answers."""
    said = b"".join(
        (each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in lines
    )
    reading, stdin = os.pipe()
    stdout, writing = os.pipe()
    os.write(stdin, said)
    os.close(stdin)
    try:
        path = str(home / "run/bullpen/bullpend.mcp")
        pump.Pump(path, start, stdin=reading, stdout=writing).run()
        os.close(writing)
        with os.fdopen(stdout, "rb") as heard:
            text = heard.read().decode()
    finally:
        os.close(reading)
    return [json.loads(line) for line in text.splitlines()], text


def test_a_socket_of_somebody_else_is_not_spoken_to(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "is_ours", lambda path: False)
    answers, _ = run_pump([LIST], [sys.executable, "-c", "exit(9)"], home)
    assert "somebody else" in answers[0]["error"]["message"]


async def test_the_socket_can_be_named_and_other_words_are_for_the_command(home: Path) -> None:
    async with served() as (_, paths):
        for given in (["-s", str(paths.socket)], [f"--socket-path={paths.socket}"]):
            async with pumping(*given, XDG_RUNTIME_DIR="", BULLPEN_HOME=str(home / "no")) as peer:
                assert (await peer.ask("ping"))["result"] == {}
    assert pump.pump(["install"]) is None
    assert pump.pump(["--help"]) is None
    wrong = await execute("mcp", "--nonsense")
    assert wrong.code == 2


@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60).filter(lambda data: b"\n" not in data and data.strip()),
            st.recursive(
                st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
                lambda inner: st.one_of(
                    st.lists(inner, max_size=4),
                    st.dictionaries(
                        st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]),
                        inner,
                        max_size=6,
                    ),
                ),
                max_leaves=12,
            ).map(lambda value: json.dumps(value).encode()),
        ),
        max_size=8,
    )
)
def test_whatever_is_said_the_next_request_is_answered(lines: list[bytes]) -> None:
    async def say() -> None:
        async with served(), pumping_in_this_process() as peer:
            peer.write(*lines)
            peer.write({"jsonrpc": "2.0", "id": "the last", "method": "tools/list"})
            while (await peer.read()) != "the last":
                pass

    @asynccontextmanager
    async def pumping_in_this_process() -> AsyncIterator["Listening"]:
        from bullpen.api.runtime import Paths

        path = str(Paths.resolve().mcp_socket)
        reader, writer = await asyncio.open_unix_connection(path, limit=LINE_LIMIT)
        try:
            yield Listening(reader, writer)
        finally:
            writer.close()
            await writer.wait_closed()

    class Listening(RawPeer):
        async def read(self) -> Any:
            answer = await super().read()
            for each in answer if isinstance(answer, list) else [answer]:
                assert each["jsonrpc"] == "2.0"
                assert ("result" in each) is not ("error" in each)
                if "error" in each:
                    assert isinstance(each["error"]["code"], int)
                if each["id"] == "the last":
                    return "the last"
            return None

    asyncio.run(say())
