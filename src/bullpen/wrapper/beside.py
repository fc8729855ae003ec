"""Programs that run beside the agent's, from before its start until after its end.

Each leads a process group of its own, which ends with us. On Linux the kernel kills it should we be
killed; elsewhere such a program outlives us then, until it finds that nobody speaks to it.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from bullpen.agents.launching import Beside
from bullpen.connection.errors import CommandNotFound
from bullpen.errors import BullpenError
from bullpen.terminal.pty import EXEC_HELPER

__all__ = ["BesideError", "BesideProgram"]

READY_SECONDS = 15.0
LOOK_SECONDS = 0.02  # nothing tells when a socket is there; somebody has to look
STEP_SECONDS = 0.25  # from SIGTERM to SIGKILL


class BesideError(BullpenError):
    """A program the agent's needs beside it did not come up. `log_path` says more."""

    def __init__(self, command: str, reason: str, log_path: Path) -> None:
        super().__init__(f"{command} {reason}; see {log_path}")
        self.command = command
        self.log_path = log_path


class BesideProgram:
    """One such program, from `start` to `end`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls, beside: Beside, *, env: Mapping[str, str], cwd: Path, log_path: Path
    ) -> "BesideProgram":
        """Start one and wait until it serves its socket.

        Raises:
            CommandNotFound: there is no such program.
            BesideError: it ended, or does not serve.
        """
        report, theirs = os.pipe()
        try:
            log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", str(EXEC_HELPER)),
                    *(str(theirs), str(os.getpid()), *beside.command),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(env),
                    cwd=cwd,
                    start_new_session=True,
                    pass_fds=(theirs,),
                )
            finally:
                os.close(log)
            os.close(theirs)
            theirs = -1
            started = cls(process)
            try:
                async with asyncio.timeout(READY_SECONDS):
                    said = await asyncio.to_thread(os.read, report, 16)
                if said:
                    raise CommandNotFound(beside.command[0], os.strerror(int(said)))
                await started._until_ready(beside, log_path)
            except BaseException:
                await started.end()
                raise
        finally:
            for fd in (report, theirs):
                if fd >= 0:
                    os.close(fd)
        return started

    async def _until_ready(self, beside: Beside, log_path: Path) -> None:
        deadline = asyncio.get_running_loop().time() + READY_SECONDS
        while not await asyncio.to_thread(beside.socket.exists):
            if self._process.returncode is not None:
                reason = f"ended with status {self._process.returncode}"
                raise BesideError(beside.command[0], reason, log_path)
            if asyncio.get_running_loop().time() > deadline:
                reason = f"does not serve {beside.socket} within {READY_SECONDS:g} s"
                raise BesideError(beside.command[0], reason, log_path)
            await asyncio.sleep(LOOK_SECONDS)

    async def end(self) -> None:
        """End it with its group."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STEP_SECONDS):
                await self._process.wait()
        self._signal(signal.SIGKILL)
        await self._process.wait()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
