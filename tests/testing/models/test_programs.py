"""The real programs are the judges of every wire format: they must act on what a script says.

They are not fetched for it: `python -m bullpen.testing.programs install` does that.
"""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from bullpen.testing.models import (
    Fail,
    Hang,
    ModelServer,
    Outcome,
    Say,
    SayResults,
    Shell,
    Think,
    Turn,
)
from bullpen.testing.programs import Launch, installed, launch

pytestmark = [pytest.mark.program, pytest.mark.timeout(120)]

# what lets each run a command unasked
ARGUMENTS = {
    "claude": ["--allowedTools", "Bash"],
    "codex": ["--sandbox", "danger-full-access"],
    "copilot": ["--allow-all-tools"],
    "gemini": ["--yolo"],
    "opencode": [],
}
every_program = pytest.mark.parametrize("name", ARGUMENTS)


def command(name: str, server: ModelServer, home: Path, prompt: str) -> Launch:
    if not installed(name):
        pytest.skip(f"{name} is not installed")
    project = home / "project"
    project.mkdir()
    (project / "opencode.json").write_text(json.dumps({"permission": {"bash": "allow"}}))
    return launch(
        name,
        "prompt",
        home=home / "private",
        model_url=server.url,
        project=project,
        prompt=prompt,
        arguments=ARGUMENTS[name],
    )


def run(launched: Launch) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        launched.argv,
        env=launched.env,
        cwd=launched.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@every_program
def test_it_runs_two_commands_at_once_and_says_what_came_of_them(name: str, home: Path) -> None:
    with ModelServer() as server:
        server.script(
            "to work",
            Turn(Think("hm"), Say("Well."), Shell("expr 40 + 2"), Shell("expr 70 + 7")),
            Turn(SayResults()),
        )
        done = run(command(name, server, home, "Get to work."))
        prompts = [request for request in server.requests if request.is_prompt]
    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout
    assert "77" in done.stdout
    assert [request.prompt for request in prompts] == ["Get to work.", "Get to work."]
    results = prompts[1].tool_results  # in the order they came, which is the program's to choose
    assert len(results) == 2
    assert any("42" in result for result in results)
    assert any("77" in result for result in results)


@every_program
def test_it_reports_an_error_of_the_model(name: str, home: Path) -> None:
    with ModelServer() as server:
        server.script("to work", Fail(400, "no such luck"))
        done = run(command(name, server, home, "Get to work."))
        assert done.returncode != 0
        assert "no such luck" in done.stdout + done.stderr
        assert server.wait_for_request("to work").outcome is Outcome.FAILED


@every_program
def test_it_is_seen_to_leave_when_it_is_killed(name: str, home: Path) -> None:
    with ModelServer() as server:
        server.script("to work", Turn(Say("Wait for it"), Hang()))
        launched = command(name, server, home, "Get to work.")
        process = subprocess.Popen(
            launched.argv,
            env=launched.env,
            cwd=launched.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        try:
            server.wait_for_request("to work", timeout_seconds=60)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # some are a launcher and its child
            process.wait()
        server.wait_for_request(lambda request: request.outcome is Outcome.CLIENT_LEFT)
