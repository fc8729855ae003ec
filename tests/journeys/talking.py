"""A real program in its wrapper, spoken to as a person would: by the command line, from outside.

Everything here is a process of its own: the daemon, the wrapper, the program, each command. Only
the model is ours, and it is asked what it has heard.
"""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from bullpen.testing.models import ModelServer, Request
from bullpen.testing.programs import NodeMissing, launch

__all__ = ["KNOWN", "Agent", "Known", "Room", "Said", "room", "until"]

SECONDS = 90.0
LOOK_SECONDS = 0.05
QUIET = {
    "BULLPEN_OBSERVE_TMUX_ONLY": "true",  # not the agents of others on this machine
    "BULLPEN_SOURCES_CODEX_APPSERVER": "off",
}

T = TypeVar("T")


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from program to program."""

    shell: str = "bash"
    """The word of the model's script for a command that needs approval."""
    approve: tuple[str, ...] = ("Enter",)
    rung: str = "own"
    """By what a message reaches it while it has nothing to do."""
    by: tuple[str, ...]
    """Who says that it was put in."""
    limit: str = ""
    """How it fails when the model has no more for it; empty if it goes on trying for minutes."""
    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    directories: tuple[str, ...] = ()
    """In its home, which it makes when it is used for the first time."""

    @property
    def is_typed(self) -> bool:
        """Whether messages are typed into its terminal."""
        return self.rung == "pty"


KNOWN = {
    "claude": Known(
        by=("waiter", "hook", "pty"),  # the last while no waiter is there yet
        limit="usage limit",
        variables={"CLAUDE_CODE_MAX_RETRIES": "1"},
    ),
    "codex": Known(shell="bashesc", approve=("y",), by=("codex_appserver",), limit="usage limit"),
    "opencode": Known(by=("opencode",)),
    "gemini": Known(
        rung="pty",
        by=("pty", "hook"),
        arguments=("-m", "gemini-2.5-flash"),  # else another model is asked which to ask
        directories=(".gemini/tmp", ".gemini/history"),
    ),
    "copilot": Known(rung="pty", by=("pty", "hook")),
}


class Said(msgspec.Struct, frozen=True):
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self
        return json.loads(self.out)


class Room:
    """A home with a daemon in it, a model, and agents."""

    def __init__(self, home: Path, models: ModelServer) -> None:
        self.home = home
        self.models = models
        self.project = home / "project"
        self.project.mkdir()
        self.environment = {
            **{
                name: os.environ[name]
                for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
            },
            **QUIET,
        }
        self.agents: dict[str, Agent] = {}

    # -------------------------------------------------------------------------------- the commands

    def bullpen(self, *words: str, secret: str = "", seconds: float = SECONDS) -> Said:
        """Run a command, as a person or as who has a secret."""
        return said(self.begin(*words, secret=secret), seconds)

    def begin(self, *words: str, secret: str = "") -> "subprocess.Popen[str]":
        """Begin a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "bullpen", *words],
            env=self._variables(secret),
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _variables(self, secret: str) -> dict[str, str]:
        found = {name: value for name, value in os.environ.items() if "BULLPEN" not in name}
        return found | self.environment | ({"BULLPEN_SECRET": secret} if secret else {})

    # ---------------------------------------------------------------------------------- the daemon

    def asked(self, method: str, /, **params: Any) -> Any:
        """Ask the daemon, without any of our code."""
        with contextlib.closing(self.connected()) as stream:
            return exchange(stream, method, **params)

    def connected(self) -> socket.socket:
        """Return a connection to the daemon."""
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(SECONDS)
        stream.connect(f"{self.environment['XDG_RUNTIME_DIR']}/bullpen/bullpend.sock")
        return stream

    def kill_daemon(self) -> None:
        """Kill it, and start another."""
        pid = self.asked("daemon.info")["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: not _is_alive(pid), "the daemon is gone")
        up = self.bullpen("up")
        assert up.code == 0, up

    @contextlib.contextmanager
    def peer(self, name: str) -> Iterator[str]:
        """Be an agent for a block, of whom only the secret is of interest."""
        with contextlib.closing(self.connected()) as stream:
            params = {
                "profile": name,
                "provider": "other",
                "wrapper_pid": os.getpid(),
                "cwd": str(self.project),
                "name": name,
            }
            yield exchange(stream, "wrapper.register", **params)["secret"]

    # --------------------------------------------------------------------------------- the programs

    def prepare(self, provider: str) -> "Agent":
        """Make a program ready to be found and to be started."""
        known = KNOWN[provider]
        for each in known.directories:
            (self.home / each).mkdir(parents=True)
        try:
            started = launch(
                provider,
                "tui",
                home=self.home,
                model_url=self.models.url,
                project=self.project,
                variables=known.variables,
            )
        except NodeMissing as missing:
            pytest.skip(str(missing))
        before = self.environment.get("PATH", started.env["PATH"])
        self.environment = {
            **started.env,
            **self.environment,
            "PATH": f"{Path(started.argv[0]).parent}:{before}",
        }
        self.agents[provider] = Agent(self, provider)
        return self.agents[provider]

    def command(self, *words: str) -> str:
        """Return a line for a shell that runs a command of ours with our variables only."""
        variables = (f"{name}={value}" for name, value in self._variables("").items())
        return shlex.join(["env", "-i", *variables, sys.executable, "-m", "bullpen", *words])

    def start(self, provider: str) -> "Agent":
        """Start a program as an agent of its provider's name, and wait until it is ready."""
        if provider not in self.agents:
            self.prepare(provider)
        words = (provider, "--wait-ready", "--timeout", str(SECONDS), "--")
        done = self.bullpen("start", *words, *KNOWN[provider].arguments, seconds=2 * SECONDS)
        assert done.code == 0, done
        return self.agents[provider]

    def end(self) -> None:
        """Leave nothing running."""
        with contextlib.suppress(OSError):
            self.bullpen("stop", "--all")
            self.bullpen("down")


class Agent:
    """One wrapped program."""

    def __init__(self, room: Room, name: str) -> None:
        self.room = room
        self.models = room.models
        self.name = name
        self.known = KNOWN[name]

    # ------------------------------------------------------------------------------------- talking

    def ask(self, text: str, *words: str, seconds: float = SECONDS) -> Said:
        """Ask it, and wait for the answer."""
        words = ("ask", self.name, text, "--timeout", str(seconds), *words)
        return self.room.bullpen(*words, seconds=2 * seconds)

    def send(self, text: str, *words: str, secret: str = "") -> str:
        """Send it something; return the id."""
        sent = self.room.bullpen("send", self.name, text, "--json", *words, secret=secret)
        message_id: str = sent.json["message"]["id"]
        return message_id

    def task(self, message_id: str) -> dict[str, Any]:
        """Return what the daemon says of a task."""
        found: dict[str, Any] = self.room.asked("task.get", task_id=message_id)
        return found

    def steps(self, message_id: str) -> list[tuple[str, str, str]]:
        """Return each step of a message: what, by whom, on what evidence."""
        traced = self.room.asked("mail.trace", message_id=message_id)
        return [
            (each["state"], each["evidence"]["by"], each["evidence"]["what"])
            for each in traced["receipts"]
        ]

    def tasks(self) -> list[dict[str, Any]]:
        """Return all that was asked of it, the last first."""
        found: list[dict[str, Any]] = self.room.asked("task.list", recipient=self.name)
        return found

    def over(self, message_id: str) -> dict[str, Any]:
        """Wait for the end of a task."""

        def is_over() -> dict[str, Any] | None:
            task = self.task(message_id)
            return task if task["state"] in ("completed", "failed", "canceled") else None

        return self.until(is_over, f"the end of {message_id}")

    def answer(self, message_id: str) -> str:
        """Wait for the answer to a task."""
        task = self.over(message_id)
        assert task["state"] == "completed", (task, self.steps(message_id))
        [answer] = [each for each in task["answers"] if each["type"] != "progress"]
        content: str = answer["content"]
        return content

    def held(self, message_id: str, *reasons: str) -> str:
        """Wait until it is said of a message why it waits, in one of these words."""

        def is_held() -> str | None:
            task = self.task(message_id)
            assert task["receipt"] == "queued", (task, self.steps(message_id))
            why: str = task["reason"]
            return why if any(each in why for each in reasons) else None

        return self.until(is_held, f"{message_id} held back: {reasons}")

    # ----------------------------------------------------------------------------- what it is doing

    @property
    def contact(self) -> dict[str, Any]:
        """What the daemon says of it."""
        everybody: list[dict[str, Any]] = self.room.asked("agent.contacts")
        return next((each for each in everybody if each["name"] == self.name), {})

    @property
    def screen(self) -> str:
        """What its terminal shows."""
        shown: str = self.room.asked("agent.output", agent=self.name)["screen"]
        return shown

    def reaches(self, activity: str) -> None:
        """Wait until it is doing something."""
        self.until(lambda: self.contact.get("activity") == activity, activity)

    def shows(self, text: str) -> None:
        """Wait until it stands on its screen."""
        self.until(lambda: text in self.screen, f"{text!r} on the screen")

    def press(self, *keys: str) -> None:
        """Press keys, as the person at its terminal."""
        assert self.room.bullpen("send-keys", self.name, *keys).code == 0

    def heard(self, text: str) -> list[Request]:
        """Return what the model was asked in which a text occurs."""
        return [each for each in self.models.requests if each.is_prompt and text in each.prompt]

    def at(self, gate: str) -> None:
        """Wait until the model holds its answer back."""
        self.until(lambda: any(each.gate == gate for each in self.models.requests), f"gate {gate}")

    def until(self, look: Callable[[], T | None], what: str, seconds: float = SECONDS) -> T:
        """Wait until a look finds something; else say all that is known."""
        try:
            return until(look, what, seconds)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.situation()}") from None

    def situation(self) -> str:
        """All that is known, for whoever reads of a failure."""
        looks: list[Callable[[], str]] = [
            lambda: str(self.contact),
            lambda: "\n".join(map(str, self.models.requests[-6:])),
            lambda: "\n".join(self._tasks()),
            lambda: self.screen,
        ]
        parts: list[str] = []
        for look in looks:
            with contextlib.suppress(Exception):
                parts.append(look())
        return "\n----\n".join(parts)

    def _tasks(self) -> Iterator[str]:
        for each in self.tasks()[:6]:
            yield f"{each['id']} {each['state']} {each['reason']} {self.steps(each['id'])}"


@contextlib.contextmanager
def room(home: Path) -> Iterator[Room]:
    """Have a home with a daemon in it for a block."""
    with ModelServer(gate_timeout_seconds=600.0) as models:
        found = Room(home, models)
        try:
            yield found
        finally:
            found.end()


def said(process: "subprocess.Popen[str]", seconds: float = SECONDS) -> Said:
    """Wait for the end of a command."""
    with process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return Said(process.returncode, out, err)


def until(look: Callable[[], T | None], what: str, seconds: float = SECONDS) -> T:
    """Wait until a look finds something; return what it found."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(LOOK_SECONDS)
    return found


def exchange(stream: socket.socket, method: str, /, **params: Any) -> Any:
    """Send one request over a connection; return the result."""
    stream.sendall(json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n")
    line = b""
    while not line.endswith(b"\n"):
        part = stream.recv(2**20)
        if not part:
            raise ConnectionResetError(method)
        line += part
    answer = json.loads(line.splitlines()[0])
    assert "error" not in answer, answer["error"]
    return answer["result"]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
