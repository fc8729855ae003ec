"""How programs are connected is a matter of configuration."""

import asyncio
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bullpen.connection import AddressError, Connection, listen, open_transport
from tests.connection.transports.programs.serve_at import serve_at

PROGRAM = [sys.executable, "-I", str(Path(__file__).parent / "transports/programs/serve_at.py")]


async def greet_at(address: str) -> str:
    async with asyncio.timeout(10), Connection.builder().connect(open_transport(address)) as peer:
        return await peer.request("greet", "Ada", result=str)


@pytest.mark.requirement("T-52", "T-01", "T-47")
@pytest.mark.parametrize(
    "address",
    [
        "tcp://127.0.0.1:0",
        "tcp://127.0.0.1:0?framing=content-length",
        "unix://{home}/run/s",
        "unix://{home}/run/s?framing=content-length",
        "ws://127.0.0.1:0",
        "ws+unix://{home}/run/s",
    ],
)
async def test_one_program_serves_at_any_address(address: str, home: Path) -> None:
    command = [*PROGRAM, address.format(home=home)]
    serving = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert serving.stdout is not None
    actual = (await serving.stdout.readline()).decode().strip()
    framing = address.partition("?")[2]
    assert await greet_at(f"{actual}?{framing}" if framing else actual) == "Hi Ada"
    serving.terminate()
    await serving.wait()


@pytest.mark.requirement("T-52")
@pytest.mark.parametrize("framing", ["", "?framing=newline", "?framing=content-length"])
async def test_the_same_program_is_started_and_spoken_to_over_stdio(framing: str) -> None:
    command = shlex.join([*PROGRAM, f"stdio:{framing}"])
    assert await greet_at(f"stdio:{command}{framing}") == "Hi Ada"


@pytest.mark.requirement("T-52")
async def test_the_same_program_serves_within_the_process() -> None:
    async with serve_at("inproc:greeter") as listener:
        assert await greet_at(listener.address) == "Hi Ada"


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "expected one of stdio: tcp://"),
        ("nonsense", "expected one of"),
        ("http://127.0.0.1:80", "expected one of"),
        ("tcp:", "expected tcp://host:port"),
        ("tcp://127.0.0.1", "expected tcp://host:port"),
        ("tcp://127.0.0.1:many", "expected tcp://host:port"),
        ("tcp://127.0.0.1:65536", "expected tcp://host:port"),
        ("tcp://:80", "expected tcp://host:port"),
        ("tcp://127.0.0.1:80/path", "expected tcp://host:port"),
        ("tcp://127.0.0.1:80?framing=morse", "framing is one of content-length, newline"),
        ("tcp://127.0.0.1:80?speed=high", "expected tcp://host:port"),
        ("unix:relative", "expected unix:///absolute/path"),
        ("unix://relative/path", "expected unix:///absolute/path"),
        ("unix:///", "expected unix:///absolute/path"),
        ("unix:///" + "x" * 200, "the path has 201 bytes"),
        ("ws+unix:/s", "expected ws\\+unix:///absolute/path"),
        ("inproc:", "expected inproc:name"),
    ],
)
def test_nonsense_is_said_to_be_so_wherever_it_is_given(address: str, reason: str) -> None:
    for use in (open_transport, lambda address: listen(address, Connection.builder())):
        with pytest.raises(AddressError, match=reason) as caught:
            use(address)
        assert caught.value.address.startswith(address[:4])


def test_an_unfinished_quotation_is_said_to_be_so() -> None:
    with pytest.raises(AddressError, match="No closing quotation"):
        open_transport("stdio:agent 'unfinished")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("stdio:codex app-server", "can be connected to, not listened at"),
        ("wss://127.0.0.1:443", "TLS is left to a proxy"),
        ("ws://127.0.0.1:80/path", "expected ws://host:port"),
    ],
)
def test_what_can_only_be_connected_to_is_not_listened_at(address: str, reason: str) -> None:
    open_transport(address)
    with pytest.raises(AddressError, match=reason):
        listen(address, Connection.builder())


async def test_a_command_is_split_into_words_and_no_shell_sees_it(home: Path) -> None:
    witness = home / "witness"
    code = "import json, sys; print(json.dumps({'id': 1, 'result': sys.argv[1:]}), flush=True)"
    words = f"""'two words' "$HOME" ; touch {witness} > {witness}"""
    address = f"stdio:{sys.executable} -Ic {shlex.quote(code)} {words}"
    async with Connection.builder().connect(open_transport(address)) as peer:
        assert await peer.request("anything") == shlex.split(words)
    assert "witness" not in os.listdir(home)  # noqa: PTH208


async def test_an_ipv6_host_is_written_in_brackets() -> None:
    with pytest.raises(AddressError, match=r"tcp://\[::1\]:1: "):
        await Connection.builder().open(open_transport("tcp://[::1]:1"))
