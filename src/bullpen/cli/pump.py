"""`bullpen mcp`: a pump between an agent's stdin and stdout and the MCP server in the daemon.

An agent program starts one for each of its sessions, so it costs next to nothing: the standard
library alone, one thread, lines passed on as they are. It looks at a line only to know which
requests are open. Should the daemon go, they are answered with an error; with the next line it is
there again, started anew if need be, and hears `initialize` as it was said before, so that the
agent's session goes on.
"""

import json
import os
import select
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bullpen.api.locations import absolute, mcp_socket_path, socket_path
from bullpen.cli.hot import is_ours

if TYPE_CHECKING:
    import subprocess

__all__ = ["INSTALLED", "Pump", "pump"]

INSTALLED = "--installed"
"""By this option an entry of ours in somebody's settings is known. It changes nothing."""

START_SECONDS = 15.0  # for a daemon to be there
LOOK_SECONDS = 0.05  # nothing tells when it is: we have to look
CONNECT_SECONDS = 5.0
MOST_LINE_BYTES = 8 * 2**20
MOST_UNREAD_BYTES = 2**20  # what waits for a side that does not read
READ_BYTES = 65_536

INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603
LOST = "the daemon has gone before it answered; what it had accepted is kept"

STDIN, STDOUT = 0, 1
GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


def pump(arguments: Sequence[str]) -> int | None:
    """Pump until the agent is done; return None if these arguments want something else."""
    given = ""
    left = list(arguments)
    while left:
        option = left.pop(0)
        if option in ("-s", "--socket-path") and left:
            given = left.pop(0)
        elif option.startswith("--socket-path="):
            given = option.partition("=")[2]
        elif option.partition("=")[0] != INSTALLED:
            return None
    _mind_the_runtime_directory()
    path = absolute(given) if given else socket_path(os.environ, os.getuid())
    start = [sys.executable, "-P", "-m", "bullpen", "up"]
    if given:
        start += ["--socket-path", path]
    try:
        Pump(mcp_socket_path(path), start).run()
    except KeyboardInterrupt:
        return 130
    return 0


class Pump:
    """Lines from `stdin` to the server at a path, and back to `stdout`."""

    def __init__(
        self, path: str, start: Sequence[str], *, stdin: int = STDIN, stdout: int = STDOUT
    ) -> None:
        self._path = path
        self._start = start
        self._stdin, self._stdout = stdin, stdout
        self._is_over = False  # nothing more will be said to us
        self._server: socket.socket | None = None
        self._said = bytearray()  # by the agent: the beginning of a line
        self._skipping = False  # inside a line that is too long
        self._heard = bytearray()  # from the server: the beginning of a line
        self._to_server = bytearray()
        self._to_agent = bytearray()
        self._open: dict[str, object] = {}  # the ids of requests, by how they are written
        self._awaited = 0  # answers still to come; a line that makes no sense has one as well
        self._hello: list[bytes] = []  # what began the session, as it was said
        self._repeated: set[str] = set()  # requests of which the agent has the answer already

    def run(self) -> None:
        """Pump until the agent is done, or does not listen any more."""
        while not self._is_over or self._awaited or self._to_agent or self._to_server:
            ready = self._wait()
            if ready.get(self._stdout, 0) & GONE:
                return
            if ready.get(self._stdout, 0) & select.POLLOUT:
                self._write()
            if self._server is not None and ready.get(self._server.fileno()):
                self._exchange(ready[self._server.fileno()])
            if ready.get(self._stdin):
                self._read()
        if self._server is not None:
            self._server.close()

    def _wait(self) -> dict[int, int]:
        """Wait until something can be done; return with which descriptor, and what."""
        poll = select.poll()
        has_room = len(self._to_agent) < MOST_UNREAD_BYTES
        if not self._is_over and has_room and len(self._to_server) < MOST_UNREAD_BYTES:
            poll.register(self._stdin, select.POLLIN)
        poll.register(self._stdout, select.POLLOUT if self._to_agent else 0)
        if self._server is not None:
            wanted = select.POLLIN if has_room else 0
            wanted |= select.POLLOUT if self._to_server else 0
            poll.register(self._server, wanted)
        return dict(poll.poll())

    # ------------------------------------------------------------------------------- the agent

    def _read(self) -> None:
        try:
            data = os.read(self._stdin, READ_BYTES)
        except OSError:  # a terminal that is gone
            data = b""
        if not data:
            self._is_over = True
            data = b"\n" if self._said else b""  # what has no end by now is all there is
        self._said += data
        while (end := self._said.find(b"\n")) >= 0:
            line = bytes(self._said[:end])
            del self._said[: end + 1]
            if self._skipping:
                self._skipping = False
                self._refuse_long()
            elif len(line) > MOST_LINE_BYTES:
                self._refuse_long()
            elif line.strip():
                self._pass_on(line)
        if len(self._said) > MOST_LINE_BYTES:
            self._skipping = True
        if self._skipping:
            self._said.clear()

    def _write(self) -> None:
        try:
            # No more than a pipe that is ready takes at once: a longer text could block us.
            written = os.write(self._stdout, bytes(self._to_agent[: select.PIPE_BUF]))
        except OSError:  # it does not listen any more, which the next look shows
            self._to_agent.clear()
            self._is_over = True
            self._open.clear()
            self._awaited = 0
            return
        del self._to_agent[:written]

    def _refuse_long(self) -> None:
        self._answer(None, INVALID_REQUEST, f"a line is longer than {MOST_LINE_BYTES} bytes")

    def _answer(self, id_: object, code: int, message: str) -> None:
        error = {"code": code, "message": message}
        answer = {"jsonrpc": "2.0", "id": id_, "error": error}
        self._to_agent += json.dumps(answer).encode() + b"\n"

    # ------------------------------------------------------------------------------ the server

    def _pass_on(self, line: bytes) -> None:
        """Have the server hear a line."""
        messages = list(_messages(line))
        why = "" if self._server is not None else self._connect()
        for message in messages:
            id_, method = message.get("id"), message.get("method")
            if why:
                if method is not None and "id" in message:
                    self._answer(id_, INTERNAL_ERROR, why)
                continue
            if method is not None and "id" in message:
                self._open[_key(id_)] = id_
            if method == "initialize":
                self._hello = [line]
            elif method == "notifications/initialized" and len(self._hello) == 1:
                self._hello.append(line)
        if why and not messages:  # no JSON, which the server would have answered
            self._answer(None, INTERNAL_ERROR, why)
        if not why:
            self._awaited += _answers_to(line)
            self._to_server += line + b"\n"

    def _exchange(self, ready: int) -> None:
        """Take what the server says, and give it what it is to hear."""
        server = self._server
        assert server is not None
        try:
            if ready & select.POLLOUT:
                sent = server.send(self._to_server[:READ_BYTES])
                del self._to_server[:sent]
            if ready & (select.POLLIN | GONE):
                data = server.recv(READ_BYTES)
                if not data:
                    raise ConnectionResetError
                self._hear(data)
        except BlockingIOError:
            pass
        except OSError:
            self._lose()

    def _hear(self, data: bytes) -> None:
        """Take whole lines for the agent: half a one is of no use to it."""
        self._heard += data
        if b"\n" not in data:
            return
        lines = self._heard.split(b"\n")
        self._heard = lines.pop()
        for line in lines:
            keys = [_key(each.get("id")) for each in _messages(line) if "method" not in each]
            if self._repeated.intersection(keys):
                self._repeated.difference_update(keys)
                continue
            self._awaited = max(self._awaited - len(keys), 0)
            for key in keys:
                self._open.pop(key, None)
            self._to_agent += line + b"\n"

    def _lose(self) -> None:
        """Take leave of a server that is gone."""
        assert self._server is not None
        self._server.close()
        self._server = None
        self._heard.clear()
        self._to_server.clear()
        self._repeated.clear()
        for id_ in self._open.values():
            self._answer(id_, INTERNAL_ERROR, LOST)
        self._open.clear()
        self._awaited = 0

    def _connect(self) -> str:
        """Reach the server, with a daemon started for it if there is none; return why not."""
        deadline = time.monotonic() + START_SECONDS
        starting = None
        while self._server is None:
            try:
                self._server = _connected(self._path)
            except OSError as error:
                why = f"the daemon cannot be reached at {self._path}: {error.strerror or error}"
                if not isinstance(error, FileNotFoundError | ConnectionRefusedError):
                    return why
                if starting is None:
                    starting = _started(self._start)
                elif starting.poll():  # it has ended, and not well
                    return f"{why}, nor can one be started"
                if time.monotonic() > deadline:
                    return why
                time.sleep(LOOK_SECONDS)
        self._to_server += _hello() + b"\n"
        for line in self._hello:
            self._to_server += line + b"\n"
            self._repeated.update(_key(each["id"]) for each in _messages(line) if "id" in each)
        return ""


def _connected(path: str) -> socket.socket:
    if not is_ours(path):
        raise PermissionError(1, "it belongs to somebody else")
    server = socket.socket(socket.AF_UNIX)
    try:
        server.settimeout(CONNECT_SECONDS)
        server.connect(path)
        server.setblocking(False)
    except BaseException:
        server.close()
        raise
    return server


def _started(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    import subprocess  # which is for the rare case

    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )


def _hello() -> bytes:
    """Return what tells the server for whom we speak."""
    try:
        cwd = os.getcwd()  # noqa: PTH109 - pathlib is not for the hot path
    except OSError:
        cwd = ""
    caller = {
        "secret": _variable("BULLPEN_SECRET"),
        "pid": os.getppid(),
        "cwd": cwd,
        "tmux": _variable("TMUX"),
        "tmux_pane": _variable("TMUX_PANE"),
    }
    return json.dumps({"jsonrpc": "2.0", "method": "bullpen/hello", "params": caller}).encode()


def _variable(name: str) -> str:
    value = os.environ.get(name, "")
    return "" if value.startswith("$") else value  # as some programs leave what is not set


def _mind_the_runtime_directory() -> None:
    """Look where everybody looks: some programs do not tell their servers where that is."""
    usual = f"/run/user/{os.getuid()}"
    if not os.environ.get("XDG_RUNTIME_DIR") and os.path.isdir(usual):  # noqa: PTH112 - hot path
        os.environ["XDG_RUNTIME_DIR"] = usual


def _messages(line: "bytes | bytearray") -> "Iterator[dict[str, object]]":
    """Yield the objects of a line, of which there are several in a batch."""
    for each in _values(line):
        if isinstance(each, dict):
            yield each


def _answers_to(line: bytes) -> int:
    """Return how many answers the server has for a line: also for what makes no sense."""
    values = _values(line)
    return sum(map(_is_answered, values)) if values else 1


def _is_answered(value: object) -> bool:
    if not isinstance(value, dict):
        return True
    if "method" in value:
        return "id" in value or not isinstance(value["method"], str)
    return "result" not in value and "error" not in value


def _values(line: "bytes | bytearray") -> list[object]:
    """Return what a line holds: one value, or those of a batch; nothing if it is no JSON."""
    try:
        value = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else [value]


def _refuse(constant: str) -> object:
    raise ValueError(constant)  # NaN and the like, which JSON does not have


def _key(id_: object) -> str:
    return json.dumps(id_)
