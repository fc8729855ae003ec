"""The waiter: runs in the background of Claude Code, and wakes it when a message comes for it.

It is run as a hook with `asyncRewake`, by its path, with the session's first event and with each
prompt:

    <python> -I -S <path>/waiter.py

and waits at the daemon (`agent.wake`) for something to hand over. When that comes it takes it
(`hook.took`), writes it to its stderr and exits with 2, and the program begins a turn with it: the
terminal is not touched, and what somebody has begun to write stays where it is. Every prompt starts
another waiter, since an Esc and an error end a turn without a word; the daemon sends an older one
away, so that there is one at a time.

It never bothers the agent: in all other cases it exits 0 and says nothing. It goes when the agent
has gone or the daemon says so, and does not stay longer than `LIFE_SECONDS`. Like the shim it
stands on its own; whoever has no `BULLPEN_SECRET` is not waited for.
"""

import contextlib
import importlib.util
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, Self

__all__ = ["EVENTS", "waiter_command", "wake_hook"]

EVENTS = ("SessionStart", "UserPromptSubmit")
"""At which one is started. Every turn begins with one of them, whichever way it ends."""

LIFE_SECONDS = 10 * 24 * 3600.0
HOOK_SECONDS = 11 * 24 * 3600  # the program would end it then; its clock holds 24 days
WAKE_SECONDS = 3600.0  # for one request, so that nothing is waited for that is gone
LOOK_SECONDS = 2.0  # between two looks for the agent
RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)  # for a daemon that is not there; the last one again and again
GIVE_UP_SECONDS = 600.0  # without a daemon
TAKE_SECONDS = 5.0
TRY_AGAIN = (-32001, -32002, -32800)  # it has too much to do, or is about to end
WOKEN = 2


def waiter_command() -> tuple[str, ...]:
    """Return what runs the waiter: this interpreter, and the waiter of this installation."""
    return sys.executable, "-I", "-S", str(Path(__file__).absolute())


def wake_hook(message: str, summary: str) -> dict[str, Any]:
    """Return the entry of a hook that runs it, for the settings of one run.

    Args:
        message: what the model is told before the text.
        summary: what the program shows for it.
    """
    program, *arguments = waiter_command()
    return {
        "type": "command",
        "command": program,
        "args": arguments,  # no shell between the agent and us: our parent is the agent
        "asyncRewake": True,
        "rewakeMessage": message,
        "rewakeSummary": summary,
        "timeout": HOOK_SECONDS,
    }


def main() -> int:
    """Wait until there is something, or no more reason to wait; return the exit code."""
    secret = os.environ.get("BULLPEN_SECRET", "")
    if not secret:
        return 0
    agent = os.getppid()
    now = time.monotonic()
    until, heard_at, failures = now + LIFE_SECONDS, now, 0
    while _is_there(agent) and time.monotonic() < min(until, heard_at + GIVE_UP_SECONDS):
        try:
            with _Daemon(_socket_path(), agent) as daemon:
                text = daemon.wait(secret)
        except (OSError, ValueError, KeyError):  # it is not there, or not one that we understand
            time.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            failures += 1
            continue
        if text is None:
            return 0
        if text:
            sys.stderr.buffer.write(text.encode(errors="replace"))
            sys.stderr.flush()
            return WOKEN
        heard_at, failures = time.monotonic(), 0
    return 0


class _Daemon:
    """A connection to the daemon, for one wait."""

    def __init__(self, path: str, agent: int) -> None:
        self._agent = agent
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._buffer = b""
        try:
            self._socket.settimeout(LOOK_SECONDS)
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def wait(self, secret: str) -> str | None:
        """Return what the agent is to be handed: empty to wait on, None to go away."""
        params = {"secret": secret, "timeout_seconds": WAKE_SECONDS}
        began = time.monotonic()
        answer = self._ask(1, "agent.wake", params, WAKE_SECONDS + 60.0)
        text = answer.get("text", "")
        if text and _is_there(self._agent):
            taken = self._ask(2, "hook.took", {"attempt_id": answer["attempt_id"]}, TAKE_SECONDS)
            if taken is True:
                return str(text)
        is_over = time.monotonic() - began >= WAKE_SECONDS
        return "" if is_over or text else None

    def _ask(self, number: int, method: str, params: dict[str, Any], seconds: float) -> Any:
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            line = self._line()
            if line is None:
                if not _is_there(self._agent):
                    return {}
                continue
            answer = json.loads(line)
            if answer.get("id") == number:
                if answer.get("error", {}).get("code") in TRY_AGAIN:
                    raise ConnectionAbortedError
                return answer.get("result", {})  # or our secret is worth nothing any more
        raise TimeoutError

    def _line(self) -> bytes | None:
        """Return the next line; None if there was none for a while."""
        with contextlib.suppress(TimeoutError):
            while b"\n" not in self._buffer:
                part = self._socket.recv(2**16)
                if not part:
                    raise ConnectionResetError
                self._buffer += part
            line, _, self._buffer = self._buffer.partition(b"\n")
            return line
        return None


def _is_there(agent: int) -> bool:
    """Whether the agent lives that has started us; else we have another parent by now."""
    return agent > 1 and os.getppid() == agent


def _socket_path() -> str:
    """Return where the daemon listens, by the rules that the shim beside us has.

    Raises:
        FileNotFoundError: it does not, or somebody else may have put the socket there.
    """
    place = Path(__file__).absolute().with_name("shim.py")
    found = importlib.util.spec_from_file_location("bullpen_shim", place)
    assert found is not None
    assert found.loader is not None
    shim = importlib.util.module_from_spec(found)
    found.loader.exec_module(shim)
    path, _ = shim.paths(dict(os.environ), os.getuid())
    is_given = bool(os.environ.get("BULLPEN_SOCKET"))
    if not shim.is_ours(path.rpartition("/")[0], path, is_given=is_given):
        raise FileNotFoundError(path)
    return str(path)


if __name__ == "__main__":
    code = 0
    try:
        code = main()
    finally:
        os._exit(code)  # at once, and with no word of what went wrong
