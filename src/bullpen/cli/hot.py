"""Asking the daemon with the standard library alone, for what tmux runs every few seconds.

Nothing here starts a daemon, waits for long or fails: without an answer there is none.
"""

import json
import os
import socket
import time
from collections.abc import Sequence

from bullpen.api.locations import socket_path

__all__ = ["NO_DAEMON", "ask", "is_ours", "tmux_status"]

NO_DAEMON = "-"  # what stands in the status bar when there is nothing to say
ANSWER_SECONDS = 0.15
MOST_BYTES = 2**20


def tmux_status(arguments: Sequence[str]) -> str | None:
    """Return the line for a status bar; None if these arguments want more than that."""
    match list(arguments):
        case []:
            path = socket_path(os.environ, os.getuid())
        case ["-s" | "--socket-path", path]:
            pass
        case _:
            return None
    answer = ask(path, "tmux_status")
    # It is printed into tmux's own bar: one line, and no control characters.
    if isinstance(answer, str) and answer.isprintable():
        return answer
    return NO_DAEMON


def ask(path: str, method: str, *, timeout_seconds: float = ANSWER_SECONDS) -> object:
    """Return what the daemon answers to a request without params; None if it does not in time."""
    deadline = time.monotonic() + timeout_seconds
    try:
        if not is_ours(path):
            return None
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(path)
            connection.sendall(b'{"jsonrpc":"2.0","id":1,"method":"%s"}\n' % method.encode())
            answer = json.loads(_line(connection, deadline))
    except (OSError, ValueError, RecursionError):
        return None
    return answer.get("result") if isinstance(answer, dict) else None


def is_ours(path: str) -> bool:
    """Whether it is no socket of somebody else."""
    return os.stat(path).st_uid == os.getuid()  # noqa: PTH116 - pathlib is not for the hot path


def _line(connection: socket.socket, deadline: float) -> bytes:
    received = bytearray()
    while b"\n" not in received:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or len(received) > MOST_BYTES:
            raise TimeoutError
        connection.settimeout(remaining)
        data = connection.recv(65536)
        if not data:
            raise ConnectionResetError
        received += data
    return bytes(received.partition(b"\n")[0])
