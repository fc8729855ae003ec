"""What a wrapper costs the program in it and who sits before it, beside the program alone.

Start is the time on the wall until the dummy has said its first word, in a terminal: the best of
several, taken in turn, with and without a wrapper. Echo is the time from a key to what is shown of
it, with `cat`, where the terminal itself echoes; throughput is that of a file that `cat` writes,
beside `script(1)`, which also stands between a program and a terminal.
"""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from bench.figure import Figure
from bench.observe import environment, percentile
from bench.seats import PROGRAM, profile, seat
from bench.talk import Callers, limited, loaded, talking_daemon
from bench.wrapped_tasks import until_ready, wrapped_dummy
from bullpen.agents.profiles import dummy_agent
from bullpen.api import locations

__all__ = ["run"]

ROW = "wrapper-cost"
BARE = (sys.executable, "-I", "-S", "-u", dummy_agent.__file__)
WRAPPED = (PROGRAM, "run", "--no-start")
PAINTER = ("sh", "-c", "sleep 1; seq 3000; echo done; exec cat")  # whatever else it is given
RESIDENT_MIB = 40.0
START_MS = 150.0
ECHO_MS = 1.0
STOP_MS = 1000.0


async def run(quick: bool) -> list[Figure]:
    starts, keys, mib, stops = (1, 10, 1, 1) if quick else (15, 2000, 32, 10)
    async with talking_daemon() as (_, home, callers):
        env = environment(home)
        directory = Path(locations.config_directory(env, os.getuid())) / "profiles"
        profile(directory, "echo", ["cat"])
        profile(directory, "screen", PAINTER, "provider = 'claude'", "has_screen = true")
        loaded_by = loaded(ROW)
        resident = await resident_mib(home, callers)
        in_terminal = await resident_in_terminal(env, callers)
        painted = await asyncio.to_thread(resident_painted, env)
        stopped = [await stop_seconds(home, callers) for _ in range(stops)]
        bare, wrapped = await asyncio.to_thread(start_seconds, starts, env)
        echoes = await asyncio.to_thread(echo_seconds, keys, env)
        ours, theirs = await asyncio.to_thread(throughput, mib, 1 if quick else 5, env)
    added = percentile(echoes[1], 95) - percentile(echoes[0], 95)
    figures = [
        loaded_by,
        limited(ROW, "resident, a wrapper without a terminal", resident, RESIDENT_MIB, "MiB"),
        limited(ROW, "resident, bullpen run in a terminal", in_terminal, RESIDENT_MIB, "MiB"),
        limited(ROW, "resident, and with a screen that is read", painted, RESIDENT_MIB, "MiB"),
        limited(ROW, "start of the dummy, added", 1000 * (wrapped - bare), START_MS, "ms"),
        limited(ROW, "echo of a key, added, 95 of 100", max(1000 * added, 0.001), ECHO_MS, "ms"),
        limited(ROW, "stop of a wrapped agent, the longest", 1000 * max(stopped), STOP_MS, "ms"),
    ]
    if theirs:
        figures.append(
            Figure(
                row=ROW,
                what="output of a program passed on",
                ours=ours,
                theirs=theirs,
                unit="MB/s",
                against="script",
                at_least=0.8,
            )
        )
    return figures


async def resident_mib(home: Path, callers: Callers) -> float:
    """Return what a wrapper holds that has had a task."""
    user = await callers.user()
    async with wrapped_dummy(home) as process:
        await until_ready(user)
        sent = await user.ask("mail.send", to="dummy", content="hello")
        await user.ask("mail.wait", message_id=sent["message"]["id"], timeout_seconds=30)
        return float(psutil.Process(process.pid).memory_info().rss / 2**20)


async def resident_in_terminal(env: Mapping[str, str], callers: Callers) -> float:
    """Return the same for one at a terminal, as the command line runs it."""
    user = await callers.user()
    with seat((*WRAPPED, "dummy"), {**env, "DUMMY_AGENT_SECONDS": "0"}) as at:
        await until_ready(user)
        sent = await user.ask("mail.send", to="dummy", content="hello")
        await user.ask("mail.wait", message_id=sent["message"]["id"], timeout_seconds=30)
        return float(psutil.Process(at.pid).memory_info().rss / 2**20)


def resident_painted(env: Mapping[str, str]) -> float:
    """Return the same for a program whose screen is painted and read."""
    with seat((*WRAPPED, "screen"), env) as at:
        at.until(b"done")
        time.sleep(0.5)  # until it is painted and looked at, of which nothing is to be seen
        return float(psutil.Process(at.pid).memory_info().rss / 2**20)


async def stop_seconds(home: Path, callers: Callers) -> float:
    """Return how long it takes until a wrapped agent that is to end is gone, and its wrapper."""
    user = await callers.user()
    async with wrapped_dummy(home) as process:
        await until_ready(user)
        began = time.perf_counter()
        await user.ask("agent.stop", agent="dummy")
        await process.wait()
        return time.perf_counter() - began


def start_seconds(times: int, env: Mapping[str, str]) -> tuple[float, float]:
    """Return how long the dummy takes to say something: alone, and wrapped."""
    commands = {"bare": BARE, "wrapped": (*WRAPPED, "dummy")}
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(times + 1):  # the first warms up
        for name, command in commands.items():
            with seat(command, env) as at:
                best[name] = min(best[name], at.until(b"Ready") - at.began)
                at.type(b"exit\n")
                at.drain()
    return best["bare"], best["wrapped"]


def echo_seconds(keys: int, env: Mapping[str, str]) -> tuple[list[float], list[float]]:
    """Return how long each key takes to be shown: without a wrapper, and with one."""
    with seat(("cat",), env) as bare, seat((*WRAPPED, "echo"), env) as wrapped:
        took: tuple[list[float], list[float]] = ([], [])
        time.sleep(0.5)  # a wrapper makes its terminal raw when it has started; nothing tells
        for at in (bare, wrapped):
            at.type(b"#")
            at.until(b"#")
        for number in range(keys):
            key = b"abcdefghij"[number % 10 : number % 10 + 1]
            for at, times in zip((bare, wrapped), took, strict=True):
                began = time.perf_counter()
                at.type(key)
                times.append(at.until(key) - began)
                if number % 64 == 63:  # a line has an end
                    at.type(b"\r")
                    at.until(b"\n")
    return took


def throughput(mib: int, times: int, env: Mapping[str, str]) -> tuple[float, float]:
    """Return how many megabytes a second come through: a wrapper, and `script`."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        path = Path(directory) / "output"
        path.write_bytes(
            (b"The quick brown fox jumps over the lazy dog. " * 2 + b"\n") * 11 * 2**10 * mib
        )
        commands: dict[str, Sequence[str]] = {"ours": (*WRAPPED, "echo", "--", str(path))}
        if script := shutil.which("script"):
            quiet = ("-q", "-c", f"cat {path}", "/dev/null")
            on_linux = sys.platform == "linux"
            commands["theirs"] = (
                script,
                *(quiet if on_linux else ("-q", "/dev/null", "cat", str(path))),
            )
        best = dict.fromkeys(("ours", "theirs"), 0.0)
        for _ in range(times):
            for name, command in commands.items():
                with seat(command, env) as at:
                    first = at.read()
                    began = time.perf_counter()
                    count, last = at.drain()
                    if len(first) + count < path.stat().st_size:
                        raise AssertionError(f"{name} lost output")
                    best[name] = max(best[name], count / (last - began) / 1e6)
    return best["ours"], best["theirs"]
