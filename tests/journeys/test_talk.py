"""The session of the document about talking, line by line, with a real daemon and a real agent."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bullpen.model.deliveries import ReceiptState
from bullpen.testing.tmux import eventually
from tests.cli.commands import PROGRAM, Done, execute
from tests.daemon.harness import running_daemon
from tests.docs.pages import ROOT, blocks

SECONDS = 60.0


@pytest.fixture
async def daemon(home: Path) -> AsyncIterator[None]:
    async with running_daemon():
        try:
            yield
        finally:
            await execute("stop", "dummy")


def session() -> list[str]:
    """Return the commands of the first block of the page."""
    first = next(blocks(ROOT / "docs/howto/talk.md"))
    lines = [
        line.removeprefix("$ ").partition("  #")[0].strip() for line in first.text.splitlines()
    ]
    assert len(lines) == 10
    return lines


async def in_shell(line: str, home: Path) -> Done:
    path = f"{Path(PROGRAM).parent}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *("sh", "-ec", line),
        cwd=home,
        env={**os.environ, "PATH": path},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate()
    return Done(process.returncode or 0, out.decode(), err.decode())


@pytest.mark.timeout(180)
@pytest.mark.requirement("O-28", "S-144")
async def test_the_session_of_the_page_about_talking_works(daemon: None, home: Path) -> None:
    said: dict[str, str] = {}
    for line in session():
        if "…" in line:
            tasks = (await execute("task", "--json")).json["tasks"]
            assert [each["state"] for each in tasks[:2]] == ["completed", "completed"]
            line = line.replace("m-…", tasks[0]["id"][:10])
        done = await in_shell(line, home)
        assert done.code == 0, (line, done)
        said[line.split(" m-")[0]] = done.out
    assert said['bullpen send dummy "hello"'].split()[1] in set(ReceiptState)
    seen = said['bullpen send dummy "hello again" --wait seen']
    assert seen.startswith(("● seen m-", "✓ answered m-"))  # the dummy is quick
    answer = said['bullpen ask dummy "are you there?"']
    assert answer == "[DUMMY] You said: [from user] are you there?\n"
    assert "[DUMMY] You said: [from user]" in (home / "answer.txt").read_text()
    for step in ("accepted", "queued", "injected", "submitted", "seen", "answered"):
        assert step in said["bullpen trace"]
    taken = said["bullpen inbox --take"]
    assert "[DUMMY] You said: [from user] hello again" in taken
    assert "are you there?" not in taken  # who waited for that has it already

    async def is_gone() -> bool:
        return "dummy" not in (await execute("ls")).out

    await eventually(is_gone)
