"""Signals to the wrapper, and job control: being stopped, going on, and a program that stops."""

import asyncio
import contextlib
import os
import signal
from typing import Self

from bullpen.agents.processes import is_stopped
from bullpen.wrapper.agent import WrappedAgent
from bullpen.wrapper.user_terminal import UserTerminal

__all__ = ["Signals"]

_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Signals:
    """Hears signals for the length of a block."""

    def __init__(self, agent: WrappedAgent, user: UserTerminal | None) -> None:
        self._agent = agent
        self._user = user
        self._loop = asyncio.get_running_loop()
        self._heard: list[int] = []
        self._child_stirred = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        for number in _ENDS:
            self._hear(number, self._agent.stop)
        if self._user is not None:
            self._hear(signal.SIGWINCH, self._resized)
            self._hear(signal.SIGTSTP, self._stop)
            self._hear(signal.SIGCONT, self._go_on)
            if hasattr(os, "waitid"):
                self._hear(signal.SIGCHLD, self._child_changed)
            else:  # on macOS, Python has it since 3.13
                self._hear(signal.SIGCHLD, self._child_stirred.set)
                self._watching = self._loop.create_task(self._watch_child())
        return self

    def __exit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
        for number in self._heard:
            self._loop.remove_signal_handler(number)

    def _hear(self, number: int, handler: object) -> None:
        self._loop.add_signal_handler(number, handler)  # type: ignore[arg-type]
        self._heard.append(number)

    def _resized(self) -> None:
        assert self._user is not None
        self._agent.terminal.resize(*self._user.size)

    def _stop(self) -> None:
        """Stop, with the user's terminal as it was, until we are let go on."""
        assert self._user is not None
        self._user.stop()
        self._resized()

    def _go_on(self) -> None:
        """Somebody stopped us without asking, and now lets us go on; the shell had the terminal."""
        assert self._user is not None
        self._user.make_raw()
        self._resized()

    def _child_changed(self) -> None:
        """If the program stops itself, its user means to be back in the shell."""
        if (process := self._agent.terminal.process) is None:
            return
        with contextlib.suppress(OSError):  # it has ended, or was never there
            if os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG) is not None:
                self._stop_with(process.pid)

    async def _watch_child(self) -> None:
        """Do the same where only `ps` tells a stop without taking notice of an end."""
        while True:
            await self._child_stirred.wait()
            self._child_stirred.clear()
            process = self._agent.terminal.process
            if process is not None and await asyncio.to_thread(is_stopped, process.pid):
                with contextlib.suppress(OSError):  # it has ended since
                    self._stop_with(process.pid)

    def _stop_with(self, pid: int) -> None:
        self._stop()
        os.killpg(pid, signal.SIGCONT)
