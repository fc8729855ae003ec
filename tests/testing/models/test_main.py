"""By hand, the server is one command that says where it listens and ends when told to."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bullpen.testing.models import ModelServer
from bullpen.testing.models.__main__ import main
from bullpen.testing.models.script import parse_turns
from tests.testing.models.clients import AnthropicClient, ask

CLIENT = AnthropicClient()


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "bullpen.testing.models", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", process.stdout.readline())
        assert found
        yield process, int(found[1])
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_interrupted(number: signal.Signals) -> None:
    with running() as (process, port):
        server = ModelServer(port=port)  # only to tell the client where to go
        assert ask(server, CLIENT, "<<say hi>>").text == "hi"
        process.send_signal(number)
        output, errors = process.communicate(timeout=10)
        assert (output, errors) == ("", "")
        assert process.returncode == 0


def test_it_logs_what_arrives(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running("--log", str(log)) as (_, port):
        ask(ModelServer(port=port), CLIENT, "hello", tools=["Bash"])
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[-1]["prompt"] == "hello"
    assert lines[-1]["tools"] == ["Bash"]
    assert [line["outcome"] for line in lines] == ["pending", "pending", "answered"]


def test_a_taken_port_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with ModelServer() as server:
        assert main(["--port", str(server.port)]) == 1
    assert capsys.readouterr().err.startswith(f"bullpen: cannot use port {server.port}: ")


def test_a_log_that_cannot_be_written_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--log", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"bullpen: cannot use {tmp_path}: Is a directory\n"


@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_a_port_that_is_none_is_a_wrong_command_line(
    port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main([f"--port={port}"])
    assert exited.value.code == 2
    assert "--port" in capsys.readouterr().err


def test_the_help_shows_scripts_that_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["--help"])
    assert exited.value.code == 0
    shown = re.findall(r"<<.*?>>", capsys.readouterr().out)
    assert len(shown) > 8
    for script in shown:
        parse_turns(script)
