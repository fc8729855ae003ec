"""A house with a real daemon, real wrappers and real senders, each of which can be killed."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.daemon.harness import Peer, RefusedError, until

__all__ = ["SECONDS", "Agent", "House", "house"]

SECONDS = 30.0  # a hang, on however busy a machine
PROGRAMS = Path(__file__).parent / "programs"

SETTINGS = """
[sources]
claude_sessions = false
claude_transcript = false
claude_hooks = false
codex_appserver = "off"
codex_rollout = false
copilot = false
gemini = false
opencode = false
poller = false

[observe]
tmux_only = true
"""
PROFILE = """
command = ["{python}", "-I", "-S", "-u", "{program}"]
idle_regex = "> $"
submit_sequence = "\\n"
"""


class Agent:
    """A wrapper, and the program in it."""

    def __init__(self, house: "House", name: str, directory: Path, *words: str) -> None:
        self.house = house
        self.name = name
        self.directory = directory
        self.words = words
        self.wrapper: subprocess.Popen[bytes]

    async def start(self) -> "Agent":
        """Start it, or start it again, and wait until it can be talked to."""
        self.directory.mkdir(exist_ok=True)
        words = ["--name", self.name, "--no-start", "--", "gated", str(self.directory)]
        command = [sys.executable, "-P", "-m", "bullpen.wrapper", *words, *self.words]
        self.wrapper = self.house.spawn(command, start_new_session=True)
        await until(self.is_idle, SECONDS)
        return self

    async def contact(self) -> dict[str, Any]:
        contacts = await self.house.peer.ask("agent.contacts")
        found: dict[str, Any] = next((each for each in contacts if each["name"] == self.name), {})
        return found

    async def is_idle(self) -> bool:
        assert self.wrapper.poll() is None, "the wrapper has ended"
        contact = await self.contact()
        return bool(contact.get("is_wrapped")) and contact["activity"] == "idle"

    async def pid(self) -> int:
        """The program's."""
        return int((await self.contact())["pid"])

    def open(self, gate: str) -> None:
        (self.directory / gate).touch()

    def lines(self, text: str) -> int:
        """How many lines it was ever given that have a text in them."""
        return _count(self.directory / "lines", text)

    def answers(self, text: str) -> int:
        """How many of them it has answered, with a prompt behind."""
        return _count(self.directory / "answered", text)

    async def end(self) -> None:
        await end(self.wrapper)


class House:
    """A HOME of its own, in which a daemon runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.faults = home / "faults"
        self.peer = Peer(home / "run/bullpen/bullpend.sock")
        self.daemon: subprocess.Popen[bytes]
        self.agents: list[Agent] = []
        self._spawned: list[subprocess.Popen[bytes]] = []
        site = home / "site"
        for directory in (home / "run", self.faults, site, home / ".config/bullpen/profiles"):
            directory.mkdir(mode=0o700, parents=True)
        shutil.copy(PROGRAMS / "faults.py", site / "sitecustomize.py")
        (home / ".config/bullpen/config.toml").write_text(SETTINGS)
        profile = PROFILE.format(python=sys.executable, program=PROGRAMS / "gated.py")
        (home / ".config/bullpen/profiles/gated.toml").write_text(profile)
        before = os.environ.get("PYTHONPATH")
        self.environment = {
            **{key: value for key, value in os.environ.items() if "BULLPEN" not in key},
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_DATA_HOME": str(home / ".local/share"),
            "XDG_STATE_HOME": str(home / ".local/state"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "FAULTS": str(self.faults),
            "PYTHONPATH": os.pathsep.join([str(site), *filter(None, [before])]),
        }

    def spawn(self, command: list[str], **more: Any) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=more.pop("stdout", subprocess.DEVNULL),
            stderr=subprocess.STDOUT,
            cwd=self.home,
            **more,
        )
        self._spawned.append(process)
        return process

    # ----------------------------------------------------------------------------------- the daemon

    async def start_daemon(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        self.disarm()
        output = (self.home / "daemon.out").open("ab")
        with output:
            command = [sys.executable, "-m", "bullpen", "daemon"]
            self.daemon = self.spawn(command, stdout=output)

        async def answers() -> Any:
            assert self.daemon.poll() is None, (self.home / "daemon.out").read_text()
            with contextlib.suppress(OSError, ValueError):
                return await self.peer.ask("daemon.info")

        await until(answers, SECONDS)

    def arm(self, point: str) -> None:
        """Have the daemon die at a point, or `hold:` there."""
        (self.faults / "reached").unlink(missing_ok=True)
        (self.faults / "armed").write_text(point)

    def disarm(self) -> None:
        (self.faults / "armed").unlink(missing_ok=True)

    async def reached(self) -> None:
        """Wait until the daemon is where it was to be."""
        await self.see((self.faults / "reached").exists)

    async def daemon_ended(self) -> None:
        await self.see(lambda: self.daemon.poll() is not None)

    async def see(self, look: Callable[[], Any]) -> Any:
        async def looked() -> Any:
            return look()

        return await until(looked, SECONDS)

    # ----------------------------------------------------------------------------------- the others

    async def agent(self, name: str, *words: str) -> Agent:
        agent = Agent(self, name, self.home / f"agent-{name}", *words)
        self.agents.append(agent)
        return await agent.start()

    async def send(self, to: str, content: str, **more: Any) -> dict[str, Any]:
        sent: dict[str, Any] = await self.peer.ask("mail.send", to=to, content=content, **more)
        return sent

    def command(self, *words: str) -> "subprocess.Popen[bytes]":
        """Run the command line; what it says is to be read from it."""
        command = [sys.executable, "-m", "bullpen", *words]
        return self.spawn(command, stdout=subprocess.PIPE)

    async def trace(self, message_id: str) -> dict[str, Any]:
        trace: dict[str, Any] = await self.peer.ask("mail.trace", message_id=message_id)
        return trace

    async def delivery(self, message_id: str) -> dict[str, Any]:
        [delivery] = (await self.trace(message_id))["deliveries"]
        return dict(delivery)

    async def until(self, message_id: str, holds: Callable[[dict[str, Any]], Any]) -> None:
        """Wait until something holds of a message's delivery."""

        async def look() -> Any:
            with contextlib.suppress(OSError, ValueError, RefusedError):  # a daemon that is down
                return holds(await self.delivery(message_id))

        await until(look, SECONDS)

    async def becomes(self, message_id: str, *states: str) -> None:
        await self.until(message_id, lambda each: each["state"] in states)

    async def end_agents(self) -> None:
        for agent in self.agents:
            await agent.end()
        self.agents.clear()

    def close(self) -> None:
        """End whatever still runs."""
        for process in self._spawned:
            if process.poll() is None:
                process.kill()
            if process.stdout is not None:
                process.stdout.close()
            process.wait(SECONDS)


async def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process, and see it gone."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.wait, SECONDS)


@contextmanager
def house() -> Iterator[House]:
    """A house, for a block."""
    with tempfile.TemporaryDirectory(prefix="bullpen-", ignore_cleanup_errors=True) as directory:
        found = House(Path(directory))
        try:
            yield found
        finally:
            found.close()


def _count(path: Path, text: str) -> int:
    try:
        return sum(text in line for line in path.read_text(encoding="utf-8").splitlines())
    except FileNotFoundError:
        return 0
