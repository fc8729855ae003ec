"""Agents of ours as others meet them: a daemon and wrappers as processes, each at its own port."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from bullpen.api.runtime import Paths
from bullpen.terminal.pty import PtyProcess
from tests.cli.commands import Done, execute
from tests.daemon.harness import Peer

__all__ = ["HERE", "SECONDS", "House", "heard", "house", "lines_of", "process"]

HERE = Path(__file__).parent
SECONDS = 120.0  # a hang, on however busy a machine

PATIENT = """\
description = "an agent that works until it is interrupted"
command = ["{{python}}", "-I", "-S", "-u", {path}]
idle_regex = '> $'
"""


class House:
    """Some agents of ours, and the commands of who has them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.peer = Peer(Paths.resolve().socket)

    async def run(self, *arguments: str) -> Done:
        return await execute(*arguments, **self._environment)

    async def show(self, *arguments: str) -> Done:
        """Run a command that is to succeed."""
        done = await self.run(*arguments)
        assert done.code == 0, (arguments, done)
        return done

    async def contact(self, name: str) -> dict[str, Any] | None:
        contacts = await self.peer.ask("agent.contacts")
        return next((each for each in contacts if each["name"] == name), None)

    async def url(self, name: str) -> str:
        """Return where an agent serves A2A."""
        found = await self.contact(name)
        assert found is not None
        return f"http://127.0.0.1:{found['port']}"


@asynccontextmanager
async def house(home: Path, *profiles: str, **environment: str) -> AsyncIterator[House]:
    """Have agents of ours for a block, with the test's own home."""
    quiet = {"BULLPEN_OBSERVE_TMUX_ONLY": "1", "BULLPEN_SOURCES_POLLER": "0"}
    found = House({**quiet, "DUMMY_AGENT_SECONDS": "0.1", **environment})
    path = home / ".config/bullpen/profiles/patient.toml"
    path.parent.mkdir(parents=True)
    path.write_text(PATIENT.format(path=json.dumps(str(HERE / "patient_agent.py"))))
    await found.show("up")
    try:
        await asyncio.gather(*(found.show("start", each, "--wait-ready") for each in profiles))
        yield found
    finally:
        await found.show("stop", "--all")
        await found.show("down")


@asynccontextmanager
async def process(
    *command: str | Path, cwd: Path | None = None, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program of others for a block, and end it and all that it started."""
    started = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        await started.communicate()


async def lines_of(*command: str | Path) -> list[dict[str, Any]]:
    """Run a program of others to its end; return the lines of JSON that it prints."""
    async with process(*command) as running:
        async with asyncio.timeout(SECONDS):
            out, err = await running.communicate()
    said = out.decode()
    assert running.returncode == 0, f"{said}\n{err.decode()}"
    return [json.loads(line) for line in said.splitlines()]


async def heard(terminal: PtyProcess, text: bytes) -> None:
    """Read on until something was shown."""
    read = b""
    async with asyncio.timeout(SECONDS):
        while text not in read:
            data = await terminal.read()
            assert data, f"ended after {read!r}"
            read += data
