"""Every example runs as its docstring says, and shows what it promises to show."""

import ast
import asyncio
import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bullpen.connection import Connection, Notification, Stage, SubprocessTransport, Trace
from tests.examples.programs import ROOT, environment, run_example

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_the_examples_are_found() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_says_how_it_is_run(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert f"python examples/{path.name}" in docstring


@pytest.mark.requirement("T-44")
def test_the_stdio_agent_streams_a_prompt_back_and_ends_with_its_input() -> None:
    prompt = {"jsonrpc": "2.0", "id": 1, "method": "prompt", "params": {"text": "hello there"}}
    done = run_example("echo_agent.py", stdin=json.dumps(prompt) + "\n")
    assert (done.returncode, done.stderr) == (0, "was asked 'hello there'\n")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"jsonrpc": "2.0", "method": "update", "params": {"word": "hello"}},
        {"jsonrpc": "2.0", "method": "update", "params": {"word": "there"}},
        {"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "end_turn"}},
    ]


@pytest.mark.requirement("T-44", "T-29")
async def test_the_stdio_agent_serves_a_client_that_starts_it() -> None:
    heard = []

    def listen(trace: Trace) -> None:
        if trace.stage is Stage.RECEIVED and isinstance(trace.message, Notification):
            heard.append(trace.message.method)

    agent = SubprocessTransport([sys.executable, ROOT / "examples/echo_agent.py"])
    async with asyncio.timeout(30), Connection.builder().observe(listen).connect(agent) as client:
        answer = await client.request("prompt", {"text": "one two three"})
    assert answer == {"stopReason": "end_turn"}
    assert heard == ["update"] * 3
    assert agent.status == 0


def test_typed_requests_are_answered_by_type_and_refused_by_path() -> None:
    done = run_example("typed_requests.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "50 %",
        "100 %",
        "main.py:0: a name says more than a comment",
        "main.py:1: a name says more than a comment",
        "-32602 Invalid params: Expected `int`, got `str` - at `$.most`",
    ]


def test_sessions_share_a_connection_and_fail_alone() -> None:
    done = run_example("many_sessions.py")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:4] == [
        "the model calls weather",
        "Hello from the first.",
        "sunny",
        "failed: out of tokens",
    ]
    assert re.fullmatch(r"1 connection, \d+ events, 0 open", lines[4])


CONDUCTED = [
    "update: my",
    "update: password",
    "update: is",
    "update: [secret]",
    "prompt: {'stopReason': 'end_turn'}",
    "shutdown: {'refused': True}",
]


@pytest.mark.requirement("T-45", "T-57")
@pytest.mark.parametrize(
    "arguments",
    [(), ("--agent", "stdio:python examples/echo_agent.py")],
    ids=["in-process", "agent-as-a-program"],
)
def test_a_conductor_rewrites_answers_and_swallows(arguments: tuple[str, ...]) -> None:
    done = run_example("conductor.py", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == CONDUCTED


@pytest.mark.requirement("T-45", "T-57")
async def test_a_conductor_serves_a_client_that_takes_it_for_the_agent() -> None:
    words = []
    client = Connection.builder().on_notification("update", lambda p, _: words.append(p["word"]))
    conductor = SubprocessTransport(
        [
            *(sys.executable, "examples/conductor.py"),
            *("--agent", shlex.join(["stdio:" + sys.executable, "examples/echo_agent.py"])),
            *("--client", "stdio:"),
        ],
        cwd=ROOT,
    )
    async with asyncio.timeout(30), client.connect(conductor) as connection:
        answer = await connection.request("prompt", {"text": "um hunter2 it is"})
        assert answer == {"stopReason": "end_turn"}
        assert words == ["[secret]", "it", "is"]
        assert await connection.request("shutdown") == {"refused": True}
    assert conductor.status == 0


def test_a_conductor_whose_agent_cannot_be_started_says_so() -> None:
    done = run_example("conductor.py", "--agent", "stdio:no-such-program-anywhere")
    assert done.returncode == 1
    assert "no-such-program-anywhere" in done.stderr


@pytest.mark.requirement("T-52", "T-47")
@pytest.mark.parametrize(
    ("role", "address"),
    [
        ("ask", "stdio:python examples/any_address.py serve stdio:"),
        ("try", "tcp://127.0.0.1:0"),
        ("try", "unix://{home}/demo.socket"),
        ("try", "inproc:demo"),
    ],
    ids=["stdio", "tcp", "unix", "inproc"],
)
def test_one_program_runs_over_whatever_address_it_is_given(
    role: str, address: str, home: Path
) -> None:
    done = run_example("any_address.py", role, address.format(home=home))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 0 1 3 6\n"


@pytest.mark.requirement("T-52", "T-46")
def test_server_and_client_are_two_processes_at_one_address() -> None:
    command = [sys.executable, "-u", "examples/any_address.py", "serve", "tcp://127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            address = server.stderr.readline().removeprefix("serving at ").strip()
            done = run_example("any_address.py", "ask", address)
            assert (done.returncode, done.stdout) == (0, "0 0 1 3 6\n")
        finally:
            server.send_signal(signal.SIGTERM)


def test_an_address_that_is_none_is_explained() -> None:
    done = run_example("any_address.py", "ask", "gopher://somewhere")
    assert done.returncode == 1
    assert "gopher://somewhere" in done.stderr
    assert "Traceback" not in done.stderr
