"""What a hook costs the agent that runs it, beside a Python that does nothing.

The shim runs as hooks run it, with a payload of a usual size, once for a daemon that answers and
once for none, so that it is kept in the spool. The cost is the processor time the system counted
for it, from its first instruction to its last; the daemon's own share is not in it.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from bench.figure import Figure
from bullpen.agents.hooks import shim

__all__ = ["run"]

BARE = (sys.executable, "-I", "-S", "-c", "pass")
SHIM = (sys.executable, "-I", "-S", shim.__file__, "claude", "PostToolUse", "1")
TARGET = 3.0
PAYLOAD = {
    "session_id": "8687ba09-6dac-4c20-ae5b-b84ff22da284",
    "transcript_path": "/home/dev/.claude/projects/-home-dev/8687ba09.jsonl",
    "cwd": "/home/dev",
    "hook_event_name": "PostToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "pytest -q", "description": "Run the tests"},
    "tool_response": {"stdout": "." * 2000, "stderr": "", "interrupted": False},
    "tool_use_id": "toolu_fake000134",
}


async def run(quick: bool) -> list[Figure]:
    runs = 2 if quick else 60
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        payload = Path(directory) / "payload.json"
        payload.write_text(json.dumps(PAYLOAD))
        served, alone = (Path(directory) / name for name in ("served", "alone"))
        socket = served / "run/bullpend.sock"
        socket.parent.mkdir(mode=0o700, parents=True)
        told: list[bytes] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            told.append(await reader.readline())
            writer.write(b'{"jsonrpc":"2.0","id":1,"result":true}\n')
            await writer.drain()
            writer.close()

        async with await asyncio.start_unix_server(answer, socket):
            commands = {
                "a hook, told to a daemon": (SHIM, str(served)),
                "a hook, kept without a daemon": (SHIM, str(alone)),
                "": (BARE, directory),
            }
            best = dict.fromkeys(commands, float("inf"))
            for _ in range(runs + 1):  # the first warms up
                for what, (command, home) in commands.items():
                    used = await asyncio.to_thread(seconds_of, command, payload, home)
                    best[what] = min(best[what], used)
        if not len(told) == len(list((alone / "state/spool").iterdir())) == runs + 1:
            raise AssertionError("the hooks did not go where they should")
    return [
        Figure(
            row="hook-shim",
            what=what,
            ours=best[what] * 1000,
            theirs=best[""] * 1000,
            unit="ms",
            against="python -I -S -c pass",
            at_most=TARGET,
        )
        for what in commands
        if what
    ]


def seconds_of(command: tuple[str, ...], payload: Path, home: str) -> float:
    """Return the processor time of a command from its start to its end."""
    given = os.open(payload, os.O_RDONLY)
    try:
        pid = os.posix_spawn(
            command[0],
            command,
            {**os.environ, "BULLPEN_HOME": home},
            file_actions=[(os.POSIX_SPAWN_DUP2, given, 0)],
        )
    finally:
        os.close(given)
    _, status, used = os.wait4(pid, 0)
    if status != 0:
        raise AssertionError(f"{' '.join(command)} ended with {status}")
    return used.ru_utime + used.ru_stime
