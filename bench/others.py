"""The same with `synapse-a2a` and `hcom` from PyPI, where they can do it.

Both are installed into an environment that lasts as long as this row and into which nothing of ours
comes; where they cannot be had the row is left out. They run with nothing but defaults, in a
home of their own, and are reached over loopback alone. Synapse is given the dummy that ours is, and
gets fewer tasks: it holds an agent back for half a minute after each.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from bench.figure import Figure
from bench.observe import environment
from bench.seats import PROGRAM
from bench.talk import Caller, Callers, loaded, talking_daemon
from bench.talk_startup import send_seconds
from bench.wrapped_tasks import until_ready, wrapped_dummy
from bench.wrapper_cost import stop_seconds
from bullpen.agents.profiles import dummy_agent

__all__ = ["run"]

ROW = "others"
PACKAGES = ("synapse-a2a", "hcom")
INSTALL_SECONDS = 300.0
TASK_SECONDS = 45.0
TASKS = 2
RUNS = 10


async def run(quick: bool) -> list[Figure]:
    if quick:
        return []  # to install them takes longer than all else
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        if trouble := await asyncio.to_thread(install, home):
            print(f"{' and '.join(PACKAGES)} cannot be had: {trouble}", file=sys.stderr)
            return []
        synapse = await asyncio.to_thread(with_synapse, home)
        hcom = await asyncio.to_thread(with_hcom, home)
    ours = await with_ours()
    return [
        loaded(ROW),
        *(
            Figure(row=ROW, what=what, ours=ours[what], theirs=value, unit=unit(what), against=name)
            for name, theirs in (("synapse-a2a", synapse), ("hcom", hcom))
            for what, value in theirs.items()
        ),
    ]


def unit(what: str) -> str:
    """Return in what a figure is counted."""
    return "MiB" if what == RESIDENT else "" if what == OWN else "ms"


SENT = "a message sent from the command line"
HEARD = "from the command line to who listens there"
ACCEPTED = "a task of the dummy, accepted"
ANSWERED = "a task of the dummy, answered"
OWN = f"of {TASKS} tasks, with their own reply"
RESIDENT = "resident, around the dummy"
STOPPED = "an agent stopped"


def install(home: Path) -> str:
    """Install what is compared; return why that cannot be."""
    steps = (
        [sys.executable, "-m", "venv", str(home / "venv")],
        [str(home / "venv/bin/python"), "-m", "pip", "install", "--quiet", *PACKAGES],
    )
    for step in steps:
        try:
            done = subprocess.run(
                step, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    return ""


def surroundings(home: Path) -> dict[str, str]:
    """Return the variables of whoever lives in that home."""
    return {
        "HOME": str(home),
        "PATH": f"{home / 'venv/bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "DUMMY_AGENT_SECONDS": "0",
    }


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def command(words: list[str], env: Mapping[str, str], cwd: Path, *, check: bool = True) -> str:
    """Run a command; return what it says."""
    return subprocess.run(
        words, env=env, cwd=cwd, check=check, capture_output=True, text=True, timeout=TASK_SECONDS
    ).stdout


# ------------------------------------------------------------------------------------------ synapse


def with_synapse(home: Path) -> dict[str, float]:
    """Return what Synapse takes."""
    env, work = surroundings(home), home / "work"
    work.mkdir()
    shutil.copy(dummy_agent.__file__, work / "dummy_agent.py")
    with started_synapse(env, work) as (name, pid, url):
        found: dict[str, float] = {}
        accepted, answered, own = [], [], 0
        for number in range(TASKS):
            if not is_idle(url):
                break  # it is still at the one before
            text = f"task {number} of {os.urandom(4).hex()}"
            took = task_seconds(url, text)
            accepted.append(took[0])
            answered.append(took[1])
            own += took[2] == f"[DUMMY] You said: A2A: {text}"
        resident = psutil.Process(pid).memory_info().rss / 2**20
        silent = ["synapse", "send", "dummy", "hello", "--silent"]
        is_idle(url)
        with suppress(subprocess.CalledProcessError):  # then there is no figure
            found[SENT] = 1000 * seconds_of(lambda: command(silent, env, work))
        began = time.perf_counter()
        command(["synapse", "stop", name], env, work, check=False)  # a kill is a failure to it
        stopped = {STOPPED: 1000 * (time.perf_counter() - began)} if is_gone(pid) else {}
    return {
        **found,
        ACCEPTED: 1000 * min(accepted),
        ANSWERED: 1000 * min(answered),
        OWN: own,
        RESIDENT: resident,
        **stopped,
    }


@contextmanager
def started_synapse(env: Mapping[str, str], work: Path) -> Iterator[tuple[str, int, str]]:
    """Run a dummy in Synapse for a block; yields its name, its pid and where it is served."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command(["synapse", "start", "dummy", "--port", str(port)], env, work)
    registry = Path(env["HOME"]) / ".a2a/registry"
    [entry] = [json.loads(each.read_bytes()) for each in registry.glob("*.json")]
    pid, url = int(entry["pid"]), f"http://127.0.0.1:{port}"
    try:
        if not is_idle(url):
            raise AssertionError("it is never ready")
        yield entry["agent_id"], pid, url
    finally:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has buried it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_idle(url: str) -> bool:
    """Wait a while until Synapse says that its agent is ready; return whether it does."""
    until = time.monotonic() + TASK_SECONDS
    while fetch(f"{url}/status").get("status") != "READY":
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def task_seconds(url: str, text: str) -> tuple[float, float, str]:
    """Give Synapse a task; return when it was accepted, when answered, and the answer."""
    message = {"role": "user", "parts": [{"type": "text", "text": text}]}
    began = time.perf_counter()
    task = fetch(f"{url}/tasks/send", {"message": message})["task"]
    accepted = time.perf_counter() - began
    while task["status"] in ("submitted", "working"):
        if time.perf_counter() - began > TASK_SECONDS:
            break
        time.sleep(0.01)
        task = fetch(f"{url}/tasks/{task['id']}")
    took = time.perf_counter() - began
    parts = [part for each in task["artifacts"] for part in each.get("parts", [each])]
    return accepted, took, "".join(_text(each) for each in parts)


def _text(part: dict[str, Any]) -> str:
    """Return the text of a part, however it is wrapped."""
    data = part.get("text", part.get("data", ""))
    return str(data.get("content", data) if isinstance(data, dict) else data)


def fetch(url: str, body: object = None) -> Any:
    """Ask over HTTP; nothing if nobody is there yet."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=TASK_SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError:
        raise
    except OSError:
        return {}


# --------------------------------------------------------------------------------------------- hcom


def with_hcom(home: Path) -> dict[str, float]:
    """Return what hcom takes."""
    env, work = surroundings(home), home / "work"
    env["HCOM_DIR"] = str(home / "hcom")
    name = command(["hcom", "start"], env, work).partition("[hcom:")[2].partition("]")[0]
    send = ["hcom", "send", f"@{name}", "--from", "bench", "--quiet", "--"]
    listen = ["hcom", "listen", "30", "--name", name, "--json"]
    sent = min(seconds_of(lambda: command([*send, "hello"], env, work)) for _ in range(RUNS))
    while subprocess.run(
        [*listen[:2], "1", *listen[3:]], env=env, cwd=work, capture_output=True, check=False
    ).stdout.strip():
        pass  # what was sent so far
    heard = min(heard_seconds(listen, send, env, work) for _ in range(RUNS))
    return {SENT: 1000 * sent, HEARD: 1000 * heard}


def heard_seconds(
    listen: list[str], send: list[str], env: Mapping[str, str], work: Path, **variables: str
) -> float:
    """Return how long it takes from starting a sender until a listener has said what was sent.

    The variables are the listener's own.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(listen, env={**env, **variables}, cwd=work, stdout=pipe) as listening:
        assert listening.stdout is not None
        time.sleep(0.5)  # until it listens, of which nothing is to be seen
        began = time.perf_counter()
        word = os.urandom(8).hex()
        words = [*send, word]
        with subprocess.Popen(words, env=env, cwd=work, stdout=subprocess.DEVNULL) as sending:
            while word.encode() not in (line := listening.stdout.readline()):
                if not line:
                    raise AssertionError("it listens no more")  # it heard what was said before
            took = time.perf_counter() - began
        if sending.returncode:
            raise AssertionError(f"{send} ended with {sending.returncode}")
        listening.terminate()
    return took


# --------------------------------------------------------------------------------------------- ours


async def with_ours() -> dict[str, float]:
    """Return what it takes here."""
    async with talking_daemon() as (_, home, callers):
        env = {**environment(home), "PATH": os.environ.get("PATH", os.defpath)}
        agent = await callers.agent("codex")
        listen = [PROGRAM, "inbox", "--follow", "--json"]
        send = [PROGRAM, "send", "codex"]
        sent = min([await asyncio.to_thread(send_seconds, env) for _ in range(RUNS)])
        await agent.ask("mail.inbox", take=True, limit=500)
        own = {"BULLPEN_SECRET": agent.secret}
        heard = min(
            [
                await asyncio.to_thread(heard_seconds, listen, send, env, home, **own)
                for _ in range(RUNS)
            ]
        )
        found = await tasks_here(home, callers)
        stopped = await stop_seconds(home, callers)
    return {SENT: 1000 * sent, HEARD: 1000 * heard, STOPPED: 1000 * stopped, **found}


async def tasks_here(home: Path, callers: Callers) -> dict[str, float]:
    """Return what the same tasks take here."""
    user = await callers.user()
    accepted, answered, own = [], [], 0
    async with wrapped_dummy(home) as process:
        await until_ready(user)
        for number in range(TASKS):
            text = f"task {number} of {os.urandom(4).hex()}"
            began = time.perf_counter()
            sent = await user.ask("mail.send", to="dummy", content=text)
            accepted.append(time.perf_counter() - began)
            reply = await reply_to(user, sent["message"]["id"])
            answered.append(time.perf_counter() - began)
            own += reply == f"[DUMMY] You said: [from user] {text}"
        resident = psutil.Process(process.pid).memory_info().rss / 2**20
    return {
        ACCEPTED: 1000 * min(accepted),
        ANSWERED: 1000 * min(answered),
        OWN: own,
        RESIDENT: resident,
    }


async def reply_to(user: Caller, name: str) -> str:
    """Return the answer to a message."""
    waited = await user.ask("mail.wait", message_id=name, take=True, timeout_seconds=TASK_SECONDS)
    return str(waited["reply"]["content"]) if waited["reply"] else ""
