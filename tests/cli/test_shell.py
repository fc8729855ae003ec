"""`bullpen shell` sends what is addressed, tells who is there, and runs the rest."""

import asyncio
import os
from pathlib import Path

import pytest

from bullpen.api.talk import Contact
from bullpen.cli.contacts import contact_lines, listing
from bullpen.model.states import Activity, Provider
from bullpen.terminal.pty import PtyProcess
from bullpen.testing.daemon import FakeDaemon, agent_state
from tests.cli.commands import PROGRAM, SECONDS, Done, invoke, pipe, show

PROMPT = "bullpen> "


@pytest.fixture
def codex(daemon: FakeDaemon) -> FakeDaemon:
    daemon.set_agent(agent_state("codex", Activity.IDLE, cwd="/src"))
    return daemon


async def shell(*lines: str, **environment: str) -> Done:
    """Pipe lines to a shell; what it prints comes without its prompts."""
    text = "".join(f"{line}\n" for line in lines).encode()
    done = await pipe(text, "shell", **{"SHELL": "/bin/sh", **environment})
    assert done.code == 0
    assert done.out.count(PROMPT) >= 1
    return Done(done.code, done.out.replace(PROMPT, ""), done.err)


@pytest.mark.requirement("S-146")
async def test_an_address_sends_a_message_and_goes_on(codex: FakeDaemon) -> None:
    done = await shell("@codex look at this", "@Codex 'and this'")
    assert done.lines[0] == "[→ codex (local)]"
    assert done.lines[1].startswith("accepted m-1 for codex; it waits: ")
    assert done.lines[3].startswith("accepted m-2 for codex; 1 waits before it: ")
    contents = [each.content for each in codex.requests if each.METHOD == "mail.send"]  # type: ignore[attr-defined]
    assert contents == ["look at this", "and this"]


@pytest.mark.requirement("S-146")
@pytest.mark.parametrize("wish", ["--response", "--return"])
async def test_a_wish_for_a_response_waits_for_it(wish: str, codex: FakeDaemon) -> None:
    codex.talk.door.lead_to("codex", lambda message: f"to {message.content}:\nmain")
    done = await shell(f"@codex {wish} which branch?")
    assert done.lines == ["[→ codex (local)]", "[← codex]", "to which branch?:", "main", ""]
    [wait] = [each for each in codex.requests if each.METHOD == "mail.wait"]
    assert wait.timeout_seconds == pytest.approx(30, abs=20)  # type: ignore[attr-defined]
    assert wait.timeout_seconds <= 30  # type: ignore[attr-defined]


@pytest.mark.requirement("S-146")
async def test_who_is_there_and_how_one_is_can_be_asked(codex: FakeDaemon) -> None:
    done = await shell("list", "status codex", "status nobody", "status")
    assert done.lines[0].split() == [
        *("NAME", "TYPE", "PORT", "STATUS", "PID", "ENDPOINT", "DOORS", "WAITING")
    ]
    assert done.lines[1].split() == ["codex", "codex", "-", "IDLE", "-", "-", "-", "0"]
    assert done.lines[2:4] == ["codex is IDLE (✓ idle)", "  type      codex"]
    assert done.err.splitlines() == [
        "bullpen: there is no agent 'nobody'",
        "bullpen: say whose: status AGENT",
    ]


@pytest.mark.requirement("S-146")
async def test_any_other_line_is_run_by_the_users_shell(codex: FakeDaemon, home: Path) -> None:
    sh = home / "sh"
    await asyncio.to_thread(sh.write_text, '#!/bin/sh\necho "$#:$1:$2"\n')
    await asyncio.to_thread(sh.chmod, 0o755)
    done = await shell("ls | wc -l; echo $HOME", SHELL=str(sh))
    assert done.lines[0] == "2:-c:ls | wc -l; echo $HOME"
    real = await shell(
        *("cd /", "pwd", "[ /dev/stdin -ef /dev/null ] && echo nothing to read"),
        *("echo $((6 * 7)) | cat", "exit", "echo never"),
    )
    assert real.lines == ["/", "nothing to read", "42"]


async def test_what_fails_is_told_and_the_next_line_is_read(codex: FakeDaemon) -> None:
    done = await shell("@ghost boo", "@codex", "cd /nowhere-at-all", "no-such-command", "echo on")
    assert done.lines == ["on", ""]
    first, second, third, fourth = done.err.splitlines()
    assert first == "[✗ ghost not found]"
    assert second == "bullpen: say whom, and what: @agent message"
    assert third == "bullpen: /nowhere-at-all: No such file or directory"
    assert "no-such-command" in fourth
    missing = await shell("echo hello", SHELL="/nowhere/sh")
    assert missing.err == "bullpen: /nowhere/sh: No such file or directory\n"


async def test_help_lists_what_can_be_said(codex: FakeDaemon) -> None:
    assert "  @agent --response message" in (await shell("help")).out


async def test_without_a_daemon_it_does_not_begin(home: Path) -> None:
    done = await pipe(b"list\n", "shell", "--no-start")
    assert (done.code, done.out) == (1, "")


@pytest.mark.requirement("S-146")
async def test_on_a_terminal_it_prompts_and_lines_can_be_recalled(codex: FakeDaemon) -> None:
    codex.talk.door.lead_to("codex", lambda message: f"heard {message.content}")
    environment = {**os.environ, "INPUTRC": os.devnull, "SHELL": "/bin/sh"}
    async with (
        asyncio.timeout(SECONDS),
        await PtyProcess.spawn([PROGRAM, "shell"], env=environment, columns=200) as terminal,
    ):
        typist = Typist(terminal)
        await typist.read_until(PROMPT)
        await typist.type("@codex --response one\r", "heard one")
        await typist.type("\x1b[A\x7f\x7f\x7ftwo\r", "heard two")  # the line before, edited
        await typist.type("abc\x03", "\r\n")
        await typist.type("echo $((6 * 7))\r", "42")
        await terminal.write(b"\x04")
        assert await terminal.wait() == 0


class Typist:
    """Types at a shell, each time once it has prompted."""

    def __init__(self, terminal: PtyProcess) -> None:
        self._terminal = terminal
        self._shown = ""

    async def type(self, text: str, expected: str) -> None:
        await self._terminal.write(text.encode())
        await self.read_until(expected)
        await self.read_until(PROMPT)

    async def read_until(self, text: str) -> None:
        while text not in self._shown:
            data = await self._terminal.read()
            assert data, self._shown
            self._shown += data.decode(errors="replace")
        self._shown = self._shown.partition(text)[2]


# The list


@pytest.mark.requirement("S-144")
def test_the_list_has_the_columns_of_the_seed() -> None:
    contact = Contact(
        name="dummy",
        provider=Provider.OTHER,
        profile="dummy",
        activity=Activity.IDLE,
        status="IDLE",
        doors=("pty",),
        waiting=2,
        port=8199,
        pid=42,
        endpoint="http://localhost:8199",
        working_on="m-1",
        holding="it has the message m-1",
        is_present=False,
    )
    assert listing([contact]) == [
        "NAME   TYPE   PORT  STATUS  PID  ENDPOINT               DOORS  WAITING",
        "dummy  dummy  8199  IDLE    42   http://localhost:8199  pty    2",
    ]
    assert list(contact_lines(contact)) == [
        "dummy is IDLE (✓ idle)",
        "  ended     what is sent to it waits for its return",
        "  type      dummy",
        "  doors     pty",
        "  waiting   2 messages: it has the message m-1",
        "  works on  m-1",
    ]


@pytest.mark.requirement("S-144", "S-145")
async def test_everybody_is_listed(codex: FakeDaemon) -> None:
    await show("send", "codex", "hello")
    [contact] = (await show("list", "--json")).json["contacts"]
    assert (contact["name"], contact["status"], contact["waiting"]) == ("codex", "IDLE", 1)
    codex.remove_agent("codex")
    assert (await invoke("list")).code == 0
