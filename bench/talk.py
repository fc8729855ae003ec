"""What the rows about talking share: agents that are no programs, and figures with their limits."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.figure import Figure
from bench.observe import LINE_LIMIT, connect, environment, percentile

__all__ = ["Caller", "call", "limited", "loaded", "percentiles", "talking_daemon", "used_by"]

SECONDS = 60.0
DAEMON = ("-m", "bullpen", "daemon", "--background")  # as commands start it
UNLIMITED = {
    "BULLPEN_MAIL_RATE_PER_SECOND": "1000000",
    "BULLPEN_MAIL_RATE_BURST": "100000",
    "BULLPEN_MAIL_MAILBOX_LIMIT": "1000000",
    "BULLPEN_A2A_RATE_PER_SECOND": "1000000",
    "BULLPEN_A2A_RATE_BURST": "100000",
}


class Caller:
    """Somebody who asks the daemon, one request at a time, and is an agent if it has a secret."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.name = ""
        self.secret = ""

    async def ask(self, method: str, **params: Any) -> Any:
        """Return what is answered."""
        if self.secret:
            params["secret"] = self.secret
        self._writer.write(call(method, **params))
        async with asyncio.timeout(SECONDS):
            while "method" in (answer := json.loads(await self._reader.readline())):
                self._decline(answer)  # who is an agent is asked things, too
        if "result" not in answer:
            raise AssertionError(f"{method} was refused: {answer}")
        return answer["result"]

    def _decline(self, request: dict[str, Any]) -> None:
        if "id" in request:
            error = {"code": -32601, "message": "there is no terminal"}
            answer = {"id": request["id"], "error": error}
            self._writer.write(json.dumps(answer).encode() + b"\n")

    async def exchange(self, line: bytes) -> bytes:
        """Send a request that was written before; return the answer as it comes."""
        self._writer.write(line)
        return await self._reader.readline()

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def register(self, name: str) -> None:
        """Be an agent that fetches its messages by itself."""
        found = await self.ask(
            "wrapper.register",
            profile="dummy",
            provider="other",
            wrapper_pid=os.getpid(),
            cwd="/",
            name=name,
        )
        self.name, self.secret = found["name"], found["secret"]


def call(method: str, **params: Any) -> bytes:
    """Return the line of a request."""
    return json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n"


@asynccontextmanager
async def talking_daemon(
    *, beside: str | None = "bench.beating", **variables: str
) -> AsyncIterator[tuple[int, Path, "Callers"]]:
    """Run the daemon as a process of its own, with no limit to how much is said.

    `beside` is a module that runs it and something else, which is reached at the socket `beside` in
    its home. Yields its pid, its home and how to call it.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *(("-m", beside, str(home / "beside")) if beside else DAEMON),
            env={**environment(home), **UNLIMITED, **variables},
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            socket = home / "bullpen/run/bullpend.sock"
            _, writer = await connect(socket, process)
            async with AsyncExitStack() as stack:
                yield process.pid, home, Callers(socket, stack)
            writer.close()
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


class Callers:
    """Makes callers, who hang up in the end."""

    def __init__(self, socket: Path, stack: AsyncExitStack) -> None:
        self._socket = socket
        self._stack = stack

    async def user(self) -> Caller:
        """Return a caller who is the user."""
        reader, writer = await asyncio.open_unix_connection(str(self._socket), limit=LINE_LIMIT)
        self._stack.callback(writer.close)
        return Caller(reader, writer)

    async def agent(self, name: str) -> Caller:
        """Return a caller who is an agent."""
        caller = await self.user()
        await caller.register(name)
        return caller


def limited(row: str, what: str, ours: float, limit: float, unit: str, **more: Any) -> Figure:
    """Return a figure beside the most it may be; with `at_least`, the least."""
    least = more.pop("at_least", None)
    against = "the least it may be" if least is not None else "the most it may be"
    target: dict[str, Any] = {"at_least": 1.0} if least is not None else {"at_most": 1.0}
    if not more.pop("counts", True):
        target = {}
    return Figure(row=row, what=what, ours=ours, theirs=limit, unit=unit, against=against, **target)


def percentiles(row: str, what: str, seconds: Sequence[float], **limits: float) -> list[Figure]:
    """Return what so many of a hundred took, beside the most they may, in ms: `p50=5`."""
    return [
        limited(
            row,
            f"{what}, {name.removeprefix('p')} of 100",
            1000 * percentile(seconds, int(name.removeprefix("p"))),
            limit,
            "ms",
        )
        for name, limit in limits.items()
    ]


def loaded(row: str) -> Figure:
    """Return how busy the machine was: what is below means little if it was."""
    cores = os.cpu_count() or 1
    return limited(
        row, "load of the machine, its cores", os.getloadavg()[0], cores, "", counts=False
    )


def used_by(pid: int) -> float:
    """Return the processor time of a process, in seconds."""
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)
