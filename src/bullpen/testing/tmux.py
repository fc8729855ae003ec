"""Tmux for tests: a real server of one's own, and a runner without any.

`PrivateTmux` is a server with its own socket in its own directory and no configuration, ended with
all that runs in it. It never touches the server of whoever runs the tests. `FakeTmux` answers
commands by a function.
"""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from bullpen.terminal.tmux.errors import TmuxError
from bullpen.terminal.tmux.program import find_tmux
from bullpen.terminal.tmux.protocol import argument_words, escape_format
from bullpen.terminal.tmux.runner import Answer, one_answer
from bullpen.terminal.tmux.target import TmuxTarget

__all__ = ["FakeTmux", "PrivateTmux", "eventually"]

WAIT_SECONDS = 10.0  # for what takes milliseconds on a machine with nothing else to do
LOOK_SECONDS = 0.02
COMMAND_SECONDS = 10.0

SILENT = "stty raw -echo; exec cat >/dev/null"  # shows only what `show` writes, and types nothing


class PrivateTmux:
    """A tmux server of one's own, from `start` (or entering a block) to `stop` (or leaving it)."""

    def __init__(self, *, width: int = 80, height: int = 24) -> None:
        self._size = (width, height)
        self._directory = ""
        self.executable = "tmux"
        self.pid = 0

    @property
    def target(self) -> TmuxTarget:
        """Its address."""
        return TmuxTarget(f"{self._directory}/tmux.sock", "PrivateTmux")

    @property
    def _program(self) -> tuple[str, ...]:
        return (self.executable, "-u", *self.target.arguments)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def prepare(self) -> None:
        """Make its directory, but start nothing."""
        if not self._directory:
            # Once: what is put first on the PATH later is somebody else's test.
            self.executable = await asyncio.to_thread(find_tmux, os.environ)
            self._directory = await asyncio.to_thread(tempfile.mkdtemp, prefix="bullpen-tmux-")

    async def start(self, command: str = SILENT, *, session: str = "main") -> str:
        """Start the server with one session; return its first pane."""
        await self.prepare()
        return await self.new_session(session, command)

    async def stop(self) -> None:
        """End the server, however it is, and all that runs in it."""
        await self.kill()
        if self._directory:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    async def kill(self) -> None:
        """End the server and what runs in it. The socket stays behind, as after a crash."""
        if not self.pid:
            return
        pid, self.pid = self.pid, 0
        running: list[int] = []
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
            with contextlib.suppress(subprocess.SubprocessError, ValueError):
                listed = await self.run("list-panes", "-a", "-F", "#{pane_pid}")
                running = [int(each) for each in listed.split()]
            os.kill(pid, signal.SIGKILL)
        for group in running:  # the hang-up of their terminal may not have been enough
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        await eventually(lambda: asyncio.to_thread(_is_gone, pid))

    def hang(self) -> None:
        """Let the server stand still."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    async def run(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """Run a command by a process of its own, as a user would; return what it printed.

        Raises:
            subprocess.CalledProcessError: it failed.
        """
        done = await asyncio.to_thread(
            subprocess.run,
            [*self._program, "-f", "/dev/null", *argument_words(words)],
            check=True,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            env=_outside_of_tmux(environment),
        )
        return done.stdout.decode(errors="replace").removesuffix("\n")

    async def new_session(self, name: str, command: str = SILENT) -> str:
        """Make a session, and the server with the first one; return its first pane."""
        width, height = map(str, self._size)
        made = await self.run(
            *("new-session", "-d", "-P", "-F", "#{pid} #{pane_id}", "-s", name),
            *("-x", width, "-y", height, command),
        )
        pid, pane_id = made.split()
        self.pid = int(pid)
        return await self._when_silent(pane_id, command)

    async def new_pane(self, command: str = SILENT, *, cwd: str | Path = "/") -> str:
        """Make a window; return its pane."""
        directory = escape_format(str(cwd))
        pane_id = await self.run(
            "new-window", "-d", "-P", "-F", "#{pane_id}", "-c", directory, command
        )
        return await self._when_silent(pane_id, command)

    async def _when_silent(self, pane_id: str, command: str) -> str:
        """Wait until the silent program runs: before, its pane is not what it will be."""

        async def runs() -> bool:
            name = ("display-message", "-p", "-t", pane_id, "#{pane_current_command}")
            return await self.run(*name) == "cat"

        if command == SILENT:
            await eventually(runs)
        return pane_id

    async def new_panes(self, count: int, command: str = SILENT) -> list[str]:
        """Make many windows at once; return their panes."""
        words = [*argument_words(["new-window", "-d", "-P", "-F", "#{pane_id}", command]), ";"]
        done = await asyncio.to_thread(
            subprocess.run,
            [*self._program, *(words * count)],
            check=True,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            env=_outside_of_tmux(None),
        )
        return done.stdout.split()

    async def new_program(self, source: str, *arguments: str, cwd: str | Path = "/") -> str:
        """Make a window in which Python runs a program given by its source; return its pane."""
        command = shlex.join([sys.executable, "-I", "-u", "-c", source, *arguments])
        return await self.new_pane(f"exec {command}", cwd=cwd)

    async def show(self, pane_id: str, data: str | bytes) -> None:
        """Put something on the screen of a pane, as if its program had printed it."""
        tty = await self.run("display-message", "-p", "-t", pane_id, "#{pane_tty}")
        content = data if isinstance(data, bytes) else data.encode()
        await asyncio.to_thread(_write, tty, content)

    async def screen(self, pane_id: str) -> str:
        """Return what a pane shows."""
        return await self.run("capture-pane", "-p", "-t", pane_id)

    async def wait_for(self, pane_id: str, text: str) -> None:
        """Wait until a pane shows a text.

        Raises:
            TimeoutError: it does not.
        """

        async def is_shown() -> bool:
            return text in await self.screen(pane_id)

        await eventually(is_shown)


class FakeTmux:
    """A `TmuxCommandRunner` that asks a function: it returns what tmux prints, or raises."""

    def __init__(self, answer: Callable[[Sequence[str]], bytes], *, time: int = 0) -> None:
        self._answer = answer
        self._target = TmuxTarget("/fake/tmux.sock", "FakeTmux")
        self.time = time
        self.commands: list[tuple[str, ...]] = []  # all that it was asked

    @property
    def target(self) -> TmuxTarget:
        return self._target

    async def run(self, *words: str, timeout_seconds: float | None = None) -> Answer:
        return await one_answer(self, words, timeout_seconds)

    async def run_many(
        self, commands: Sequence[Sequence[str]], *, timeout_seconds: float | None = None
    ) -> list[Answer | TmuxError]:
        del timeout_seconds  # it answers at once
        answers: list[Answer | TmuxError] = []
        for words in commands:
            argument_words(words)
            self.commands.append(tuple(words))
            try:
                answers.append(Answer(self._answer(words), self.time))
            except TmuxError as error:
                answers.append(error)
        return answers

    async def aclose(self) -> None:
        """It holds nothing."""


async def eventually(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until something holds that nobody tells of.

    Raises:
        TimeoutError: it does not.
    """
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            holds = condition()
            if not isinstance(holds, bool):
                holds = await holds
            if holds:
                return
            await asyncio.sleep(LOOK_SECONDS)


def _outside_of_tmux(environment: Mapping[str, str] | None) -> dict[str, str]:
    inherited = os.environ if environment is None else environment
    return {key: value for key, value in inherited.items() if key not in ("TMUX", "TMUX_PANE")}


def _is_gone(pid: int) -> bool:
    """Whether a process has ended, though nobody may have taken notice of it yet."""
    done = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() == "" or done.stdout.startswith("Z")


def _write(path: str, data: bytes) -> None:
    with Path(path).open("wb", buffering=0) as terminal:
        terminal.write(data)
