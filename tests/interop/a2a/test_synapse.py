"""A real agent of Synapse and one of ours, of the same type, find each other and exchange tasks."""

import asyncio
import shutil
import socket
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from bullpen.terminal.pty import PtyProcess
from bullpen.testing.programs.libraries import python_with
from tests.cli.commands import PROGRAM
from tests.daemon.harness import until
from tests.interop.a2a.houses import HERE, SECONDS, House, heard, house, process
from tests.servers.a2a.house import Web, linux_only

pytestmark = [linux_only, pytest.mark.timeout(1000)]  # the first run downloads

# Synapse may take a task for done before its program has said a word, and is asked again then.
QUESTIONS = ("who?", "where?", "when?")


@pytest.mark.requirement("a2a:clients", "a2a:servers", "S-04", "S-48", "S-98", "S-100", "S-121")
async def test_an_agent_of_synapse_and_ours_exchange_tasks_both_ways(home: Path) -> None:
    python = await asyncio.to_thread(python_with, HERE / "synapse.lock")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    beside = home / "synapse"
    beside.mkdir()
    program = resources.files("bullpen.agents.profiles").joinpath("dummy_agent.py")
    shutil.copy(str(program), beside)  # Synapse's own is not in its package
    variables = {"SYNAPSE_UDS_DIR": str(beside), "DUMMY_AGENT_SECONDS": "0"}
    command = (python, HERE / "servers/synapse_agent.py", "--profile", "dummy", "--port", str(port))
    async with (
        process(*command, cwd=beside, **variables),
        house(home, "dummy") as ours,
    ):
        web = Web(port)
        await until(lambda: answers(web), SECONDS)
        await asyncio.gather(
            theirs_asks_ours(web, await ours.url("dummy")),
            who_has_synapse_asks_ours(python, web, ours, beside),
        )
        await ours_asks_theirs(ours, web)  # alone: Synapse types what two say into one line


async def answers(web: Web) -> bool:
    try:
        return (await web.get("/status")).status == 200
    except OSError:
        return False


async def ours_asks_theirs(ours: House, web: Web) -> None:
    """By a command, and by `@name` in the terminal of our agent."""
    name = f"dummy-{web.port}"
    contact = await until(lambda: ours.contact(name), SECONDS)
    assert (contact["profile"], contact["is_wrapped"]) == ("dummy", False)
    answers = []
    for question in QUESTIONS:
        answers.append((await ours.show("ask", name, question, "--timeout", str(SECONDS))).out)
        if f"You said: A2A: [From: user] {question}" in answers[-1]:
            break
    else:
        pytest.fail(f"it answered {answers}")
    async with await PtyProcess.spawn([PROGRAM, "attach", "dummy"]) as terminal:
        await heard(terminal, b"> ")
        await terminal.write(f"@{name} typed here\r".encode())
        await heard(terminal, f"[→ {name} (local)]".encode())
    await until(lambda: shows(web, "[From: user] typed here"), SECONDS)


async def shows(web: Web, text: str) -> bool:
    """Whether the terminal of their agent shows something."""
    return text in (await web.get("/status")).body["context"]


async def theirs_asks_ours(web: Web, url: str) -> None:
    """By Synapse's own client, in its agent."""
    found = await web.post("/external/discover", {"url": url, "alias": "theirs"}, **JSON)
    assert (found.status, found.body["name"]) == (200, "dummy")
    asked = {"message": "from Synapse", "wait_for_completion": True, "timeout": SECONDS}
    sent = await web.post("/external/agents/theirs/send", asked, **JSON)
    assert sent.body["status"] == "completed"
    said = "[DUMMY] You said: [from a2a] from Synapse"
    assert sent.body["artifacts"] == [{"type": "text", "data": said}]


JSON = {"content_type": "application/json"}


async def who_has_synapse_asks_ours(python: Path, web: Web, ours: House, beside: Path) -> None:
    """By Synapse's command line in the name of its agent, which finds ours in the registry."""
    contact = await ours.contact("dummy")
    assert contact is not None
    from_theirs = ("--from", f"synapse-dummy-{web.port}", "--notify", "--force")
    send = ("send", f"dummy-{contact['port']}", "by command", *from_theirs)
    async with process(python, "-m", "synapse", *send, cwd=beside) as running:
        async with asyncio.timeout(SECONDS):
            out, err = await running.communicate()
    assert running.returncode == 0, err.decode()
    [task_id] = [line.split()[-1] for line in out.decode().splitlines() if "Task ID" in line]

    async def completed() -> Any:
        task = await ours.peer.ask("task.get", task_id=task_id)
        return task if task["state"] == "completed" else None

    [answer] = (await until(completed, SECONDS))["answers"]
    assert answer["content"] == "[DUMMY] You said: [from a2a] by command"
    # Its agent has the answer in the terminal, as from another one of Synapse's.
    await until(lambda: shows(web, f"[From: dummy] {answer['content']}"), SECONDS)
