"""How the program behaves among others: exit codes, pipes, colours, completion."""

import asyncio
import os
import pty
import shutil
import subprocess
import sys
from asyncio.subprocess import PIPE
from importlib import metadata
from pathlib import Path

import pytest

from bullpen.model.states import Activity
from bullpen.testing.daemon import FakeDaemon, agent_state
from tests.cli.commands import PROGRAM, SECONDS, execute


async def in_shell(script: str, **environment: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-o", "pipefail", "-c", script, PROGRAM),
        stdout=PIPE,
        stderr=PIPE,
        env=os.environ | environment,
    )
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("command", ["--version", "--help", "tmux-status", "ls", "ls --json", ""])
async def test_who_stops_reading_is_not_complained_to(command: str, daemon: FakeDaemon) -> None:
    for number in range(2000):  # more than any pipe holds
        daemon._agents[f"claude-{number}"] = agent_state(f"claude-{number}")
    # Buffered as it usually is: what is left to the end must not fail there.
    code, out, err = await in_shell(f'"$0" {command} | true', PYTHONUNBUFFERED="")
    assert (code, out, err) == (0, "", "")


@pytest.mark.parametrize(
    ("environment", "is_coloured"),
    [
        ({}, False),  # nobody is looking
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, True),  # as no-color.org says
    ],
)
async def test_colours_are_as_they_are_wanted(
    environment: dict[str, str], is_coloured: bool, daemon: FakeDaemon
) -> None:
    daemon.set_agent(agent_state("claude-1", Activity.ERROR))
    done = await execute("ls", **environment)
    assert ("\x1b[31m✗ error" in done.out) is is_coloured
    assert "✗ error" in done.out


async def test_json_is_never_coloured(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1", Activity.ERROR))
    assert "\x1b" not in (await execute("ls", "--json", FORCE_COLOR="1")).out


async def test_a_terminal_of_few_letters_is_no_reason_to_fail(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1", Activity.WAITING_INPUT, title="日本"))
    done = await execute("ls", PYTHONIOENCODING="latin-1")
    assert done.code == 0
    assert "? waiting_input" in done.out
    said = (await execute("ls", "--json", PYTHONIOENCODING="latin-1")).json
    assert said["agents"][0]["title"] == "日本"


@pytest.mark.parametrize("command", ["ls", "status", "panes", "sessions", "sources", "alerts"])
async def test_without_a_daemon_that_is_said(command: str) -> None:
    done = await execute(command, "--no-start")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("bullpen: no daemon is running: ")
    assert "Traceback" not in done.err


async def test_what_a_daemon_refuses_is_said(daemon: FakeDaemon) -> None:
    done = await execute("explain", "nobody")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("bullpen: there is no agent or pane 'nobody'; `bullpen ls` ")


def test_the_program_is_the_one_of_the_package() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="bullpen")
    assert script.value == "bullpen.cli.main:main"
    assert Path(PROGRAM).exists()


# Completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_each_shell_understands_its_script(shell: str) -> None:
    done = await execute("completions", shell)
    assert done.code == 0
    assert "_BULLPEN_COMPLETE" in done.out
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    checked = await asyncio.to_thread(
        subprocess.run,
        [program, "-n"],
        input=done.out,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")


async def complete(*words: str) -> list[str]:
    """Return what bash would be offered for the last word."""
    done = await execute(
        COMP_WORDS=" ".join(["bullpen", *words]),
        COMP_CWORD=str(len(words)),
        _BULLPEN_COMPLETE="bash_complete",
    )
    assert (done.code, done.err) == (0, "")
    return [line.partition(",")[2] for line in done.lines if line]


async def test_commands_and_options_are_completed() -> None:
    assert await complete("stat") == ["status"]
    assert await complete("list") == ["list", "list-panes"]
    assert await complete("ls", "--wai") == ["--waiting"]
    assert await complete("snapshot", "re") == ["restore"]
    assert await complete("so") == ["sources"]
    assert await complete("send", "codex", "-p", "u") == ["urgent"]


@pytest.mark.parametrize("command", ["wait", "explain", "send", "ask"])
async def test_agents_are_completed(command: str, daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1"))
    daemon.set_agent(agent_state("codex-1"))
    assert await complete(command, "cl") == ["claude-1"]


async def test_without_a_daemon_no_agent_is_completed(home: Path) -> None:
    assert await complete("wait", "cl") == []
    assert not (home / "run/bullpen").exists()


async def test_a_bash_completes_it(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1"))
    script = """
        eval "$("$0" completions bash)"
        COMP_WORDS=(bullpen wait cl); COMP_CWORD=2
        _bullpen_completion bullpen
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    path = f"{Path(PROGRAM).parent}:{os.environ['PATH']}"
    assert await in_shell(script, PATH=path) == (0, "claude-1\n", "")


# Without a command

BOARD = """
import sys, types
app = types.ModuleType("bullpen.tui.app")
app.run = lambda **options: print("the board", options)
sys.modules["bullpen.tui.app"] = app
sys.argv = ["bullpen", *sys.argv[1:]]
from bullpen.cli.main import main
sys.exit(main())
"""


def test_in_a_terminal_the_board_is_shown() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", BOARD, "-s", "/tmp/x.sock"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while not shown.endswith(b"\n"):
            shown += os.read(ours, 200)
        assert process.wait(timeout=SECONDS) == 0
    os.close(ours)
    assert shown.decode().strip() == "the board {'socket_path': '/tmp/x.sock'}"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is full")
@pytest.mark.parametrize("command", ["ls", "--version", "tmux-status"])
async def test_output_that_cannot_be_written_is_said_in_a_line(
    daemon: FakeDaemon, command: str
) -> None:
    done = await in_shell(f'"$0" {command} > /dev/full')
    said = "bullpen: cannot write the output: No space left on device\n"
    assert done == (1, "", said)


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
async def test_who_closes_what_we_read_or_write_gets_no_traceback(
    daemon: FakeDaemon, closed: str
) -> None:
    daemon.set_agent(agent_state("claude-1"))
    done = await in_shell(f'"$0" ls {closed}')
    assert (done[0], done[2]) == (0, "")


async def test_a_pipe_at_either_end_is_no_terminal(daemon: FakeDaemon) -> None:
    assert await execute() == (0, "no agents\n", "")
