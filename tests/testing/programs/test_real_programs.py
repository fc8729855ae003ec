"""The pinned programs themselves, installed on demand: the recipes must suit them."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from bullpen.testing.models import ModelServer
from bullpen.testing.programs import PROGRAMS, Launch, NodeMissing, ensure, launch
from bullpen.testing.programs.environment import make_home, offline_environment

pytestmark = [
    pytest.mark.program,
    pytest.mark.timeout(1000),  # the first run downloads
]


def program(name: str) -> Path:
    try:
        return ensure(name)
    except NodeMissing as missing:
        pytest.skip(str(missing))


def run(command: Launch) -> str:
    """Run a program that ends by itself."""
    answer = subprocess.run(
        command.argv,
        env=command.env,
        cwd=command.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return answer.stdout.decode()


@pytest.mark.parametrize("name", ["copilot", "copilot-0.0.420", "codex"])
def test_it_is_the_pinned_version(name: str, home: Path) -> None:
    make_home(home / "private")
    environment = offline_environment(home / "private")
    assert PROGRAMS[name].version in run(
        Launch((str(program(name)), "--version"), environment, home)
    )


@pytest.mark.parametrize("name", ["copilot", "codex"])
def test_it_answers_a_prompt_with_what_the_model_server_says(name: str, home: Path) -> None:
    program(name)
    with ModelServer() as server:
        command = launch(
            name,
            "prompt",
            home=home / "private",
            model_url=server.url,
            project=home,
            prompt="<<say a word from loopback>>",
        )
        assert "a word from loopback" in run(command)


@pytest.mark.parametrize(("name", "protocol"), [("copilot", 3), ("copilot-0.0.420", 2)])
async def test_copilot_serves_its_protocol_on_stdio(name: str, protocol: int, home: Path) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}).encode()
    request = b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    assert await ask(name, "stdio", home, request, until=b'"protocolVersion":%d' % protocol)


async def test_codex_serves_its_protocol_on_stdio(home: Path) -> None:
    params = {"clientInfo": {"name": "test", "title": "Test", "version": "1"}}
    request = json.dumps({"id": 1, "method": "initialize", "params": params}).encode() + b"\n"
    answer = json.loads(await ask("codex", "app-server", home, request, until=b"\n"))
    assert answer["result"]["codexHome"] == str(home / "private" / ".codex")


async def ask(name: str, mode: str, home: Path, request: bytes, *, until: bytes) -> bytes:
    """Start a server, send it one request, and see it end when its input does."""
    await asyncio.to_thread(program, name)
    command = await asyncio.to_thread(
        launch, name, mode, home=home / "private", model_url="http://127.0.0.1:9", project=home
    )
    process = await asyncio.create_subprocess_exec(
        *command.argv,
        env=command.env,
        cwd=command.cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            process.stdin.write(request)
            answer = await process.stdout.readuntil(until)
            process.stdin.close()
            await process.stdout.read()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return answer
