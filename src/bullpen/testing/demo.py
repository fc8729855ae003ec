"""A demonstration for somebody without any agent: `bullpen --demo`, or `make run`.

A tmux server of its own, in which agents that only pretend live through every state; a daemon of
its own that sees nobody else; and the board. Everything is in one temporary directory, and ends
with the board: the user's own tmux, daemon and files are not touched.

Where there is no terminal, what becomes of the agents is printed for a while instead.
"""

import argparse
import asyncio
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from bullpen.errors import BullpenError
from bullpen.testing.agents import LIFE, install
from bullpen.testing.tmux import PrivateTmux

__all__ = ["CAST", "Demo", "Player", "main"]

WATCH_SECONDS = 20.0
END_SECONDS = 15.0
AWAY_SECONDS = 4  # between the end of an agent and its next life
POLL_INTERVAL_MS = 250

# What would lead the daemon to somebody else's agents, or away from its own directories; and the
# size of a terminal that is not the one there is.
FOREIGN = (
    *("BULLPEN_", "CLAUDE", "CODEX_", "COPILOT_", "GEMINI_", "OPENCODE", "XDG_"),
    *("COLUMNS", "LINES"),
)


# Waits for our end, which the end of its stdin tells also if we were killed, and clears away then.
JANITOR = """
import os, shutil, subprocess, sys
tmux, socket, *directories = sys.argv[1:]
while os.read(0, 4096):
    pass
subprocess.run([sys.executable, "-P", "-m", "bullpen", "down"], capture_output=True, timeout=30)
subprocess.run([tmux, "-S", socket, "kill-server"], capture_output=True, timeout=30)
for directory in directories:
    shutil.rmtree(directory, ignore_errors=True)
"""


class Player(NamedTuple):
    """One agent of the demonstration."""

    tmux_session: str
    name: str
    task: str
    first_phase: int
    """With which phase of its life it begins, so that not all do the same."""


CAST = (
    Player("shop", "claude", "Mend the cart", 1),
    Player("shop", "codex", "Write tests for checkout", 0),
    Player("shop", "gemini", "Name the discounts", 3),
    Player("blog", "claude", "Sort the archive", 2),
    Player("blog", "copilot", "Upgrade the theme", 5),
    Player("blog", "opencode", "Check every link", 7),
)
BRANCHES = {"shop": "fix-cart", "blog": "main"}


class Demo:
    """Agents and a daemon that sees them, for the length of an `async with` block."""

    def __init__(self, environment: Mapping[str, str], *, cast: tuple[Player, ...] = CAST) -> None:
        self._given = dict(environment)
        self._cast = cast
        self._stack = AsyncExitStack()
        self.directory = Path()
        self.tmux = PrivateTmux(width=100, height=28)
        self.environment: dict[str, str] = {}
        """In which `bullpen` speaks to the daemon of the demonstration."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._begin(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _begin(self, stack: AsyncExitStack) -> None:
        made = await asyncio.to_thread(tempfile.mkdtemp, prefix="bullpen-demo-")
        self.directory = Path(made)
        stack.push_async_callback(asyncio.to_thread, shutil.rmtree, made, ignore_errors=True)
        await asyncio.to_thread(self._furnish)
        await self.tmux.prepare()
        stack.push_async_callback(self.tmux.stop)
        self.environment = self._surroundings()
        sessions: set[str] = set()
        for player in self._cast:
            command = self._command(player)
            if player.tmux_session not in sessions:
                sessions.add(player.tmux_session)
                await self.tmux.new_session(player.tmux_session, command)
            else:
                await self.tmux.run(
                    "new-window", "-d", "-t", f"{player.tmux_session}:", "-n", player.name, command
                )
        stack.push_async_callback(self.bullpen, "down", quiet=True)
        await self.bullpen("up", quiet=True)
        await stack.enter_async_context(self._janitor())

    @asynccontextmanager
    async def _janitor(self) -> AsyncIterator[None]:
        """See to it that nothing is left if we are killed."""
        socket = self.tmux.target.socket_path
        directories = (str(self.directory), str(Path(socket).parent))
        janitor = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", JANITOR, self.tmux.executable, socket, *directories),
            env=self.environment,
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,  # what ends us by our terminal does not end it
        )
        try:
            yield
        finally:
            janitor.kill()
            await janitor.wait()

    def _furnish(self) -> None:
        install(self.directory / "bin")
        for player in self._cast:
            git = self._project(player) / ".git"
            if not git.exists():
                git.mkdir(parents=True)
                branch = BRANCHES.get(player.tmux_session, "main")
                (git / "HEAD").write_text(f"ref: refs/heads/{branch}\n", encoding="ascii")

    def _project(self, player: Player) -> Path:
        return self.directory / "home/src" / player.tmux_session

    def _command(self, player: Player) -> str:
        """Return what runs in a pane: one life after the other, with a while between them."""
        agent = [sys.executable, "-I", str(self.directory / "bin" / player.name)]
        life = shlex.join([*agent, "--task", player.task, "--life"])
        first = player.first_phase % len(LIFE)
        lives = f'n={first}; while :; do {life} "$n"; n=0; sleep {AWAY_SECONDS}; done'
        script = f"cd {shlex.quote(str(self._project(player)))} && {lives}"
        return f"exec {shlex.join(['sh', '-c', script])}"  # whichever shell the user has

    def _surroundings(self) -> dict[str, str]:
        kept = {key: value for key, value in self._given.items() if not key.startswith(FOREIGN)}
        return {
            **kept,
            "HOME": str(self.directory / "home"),
            "BULLPEN_HOME": str(self.directory),
            "BULLPEN_OBSERVE_TMUX_SOCKET": self.tmux.target.socket_path,
            "BULLPEN_OBSERVE_TMUX_ONLY": "true",
            "BULLPEN_OBSERVE_POLL_INTERVAL_MS": str(POLL_INTERVAL_MS),
            "BULLPEN_SOURCES_CODEX_APPSERVER": "off",
        }

    async def bullpen(self, *arguments: str, quiet: bool = False) -> int:
        """Run a command of ours on the demonstration; return its exit code.

        It ends with us, if we are ended first.
        """
        output = asyncio.subprocess.DEVNULL if quiet else None
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "bullpen", *arguments),
            env=self.environment,
            stdout=output,
        )
        try:
            return await child.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                child.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(child.wait(), END_SECONDS)
            raise


async def _show(seconds: float | None) -> int:
    """Show the demonstration until somebody leaves it, or for a while where nobody can."""
    loop = asyncio.get_running_loop()
    showing = asyncio.current_task()
    assert showing is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, showing.cancel)
    # In a terminal ctrl-c is a key of the board's.
    is_seen = seconds is None and sys.stdin.isatty() and sys.stdout.isatty()
    loop.add_signal_handler(signal.SIGINT, (lambda: None) if is_seen else showing.cancel)
    async with Demo(os.environ) as demo:
        if is_seen:
            return await demo.bullpen()
        for command in (("ls",), ("watch", "--timeout", str(seconds or WATCH_SECONDS)), ("ls",)):
            if code := await demo.bullpen(*command):
                return code
    return 0


def main() -> int:
    """Show the demonstration; return the exit code."""
    parser = argparse.ArgumentParser(prog="bullpen --demo", description=__doc__)
    parser.add_argument("--seconds", type=float, help="print for so long, instead of the board")
    options = parser.parse_args()
    try:
        return asyncio.run(_show(options.seconds))
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    except BullpenError as error:
        sys.stderr.write(f"bullpen: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
