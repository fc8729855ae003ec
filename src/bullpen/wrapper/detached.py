"""Starting a wrapper apart from us: in a session of its own, which no closed terminal ends."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from bullpen.agents.instances import Instances
from bullpen.api.runtime import Paths, make_private
from bullpen.errors import BullpenError
from bullpen.wrapper import reach
from bullpen.wrapper.attaching import AskInfo, AskWait
from bullpen.wrapper.reach import Instance

__all__ = ["NotStartedError", "Started", "start"]

START_SECONDS = 30.0  # a program needs a second, a busy machine some more
LOOK_SECONDS = 0.02  # nothing tells when a wrapper has made itself known: we have to look
ANSWER_SECONDS = 5.0
TAIL_BYTES = 2**14
TAIL_LINES = 12


class NotStartedError(BullpenError):
    """An agent was started and did not come up. The message is what it said last."""

    def __init__(self, profile: str, how: str, said: str) -> None:
        lines = "".join(f"\n  {line}" for line in said.splitlines()[-TAIL_LINES:])
        super().__init__(f"{profile} {how}{':' if lines else ''}{lines}")
        self.profile = profile
        self.said = said


class Started(msgspec.Struct, frozen=True):
    """A wrapper that can be reached: its program runs."""

    instance: Instance
    is_ready: bool | None = None
    """Whether its agent can be talked to; None if nobody asked."""
    said: str = ""
    """What there is to know of its start, in lines: why it is given less than it could be."""


async def start(
    paths: Paths,
    profile: str,
    *,
    name: str = "",
    port: int | None = None,
    arguments: Sequence[str] = (),
    starts_daemon: bool = True,
    ready_seconds: float | None = None,
) -> Started:
    """Start a wrapper and wait until its program runs; also until it is ready, if wanted.

    Raises:
        NotStartedError: it ended, or does not come up in time.
        DirectoryError: our directories cannot be used.
        SocketPathError: they are so deep that it could not be reached.
    """
    Instances(paths.agents).check_room()
    words = ["--name", name] if name else []
    words += ["--port", str(port)] if port is not None else []
    words += [] if starts_daemon else ["--no-start"]
    # -P: whatever lies in the directory we are called from is not what is meant by `bullpen`.
    command = [sys.executable, "-P", "-m", "bullpen.wrapper", *paths.arguments, *words]
    await asyncio.to_thread(make_private, paths.agents)
    with tempfile.TemporaryFile(dir=paths.agents) as said:
        process = await asyncio.to_thread(_spawn, [*command, "--", profile, *arguments], said)
        found = await _until_found(paths, profile, process, said)
        told = await asyncio.to_thread(_tail, said)
    if ready_seconds is None:
        return Started(found, said=told)
    asked = AskWait(ready_seconds)
    try:
        info = await reach.ask(found, asked, seconds=ready_seconds + ANSWER_SECONDS)
    except BullpenError:
        if not await reach.wait_gone(found, ANSWER_SECONDS):
            raise
        await asyncio.to_thread(process.wait, ANSWER_SECONDS)  # by who buries it
        how = f"{_trouble(process)} before it was ready"
        raise NotStartedError(profile, how, await asyncio.to_thread(_logged, found.log)) from None
    return Started(found, info.is_ready, told)


def _spawn(command: list[str], said: IO[bytes]) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=said,
        start_new_session=True,
    )
    # Should we outlive it, somebody has to bury it.
    threading.Thread(target=process.wait, name="bullpen-wrapper", daemon=True).start()
    return process


async def _until_found(
    paths: Paths, profile: str, process: "subprocess.Popen[bytes]", said: IO[bytes]
) -> Instance:
    """Wait until the wrapper can be reached, which it can once its program runs."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_SECONDS
    while True:
        found = await asyncio.to_thread(_find, paths, process.pid)
        if found is not None:
            with contextlib.suppress(BullpenError):
                await reach.ask(found, AskInfo(), seconds=ANSWER_SECONDS)
                return found
        how = _trouble(process)
        if not how and loop.time() > deadline:
            how = f"(pid {process.pid}) is not there within {START_SECONDS:g} s"
        if how:
            raise NotStartedError(profile, how, await asyncio.to_thread(_tail, said))
        await asyncio.sleep(LOOK_SECONDS)


def _find(paths: Paths, pid: int) -> Instance | None:
    return next((each for each in reach.running(paths) if each.pid == pid), None)


def _trouble(process: "subprocess.Popen[bytes]") -> str:
    status = process.poll()
    if status is None:
        return ""
    return f"ended with status {status}" if status >= 0 else f"was ended by signal {-status}"


def _logged(path: str) -> str:
    try:
        with Path(path).open("rb") as log:
            return _tail(log)
    except OSError:
        return ""


def _tail(said: IO[bytes]) -> str:
    size = said.seek(0, os.SEEK_END)
    said.seek(max(size - TAIL_BYTES, 0))
    return said.read().decode(errors="replace").replace("\r", "")
