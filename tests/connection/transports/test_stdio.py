"""A program serves on its own stdin and stdout, and nothing else gets onto the wire."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

AGENT = [sys.executable, "-I", str(Path(__file__).parent / "programs/stdio_agent.py")]
AFTER = "printed after\nechoed after\n"


def request(id: int, method: str, params: Any = None) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + "\n"


def run(*requests: str) -> tuple[list[Any], str]:
    """Run the agent on some requests; return its responses and what was printed elsewhere."""
    finished = subprocess.run(
        AGENT, input="".join(requests), capture_output=True, text=True, timeout=30, check=True
    )
    assert finished.stdout.endswith(AFTER)
    responses = [json.loads(line) for line in finished.stdout.removesuffix(AFTER).splitlines()]
    return [response["result"] for response in responses], finished.stderr


@pytest.mark.requirement("T-44", "T-42")
def test_an_agent_serves_on_stdio_until_its_input_ends() -> None:
    results, _ = run(request(1, "echo", "hello"), request(2, "echo", ["again"]))
    assert results == ["hello", ["again"]]


@pytest.mark.requirement("L-40")
def test_stray_output_goes_to_stderr_and_stray_reading_finds_nothing() -> None:
    results, stderr = run(request(1, "chatter"), request(2, "echo", 2))
    assert sorted(map(str, results)) == ["0 b''", "2"]
    for stray in ("a stray print", "a stray write", "a stray child"):
        assert f"{stray}\n" in stderr


@pytest.mark.requirement("L-40")
def test_what_was_printed_before_is_kept_off_the_wire_too() -> None:
    _, stderr = run(request(1, "echo", 1))
    assert "printed before\n" in stderr


@pytest.mark.requirement("L-40")
def test_afterwards_stdout_is_as_it_was() -> None:
    results, stderr = run()  # which checks what is printed after
    assert results == []
    assert AFTER not in stderr


@pytest.mark.requirement("T-24")
def test_there_is_one_at_a_time() -> None:
    results, _ = run(request(1, "open another"), request(2, "echo", 2))
    assert "stdio:: stdin and stdout are in use by another transport" in results
    assert 2 in results


def test_files_do_for_stdin_and_stdout(home: Path) -> None:
    (home / "in").write_text(request(1, "echo", "hello") * 1000)
    with (home / "in").open() as stdin, (home / "out").open("w") as stdout:
        subprocess.run(
            AGENT, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, timeout=30, check=True
        )
    assert (home / "out").read_text().count('"result":"hello"') == 1000


def test_without_stderr_stray_output_goes_nowhere() -> None:
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *AGENT]
    finished = subprocess.run(
        command,
        input=request(1, "chatter"),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert "stray" not in finished.stdout
    assert "0 b''" in finished.stdout


def test_a_closed_stdin_is_said_to_be_so() -> None:
    command = ["sh", "-c", 'exec "$@" 0<&-', "sh", *AGENT]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert finished.returncode == 1
    assert "AddressError: stdio:: stdin or stdout is closed" in finished.stderr


def test_one_description_shared_with_others_is_left_blocking() -> None:
    """A terminal's three descriptors are one: what is done to stdin is done to the shell's."""
    ours, theirs = os.openpty()
    with os.fdopen(ours, "wb", buffering=0) as terminal:
        agent = subprocess.Popen(AGENT, stdin=theirs, stdout=theirs, stderr=theirs)
        terminal.write(b"\x04")  # the end of input, typed
        assert agent.wait(30) == 0
        assert os.get_blocking(theirs)
        os.close(theirs)
