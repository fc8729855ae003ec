"""The hook shim: hands what an agent program tells its hooks to the daemon, or keeps it for later.

The hooks that `bullpen hooks install` writes run this file, by its path, at each event:

    <python> -I -S <path>/shim.py <provider> [<event> [<pid of the agent> [ask]]]

with the event as JSON on stdin. It sends one `hook.report` request to the daemon and waits for the
answer; if there is none it leaves the params of that request in the spool, where the daemon finds
them. Either way the same facts have the same `at` and `pid`, so that whoever gets both knows it.

With `ask`, at the end of a turn, the request is `hook.ask`: the daemon may hand out a message that
waits for the agent. The shim takes it (`hook.took`), and only when the daemon has written that down
it says what the program goes on with. So a message is said once, or handed over in another way.

It must never be a burden to the agent: it exits 0 whatever happens, says nothing else, and is done
in a moment or gives up. So it stands on its own: no part of the package is imported, and of the
standard library only what is written in C, for `os`, `json` and `socket` would double the time it
takes. The rule for the paths is that of `bullpen.api.runtime`; a test holds the two together.
"""

import _signal  # type: ignore[import-not-found]  # the part of `signal` that is not Python
import _socket  # the part of `socket` that is not Python
import posix  # the part of `os` that is not Python
import sys
import time

__all__ = ["is_ours", "main", "paths"]

BUDGET_SECONDS = 0.1  # for the daemon: from the connection to its answer
ASK_SECONDS = 0.8  # the same, if it is asked; it looks for half a second
TAKE_SECONDS = 0.3  # for it to write down what was taken
LAST_SECONDS = 1.0  # for everything: then it goes, whatever it was doing

MAX_INPUT_BYTES = 8 * 2**20  # what comes after is read and dropped
MAX_PAYLOAD_BYTES = 192 * 2**10
MAX_MEMBERS = 1000  # of a payload that is cut
MAX_DIGITS = 18  # of a whole number that everybody can read
MAX_SPOOLED_FILES = 1000
MAX_SPOOLED_BYTES = 16 * 2**20

SHELLS = ("sh", "bash", "dash", "fish", "ksh", "zsh")
CUT = "bullpen_cut"
"""A field we add to a payload that was too large: how many bytes it had."""


def main(arguments: list[str]) -> None:
    """Report one event. `arguments` are the provider, the event's name and the agent's pid."""
    nanoseconds = time.time_ns()
    data, size = _read_input()
    environ = {_text(key): _text(value) for key, value in posix.environ.items()}
    event = arguments[1] if len(arguments) > 1 else ""
    provider = _provider(arguments[0] if arguments else "other", environ, data)
    params = (
        b'{"provider":%s,"at":%.6f,"pid":%d,"tmux":%s,"tmux_pane":%s,"cwd":%s,"payload":%s}'
        % (
            _quoted(provider),
            nanoseconds / 1e9,
            _agent_pid(arguments),
            _quoted(environ.get("TMUX", "")),
            _quoted(environ.get("TMUX_PANE", "")),
            _quoted(_cwd()),
            _payload(data, size, event),
        )
    )
    path, spool = paths(environ, posix.getuid())
    is_given = bool(environ.get("BULLPEN_SOCKET"))
    secret = environ.get("BULLPEN_SECRET", "")  # who has it is the agent; it is never spooled
    told = b'%s,"secret":%s}' % (params[:-1], _quoted(secret)) if secret else params
    is_told = "ask" in arguments[3:] and _ask(path, told, is_given=is_given)
    if not is_told and not _deliver(path, _request(b"hook.report", told), is_given=is_given):
        _keep(spool, f"{provider}-{nanoseconds}-{posix.getpid()}.json", params + b"\n")


def paths(environ: dict[str, str], user_id: int) -> tuple[str, str]:
    """Return where the daemon listens, and where it looks for what it missed."""
    if home := environ.get("BULLPEN_HOME", ""):
        home = _absolute(home)
        directory, spool = f"{home}/run", f"{home}/state/spool"
    else:
        runtime = _directory(environ, "XDG_RUNTIME_DIR")
        directory = f"{runtime}/bullpen" if runtime else f"/tmp/bullpen-{user_id}"  # noqa: S108
        state = _directory(environ, "XDG_STATE_HOME") or f"{_home(environ, user_id)}/.local/state"
        spool = f"{state}/bullpen/spool"
    socket = environ.get("BULLPEN_SOCKET", "")
    return _absolute(socket) if socket else f"{directory}/bullpend.sock", spool


def _absolute(path: str) -> str:
    return path.rstrip("/") if path.startswith("/") else f"{_cwd()}/{path.rstrip('/')}"


def _directory(environ: dict[str, str], name: str) -> str:
    """Return a directory of the XDG specification, which says to ignore one that is relative."""
    directory = environ.get(name, "")
    return directory.rstrip("/") if directory.startswith("/") else ""


def _home(environ: dict[str, str], user_id: int) -> str:
    home = environ.get("HOME", "")
    if not home:
        import pwd

        try:
            home = pwd.getpwuid(user_id).pw_dir
        except KeyError:  # a user without an entry, as in a container
            return ""
    return home.rstrip("/")


# ------------------------------------------------------------------------------- what is known


def _read_input() -> tuple[bytes, int]:
    """Return what is on stdin, or its beginning, and how much it was.

    All of it is read, so that whoever writes it need not mind us.
    """
    parts = []
    size = 0
    try:
        while part := posix.read(0, 2**20):
            if size < MAX_INPUT_BYTES:
                parts.append(part)
            size += len(part)
    except OSError:  # it is closed, or has no end
        pass
    return b"".join(parts), size


def _provider(provider: str, environ: dict[str, str], data: bytes) -> str:
    """Return whose hook it is: Copilot runs those of a project's Claude settings as well.

    Either program may have been started by the other, and then has its variables, too; but the
    session in Claude's is the one it tells of.
    """
    if provider == "claude" and "COPILOT_CLI" in environ:
        session = environ.get("CLAUDE_CODE_SESSION_ID", "").encode()
        if not session or session not in data:
            return "copilot"
    return provider


def _agent_pid(arguments: list[str]) -> int:
    """Return the pid the hook's shell has told us, else that of the first parent that is no shell.

    The shell itself is gone by the time somebody looks.
    """
    if len(arguments) > 2 and arguments[2].isdigit():
        return int(arguments[2])
    pid = posix.getppid()
    for _ in range(4):
        name, parent = _process(pid)
        if name not in SHELLS or parent <= 1:
            break
        pid = parent
    return pid


def _process(pid: int) -> tuple[str, int]:
    """Return a process's name and parent, where the system has a file for that."""
    try:
        descriptor = posix.open(f"/proc/{pid}/stat", posix.O_RDONLY)
    except OSError:
        return "", 0
    try:
        before, _, after = posix.read(descriptor, 4096).rpartition(b")")
    finally:
        posix.close(descriptor)
    return _text(before.partition(b"(")[2]), int(after.split()[1])


def _cwd() -> str:
    try:
        return posix.getcwd()
    except OSError:  # it was removed
        return ""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _quoted(text: str) -> bytes:
    from _json import encode_basestring_ascii

    return encode_basestring_ascii(text.encode("utf-8", "replace").decode()).encode()


# ----------------------------------------------------------------------------------- the payload


def _payload(data: bytes, size: int, event: str) -> bytes:
    """Return the payload as JSON on one line, with the event's name in it."""
    try:
        if size > MAX_PAYLOAD_BYTES or not _is_plain(data):
            return _patiently(data, size, event)
    except Exception:  # noqa: BLE001 - that something happened is worth more than what it was
        return b'{"hook_event_name":%s,"%s":%d}' % (_quoted(event), CUT.encode(), size)
    payload = data.strip().replace(b"\n", b" ").replace(b"\r", b" ")  # never within a string
    if not event or b'"hook_event_name"' in payload or not payload.startswith(b"{"):
        return payload
    rest = payload[1:].lstrip()
    return b'{"hook_event_name":%s%s%s' % (_quoted(event), b"" if rest == b"}" else b",", rest)


def _is_plain(data: bytes) -> bool:
    r"""Tell whether it is JSON that everybody reads alike: no half of a pair (`\ud83d`), no NaN."""
    from _json import make_scanner

    if b"\\ud" in data or b"\\uD" in data:
        return False
    try:
        text = data.decode().strip()
        _, end = make_scanner(_Scanning)(text, 0)  # type: ignore[arg-type]  # has what it looks for
    except Exception:  # noqa: BLE001 - without `json` it cannot even say what is wrong
        return False
    return bool(end == len(text))


class _Scanning:
    """How JSON is read: as `json` does, but refusing numbers that not everybody has."""

    strict = True
    object_hook = None
    object_pairs_hook = None

    @staticmethod
    def parse_int(digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            raise ValueError(digits)
        return 0

    @staticmethod
    def parse_float(digits: str) -> int:
        if float(digits) - float(digits):  # which is 0, if it has an end
            raise ValueError(digits)
        return 0

    @staticmethod
    def parse_constant(name: str) -> None:
        raise ValueError(name)


def _patiently(data: bytes, size: int, event: str) -> bytes:
    """Return what can be told of a payload that is large or odd."""
    import json

    text = data.decode("utf-8", "replace")
    try:
        value = json.loads(text, parse_constant=_nothing, parse_int=_number, parse_float=_number)
    except (ValueError, RecursionError):
        value = _members(text) or {"text": text}
    if not isinstance(value, dict):
        value = {"value": value}
    if event and "hook_event_name" not in value:
        value = {"hook_event_name": event, **value}
    if size > len(data):
        value[CUT] = size
    encoded = b""
    for length, count, depth in ((2**20, 10**5, 64), (4096, 200, 8), (512, 32, 4), (64, 16, 2)):
        encoded = json.dumps(_small(value, length, count, depth), separators=(",", ":")).encode()
        if len(encoded) <= MAX_PAYLOAD_BYTES:
            break
        value[CUT] = size
    return encoded


def _nothing(_name: str) -> None:
    return None


def _number(digits: str) -> int | float | None:
    if len(digits) <= MAX_DIGITS and digits.lstrip("-").isdigit():
        return int(digits)
    number = float(digits)
    return None if number - number else number


def _members(text: str) -> dict[str, object]:
    """Return the members of an object of which the end is missing."""
    import json

    decoder = json.JSONDecoder(parse_constant=_nothing, parse_int=_number, parse_float=_number)
    members: dict[str, object] = {}
    at = text.find("{") + 1
    try:
        while at and len(members) < MAX_MEMBERS:
            at = _after_space(text, at)
            key, at = decoder.raw_decode(text, at)
            at = _after_space(text, at) + 1  # the colon
            members[str(key)], at = decoder.raw_decode(text, _after_space(text, at))
            at = _after_space(text, at) + 1  # the comma
    except (ValueError, RecursionError, IndexError):
        pass
    return members


def _after_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _small(value: object, length: int, count: int, depth: int) -> object:
    """Return a value whose texts, lists and objects are no longer than that, nor deeper."""
    if isinstance(value, str):
        value = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value if len(value) <= length else f"{value[:length]}…"
    if isinstance(value, list | dict) and not depth:
        return None
    if isinstance(value, list):
        return [_small(each, length, count, depth - 1) for each in value[:count]]
    if isinstance(value, dict):
        kept = [name for index, name in enumerate(value) if index < count or name == CUT]
        return {
            str(_small(name, length, count, 1)): _small(value[name], length, count, depth - 1)
            for name in kept
        }
    return value


# ---------------------------------------------------------------------------------- where it goes


def _request(method: bytes, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"%s","params":%s}\n' % (method, params)


def _deliver(path: str, line: bytes, *, is_given: bool) -> bool:
    """Send a request; tell whether the daemon has answered it in time."""
    until = time.monotonic() + BUDGET_SECONDS
    socket = _connect(path, BUDGET_SECONDS, is_given=is_given)
    return socket is not None and bool(_exchange(socket, line, until))


def _ask(path: str, params: bytes, *, is_given: bool) -> bool:
    """Report, ask what is to be done, and say it; tell whether the daemon has the report."""
    until = time.monotonic() + ASK_SECONDS
    socket = _connect(path, BUDGET_SECONDS, is_given=is_given)
    answer = _exchange(socket, _request(b"hook.ask", params), until) if socket else b""
    if socket is None or b'"result":' not in answer:
        return False
    # Neither can be within a text, where quotes are escaped.
    if b'"output":"' in answer and b'"output":""' not in answer:
        _take(socket, answer)
    return True


def _take(socket: _socket.socket, answer: bytes) -> None:
    """Say what the program is to go on with, if it is still ours to say."""
    import json

    result = json.loads(answer)["result"]
    _signal.setitimer(_signal.ITIMER_REAL, 0)  # nothing may come between taking and saying
    params = b'{"attempt_id":%s}' % _quoted(result["attempt_id"])
    until = time.monotonic() + TAKE_SECONDS
    taken = _exchange(socket, _request(b"hook.took", params), until)
    if b'"result":true' in taken:
        data = result["output"].encode()
        while data:
            data = data[posix.write(1, data) :]


def _connect(path: str, seconds: float, *, is_given: bool) -> _socket.socket | None:
    if not is_ours(path.rpartition("/")[0], path, is_given=is_given):
        return None
    try:
        socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        socket.settimeout(seconds)
        socket.connect(path)
    except OSError:  # nobody listens
        return None
    return socket


def _exchange(socket: _socket.socket, line: bytes, until: float) -> bytes:
    """Send a line; return the one that comes back, or nothing if it does not come in time."""
    parts = []
    try:
        socket.sendall(line)
        while (left := until - time.monotonic()) > 0:
            socket.settimeout(left)
            if not (part := socket.recv(2**16)):
                break
            parts.append(part)
            if part.endswith(b"\n"):
                return b"".join(parts)
    except OSError:  # nobody answers
        pass
    return b""


def is_ours(directory: str, path: str, *, is_given: bool) -> bool:
    """Tell whether nobody else could have put the socket there: anybody may write to /tmp.

    Where somebody has named the socket, the directory is theirs to choose.
    """
    try:
        found = posix.lstat(path if is_given else directory or "/")
    except OSError:
        return False
    is_private = is_given or found.st_mode & 0o170022 == 0o040000  # a directory, and not shared
    return is_private and found.st_uid == posix.getuid()


def _keep(spool: str, name: str, data: bytes) -> None:
    """Leave a file in the spool, whole or not at all, in the place of older ones if need be."""
    temporary = f"{spool}/.{name}"
    try:
        _make_directory(spool)
        _make_room(spool, len(data))
        flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC
        descriptor = posix.open(temporary, flags, 0o600)
    except OSError:
        return  # there is nobody to tell
    try:
        written = posix.write(descriptor, data)
        if written == len(data):
            posix.rename(temporary, f"{spool}/{name}")
            return
    except OSError:  # the disk is full
        pass
    _remove(temporary)


def _remove(path: str) -> None:
    try:
        posix.unlink(path)
    except OSError:  # somebody else was faster
        return


def _make_directory(path: str) -> None:
    try:
        posix.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        _make_directory(path.rpartition("/")[0])
        posix.mkdir(path, 0o700)


def _make_room(spool: str, wanted: int) -> None:
    """Drop the oldest files until another one fits."""
    names = sorted((name for name in posix.listdir(spool) if name.endswith(".json")), key=_age)
    sizes = {name: _size(f"{spool}/{name}") for name in names}
    total = sum(sizes.values())
    for number, name in enumerate(names):
        if len(names) - number < MAX_SPOOLED_FILES and total + wanted <= MAX_SPOOLED_BYTES:
            break
        total -= sizes[name]
        _remove(f"{spool}/{name}")


def _age(name: str) -> str:
    return name.rpartition("-")[0].rpartition("-")[2]


def _size(path: str) -> int:
    try:
        return posix.lstat(path).st_size
    except OSError:
        return 0


def _give_up(_number: int, _frame: object) -> None:
    raise TimeoutError


if __name__ == "__main__":
    try:
        _signal.signal(_signal.SIGALRM, _give_up)
        _signal.setitimer(_signal.ITIMER_REAL, LAST_SECONDS)
        main(sys.argv[1:])
    finally:
        posix._exit(0)  # at once, and with no word of what went wrong
