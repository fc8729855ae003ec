"""A hook that asks at the end of a turn says what it was handed, and is else as quiet as any."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bullpen.agents.hooks import shim
from bullpen.agents.hooks.merge import put_in
from bullpen.agents.hooks.programs import PROGRAMS, Runner
from bullpen.api.locations import socket_path, state_directory
from bullpen.daemon.doors import hooks
from bullpen.mail.doors import Handed
from bullpen.model.deliveries import ReceiptState
from bullpen.model.states import Provider
from tests.daemon.doors.hooked import listening, patient_shim

SHIM = Path(shim.__file__)
ODD = '! first\n日本語 😀 "quoted" \\ <tag> & \'\n\n  indented "output":""'


@pytest.fixture
def socket(home: Path) -> Path:
    return Path(socket_path(os.environ, os.getuid()))


@pytest.fixture
def spool(home: Path) -> Path:
    return Path(state_directory(os.environ, os.getuid())) / "spool"


@pytest.fixture
def patient(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a shim that waits for a daemon on a machine with too much to do."""
    monkeypatch.setattr(hooks, "ASK_SECONDS", 20.0)
    return patient_shim(home / "patient.py", 20.0)


async def run(
    *arguments: str, environment: Mapping[str, str] | None = None, program: Path = SHIM
) -> bytes:
    """Run the shim as a program does at the end of a turn; return what it said."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-I", "-S", str(program), *arguments],
        input=b'{"session_id":"s1","stop_hook_active":false}',
        env={**os.environ, **(environment or {})},
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def left_in(spool: Path) -> list[dict[str, Any]]:
    return [json.loads(each.read_bytes()) for each in spool.glob("*.json")]


ASKING = ("claude", "Stop", "4711", "ask")


@pytest.mark.requirement("door:drain")
@pytest.mark.parametrize("size", [0, 300_000], ids=["odd", "long"])
async def test_it_says_the_message_it_was_handed(
    socket: Path, spool: Path, size: int, patient: Path
) -> None:
    text = ODD + "日" * size
    async with listening(socket) as hooked:
        hooked.post(text, "m1")
        said = await run(*ASKING, environment={"BULLPEN_SECRET": "bp_1"}, program=patient)
        await hooked.until(lambda: bool(hooked.handed))
    assert json.loads(said) == {"decision": "block", "reason": f"[from bob]\n{text}"}
    assert [each.outcome for each in hooked.handed] == [Handed.TAKEN]
    assert hooked.steps == [ReceiptState.INJECTED]
    assert hooked.events == ["Stop"]
    assert hooked.secrets == ["bp_1"]
    assert left_in(spool) == []


@pytest.mark.requirement("door:drain")
async def test_without_mail_it_says_nothing_and_is_only_a_report(
    socket: Path, spool: Path, patient: Path
) -> None:
    async with listening(socket) as hooked:
        assert await run(*ASKING, program=patient) == b""
        assert await run("claude", "Stop", "4711", program=patient) == b""
    assert hooked.events == ["Stop", "Stop"]
    assert len(hooked.asked) == 1
    assert left_in(spool) == []


async def test_only_who_is_to_ask_does(socket: Path) -> None:
    async with listening(socket) as hooked:
        hooked.post("hello", "m1")
        assert await run("claude", "Stop", "4711") == b""
        assert await run("claude", "Stop") == b""
    assert hooked.asked == []
    assert len(hooked.mail) == 1


@pytest.mark.requirement("door:drain")
async def test_what_was_withdrawn_is_not_said(
    socket: Path, monkeypatch: pytest.MonkeyPatch, patient: Path
) -> None:
    monkeypatch.setattr(hooks, "TAKE_SECONDS", 0.0)
    async with listening(socket) as hooked:
        hooked.post("hello", "m1")
        assert await run(*ASKING, program=patient) == b""
        await hooked.until(lambda: bool(hooked.handed))
    assert [each.outcome for each in hooked.handed] == [Handed.NOT_READY]
    assert hooked.steps == []


async def answering(socket: Path, answers: Mapping[str, Any]) -> tuple[bytes, list[str]]:
    """Run the shim against a daemon that answers what it is told to; return what was asked."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            asked.append(json.loads(line)["method"])
            answer = answers.get(asked[-1])
            if answer is not None:
                writer.write(json.dumps({"jsonrpc": "2.0", "id": 1, **answer}).encode() + b"\n")
                await writer.drain()
        writer.close()

    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with await asyncio.start_unix_server(serve, str(socket)):
        said = await run(*ASKING)
    return said, asked


UNKNOWN = {"error": {"code": -32601, "message": "no such method"}}


async def test_an_older_daemon_still_gets_its_report(socket: Path) -> None:
    answers = {"hook.ask": UNKNOWN, "hook.report": {"result": True}}
    said, asked = await answering(socket, answers)
    assert (said, asked) == (b"", ["hook.ask", "hook.report"])


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"hook.ask": {"result": True}},
        {"hook.ask": {"result": {"output": "x"}}},
        {"hook.ask": {"result": {"output": "x", "attempt_id": "m:1"}}},
        {"hook.ask": {"result": {"output": "x", "attempt_id": "m:1"}}, "hook.took": UNKNOWN},
        {
            "hook.ask": {"result": {"output": "x", "attempt_id": "m:1"}},
            "hook.took": {"result": False},
        },
    ],
    ids=["silent", "odd", "nameless", "gone-meanwhile", "not-to-be-taken", "withdrawn"],
)
async def test_whatever_a_daemon_answers_nothing_is_said(
    socket: Path, answers: dict[str, Any]
) -> None:
    said, _ = await answering(socket, answers)
    assert said == b""


async def test_without_a_daemon_it_leaves_a_report_without_the_secret(spool: Path) -> None:
    assert await run(*ASKING, environment={"BULLPEN_SECRET": "bp_1"}) == b""
    [report] = left_in(spool)
    assert report["payload"]["hook_event_name"] == "Stop"
    assert "secret" not in report


async def test_asking_imports_no_more_than_telling(socket: Path) -> None:
    async with listening(socket):
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-I", "-S", "-X", "importtime", str(SHIM), *ASKING],
            input=b"{}",
            capture_output=True,
            check=True,
            timeout=30,
        )
    assert b"json.decoder" not in done.stderr
    assert b"socket.py" not in done.stderr


@pytest.mark.parametrize(
    ("provider", "event"),
    [
        (Provider.CLAUDE, "Stop"),
        (Provider.CODEX, "Stop"),
        (Provider.GEMINI, "AfterAgent"),
        (Provider.COPILOT, "agentStop"),
    ],
    ids=str,
)
def test_the_end_of_a_turn_asks_and_nothing_else(provider: Provider, event: str) -> None:
    program = PROGRAMS[provider]
    text = put_in(None, program, Runner("/usr/bin/python3", "/opt/shim.py"))
    commands = [
        hook[program.command_key]
        for entries in json.loads(text)["hooks"].values()
        for entry in entries
        for hook in (entry["hooks"] if program.is_grouped else [entry])
    ]
    asking = [command for command in commands if " ask " in command]
    assert asking == [
        f"/usr/bin/python3 -I -S /opt/shim.py {provider} {event} $PPID ask || : # bullpen-hook"
    ]
