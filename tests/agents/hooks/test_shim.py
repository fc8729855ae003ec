"""The shim is run by other people's programs: it tells what it can, and is never in the way."""

import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bullpen.agents.hooks import shim
from bullpen.api.locations import socket_path, state_directory
from bullpen.api.methods import HookReport
from bullpen.api.runtime import Paths
from bullpen.jsonrpc.codec import decode_frame
from bullpen.jsonrpc.wire import Request
from bullpen.model.states import Provider
from bullpen.observe.sources.spool import Spool, Spooled
from tests.agents.hooks.listener import Listener

SHIM = Path(shim.__file__)
BARE = [sys.executable, "-I", "-S", str(SHIM)]


def run(
    *arguments: str,
    payload: bytes | None = b'{"session_id":"s1"}',
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    command: list[str] | None = None,
    **more: Any,
) -> subprocess.CompletedProcess[bytes]:
    """Run the shim as an agent does, and see that the agent need not mind it."""
    done = subprocess.run(
        [*(command or BARE), *arguments],
        input=payload,
        env=environment,
        cwd=cwd,
        capture_output=True,
        check=False,
        timeout=30,
        **more,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    return done


@pytest.fixture
def socket(home: Path) -> Path:
    return Path(socket_path(os.environ, os.getuid()))


@pytest.fixture
def spool(home: Path) -> Path:
    return Path(state_directory(os.environ, os.getuid())) / "spool"


def spooled(spool: Path) -> list[dict[str, Any]]:
    return [json.loads(each.read_bytes()) for each in sorted(spool.glob("*.json"))]


# ----------------------------------------------------------------------------------- what is told


def test_one_request_tells_the_daemon_what_happened_and_where(socket: Path, home: Path) -> None:
    environment = {**os.environ, "TMUX": "/tmp/tmux-1/default,7,0", "TMUX_PANE": "%3"}
    with Listener(socket) as daemon:
        run("claude", "Stop", "4711", environment=environment, cwd=home)
        (line,) = daemon.lines
    request = decode_frame(line.rstrip(b"\n"))
    assert isinstance(request, Request)
    assert request.method == HookReport.METHOD
    report = msgspec.json.decode(json.dumps(daemon.reports[0]), type=HookReport)
    assert report.provider is Provider.CLAUDE
    assert report.payload == {"session_id": "s1", "hook_event_name": "Stop"}
    assert (report.pid, report.tmux, report.tmux_pane) == (4711, "/tmp/tmux-1/default,7,0", "%3")
    assert report.cwd == os.path.realpath(home)
    assert report.at is not None
    assert report.at > 1.6e9


def test_what_an_event_is_called_is_left_as_the_program_says_it(socket: Path) -> None:
    with Listener(socket) as daemon:
        run("codex", "Stop", payload=b'{"hook_event_name": "SessionEnd"}')
        run("copilot", "agentStop", payload=b"{}")
        run("copilot", payload=b"{ }")
    assert daemon.events == ["SessionEnd", "agentStop", ""]


def test_the_agent_is_the_first_that_is_no_shell(socket: Path) -> None:
    with Listener(socket) as daemon:
        line = " ".join([*BARE, "claude", "Stop"])
        run(command=["/bin/sh", "-c", f"{line} $PPID || :"])
        run(command=["/bin/sh", "-c", f"{line}; :"])
    told, found = (report["pid"] for report in daemon.reports)
    assert told == os.getpid()
    if sys.platform == "linux":
        assert found == os.getpid()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "claude"),
        ({"COPILOT_CLI": "1"}, "copilot"),
        ({"COPILOT_CLI": "1", "CLAUDE_CODE_SESSION_ID": "s1"}, "claude"),
        ({"COPILOT_CLI": "1", "CLAUDE_CODE_SESSION_ID": "another"}, "copilot"),
    ],
    ids=["claude", "copilot", "claude-in-copilot", "copilot-in-claude"],
)
def test_copilot_is_known_where_it_runs_the_hooks_of_claude(
    environment: dict[str, str], expected: str, socket: Path
) -> None:
    with Listener(socket) as daemon:
        run("claude", "Stop", environment={**os.environ, **environment})
    assert [report["provider"] for report in daemon.reports] == [expected]


# --------------------------------------------------------------------------------- any payload


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{\n  "a": 1,\r\n  "b": [true, null]\n}\n', {"a": 1, "b": [True, None]}),
        ('{"a": "ü"}'.encode(), {"a": "ü"}),
        (rb'{"a": "\ud83d\ude00"}', {"a": "😀"}),
        (rb'{"a": "cut \ud83d"}', {"a": "cut �"}),
        (b'{"a": NaN, "b": 1}', {"a": None, "b": 1}),
        (b'{"a": 1%s, "b": -1e999}' % (b"0" * 5000), {"a": None, "b": None}),
        (b'{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890.0}),
        (b'{"a": "\xff"}', {"a": "�"}),
        (b"", {"text": ""}),
        (b"no JSON\n", {"text": "no JSON\n"}),
        (b'{"a": 1} trailing', {"a": 1}),
        (b'{"a": 1, "b": "cut o', {"a": 1}),
        (b"[1, 2]", [1, 2]),
        (b"[" * 200_000, {"text": "[" * 4096 + "…", "bullpen_cut": 200_000}),
    ],
    ids=[
        "several-lines",
        "not-ascii",
        "escaped-pair",
        "half-a-pair",
        "not-a-number",
        "endless-numbers",
        "long-number",
        "not-utf8",
        "nothing",
        "text",
        "more-than-json",
        "cut",
        "list",
        "absurd-nesting",
    ],
)
def test_a_payload_arrives_whatever_it_is(payload: bytes, expected: object, socket: Path) -> None:
    with Listener(socket) as daemon:
        run("claude", payload=payload)
    (line,) = daemon.lines
    assert isinstance(decode_frame(line.rstrip(b"\n")), Request)
    assert msgspec.json.decode(line)["params"]["payload"] == expected


@pytest.mark.requirement("input:hook-5MB")
@pytest.mark.parametrize("megabytes", [1, 5, 20])
def test_a_large_payload_is_cut_and_says_so(megabytes: int, socket: Path) -> None:
    payload = {
        "hook_event_name": "PostToolUse",
        "session_id": "s1",
        "tool_response": {"stdout": "x" * (megabytes << 20)},
        "many": list(range(10_000)),
        "last": 1,
    }
    with Listener(socket) as daemon:
        run("claude", "PostToolUse", payload=json.dumps(payload).encode())
    (line,) = daemon.lines
    assert len(line) <= 256 * 2**10
    told = daemon.reports[0]["payload"]
    assert (told["hook_event_name"], told["session_id"]) == ("PostToolUse", "s1")
    assert told["bullpen_cut"] == len(json.dumps(payload))
    if megabytes < 8:
        assert told["tool_response"]["stdout"].startswith("x" * 64)
        assert told["last"] == 1


@pytest.mark.parametrize(
    "payload",
    [
        {f"key{number}": "x" * 100 for number in range(100_000)},
        {"session_id": "s1", "deep": [[["x" * 50] * 50] * 50] * 50},
        {"wide": [{"a": ["x"] * 90} for _ in range(5000)]},
    ],
    ids=["many-keys", "deep", "wide"],
)
def test_no_shape_of_a_payload_makes_the_line_too_long(
    payload: dict[str, Any], socket: Path
) -> None:
    with Listener(socket) as daemon:
        run("claude", payload=json.dumps(payload).encode())
    (line,) = daemon.lines
    assert len(line) <= 256 * 2**10
    assert daemon.reports[0]["payload"]["bullpen_cut"] == len(json.dumps(payload))


# ----------------------------------------------------------------------------- nobody is listening


async def test_without_a_daemon_it_is_left_where_the_daemon_looks(spool: Path) -> None:
    run("gemini", "AfterAgent", "4711", environment={**os.environ, "TMUX_PANE": "%3"})
    found: list[Spooled] = []

    async def take(each: Spooled) -> None:
        found.append(each)

    await Spool(spool, "gemini").drain(take)
    (left,) = found
    assert left.payload == {"session_id": "s1", "hook_event_name": "AfterAgent"}
    assert (left.origin.pid, left.origin.tmux_pane) == (4711, "%3")
    assert spooled(spool) == []


def test_what_is_left_is_for_nobody_else(spool: Path) -> None:
    run("gemini", "AfterAgent")
    (path,) = spool.iterdir()
    assert path.name.startswith("gemini-")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(spool.stat().st_mode) == 0o700


def test_a_daemon_that_does_not_answer_is_not_waited_for(socket: Path, spool: Path) -> None:
    with Listener(socket, answers=False) as daemon:
        run("claude", "Stop", "4711")
        (sent,) = daemon.reports
    assert spooled(spool) == [sent]  # to the same time and process, by which they are known as one


def test_a_socket_nobody_listens_on_is_no_daemon(socket: Path, spool: Path) -> None:
    with Listener(socket):
        pass
    assert socket.exists()
    run("claude", "Stop")
    assert len(spooled(spool)) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a pipe")
def test_an_input_without_an_end_is_given_up(spool: Path) -> None:
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            [*BARE, "claude", "Stop"], stdin=reader, capture_output=True, check=False, timeout=30
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_closed_input_is_an_empty_one(socket: Path) -> None:
    with Listener(socket) as daemon:
        run(command=["/bin/sh", "-c", f"exec {' '.join(BARE)} claude Stop <&- >&- 2>&-"])
    assert daemon.events == ["Stop"]


def test_it_works_without_a_home_and_without_any_variable(home: Path) -> None:
    run("claude", "Stop", environment={"XDG_STATE_HOME": str(home / "state")})
    assert len(spooled(home / "state/bullpen/spool")) == 1
    # Of a user's own home nothing may be left behind, so there it must fail, and quietly.
    run("claude", "Stop", environment={"HOME": "/dev/null"})


def test_a_full_disk_is_no_reason_to_fail(spool: Path) -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))

    run("claude", "Stop", preexec_fn=no_room)
    assert list(spool.iterdir()) == []


def test_a_mistake_of_our_own_is_no_reason_to_fail(home: Path) -> None:
    broken = home / "shim.py"
    source = SHIM.read_text()
    assert "    nanoseconds = time.time_ns()\n" in source
    broken.write_text(source.replace("    nanoseconds = time.time_ns()\n", "    1 / 0\n"))
    run("claude", "Stop", command=[sys.executable, "-I", "-S", str(broken)])


def test_a_spool_that_cannot_be_is_no_reason_to_fail(spool: Path) -> None:
    spool.parent.mkdir(parents=True)
    spool.write_text("in the way")
    run("claude", "Stop")
    assert spool.read_text() == "in the way"


def test_a_directory_that_was_removed_is_no_reason_to_fail(socket: Path, home: Path) -> None:
    gone = home / "gone"
    gone.mkdir()
    line = f"cd {gone} && rmdir {gone} && exec {' '.join(BARE)} claude Stop"
    with Listener(socket) as daemon:
        run(command=["/bin/sh", "-c", line])
    assert daemon.reports[0]["cwd"] == ""


def test_a_directory_anybody_may_write_to_is_not_trusted(socket: Path, spool: Path) -> None:
    with Listener(socket) as daemon:
        socket.parent.chmod(0o777)
        run("claude", "Stop")
        assert daemon.lines == []
        run("claude", "Stop", environment={**os.environ, "BULLPEN_SOCKET": str(socket)})
        assert len(daemon.lines) == 1
    assert len(spooled(spool)) == 1


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_SPOOLED_FILES", 3), ("MAX_SPOOLED_BYTES", 3 * 100 + 20)]
)
def test_the_oldest_give_way_when_the_spool_is_full(
    limit: str, value: int, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim, limit, value)
    (spool / "bad").mkdir(parents=True)
    for number in range(5):
        shim._keep(str(spool), f"claude-{1000 - number}-{number}.json", b"x" * 100)
    names = sorted(each.name for each in spool.iterdir())
    assert names[0] == "bad"
    assert "claude-996-4.json" in names  # the one that has come last, though it is the oldest
    assert len(names) - 1 <= 3


# ----------------------------------------------------------------------------------- on its own


@pytest.mark.parametrize(
    "environment",
    [
        {"HOME": "/home/dev"},
        {"HOME": "/home/dev/", "XDG_RUNTIME_DIR": "/run/user/1/"},
        {"HOME": "/home/dev", "XDG_RUNTIME_DIR": "run", "XDG_STATE_HOME": "state"},
        {"HOME": "/home/dev", "XDG_STATE_HOME": "/var/state"},
        {"BULLPEN_HOME": "/srv/bullpen/", "XDG_RUNTIME_DIR": "/run/user/1"},
        {"BULLPEN_HOME": "relative"},
        {"BULLPEN_SOCKET": "/srv/my.sock", "HOME": "/home/dev"},
        {"BULLPEN_SOCKET": "my.sock", "BULLPEN_HOME": "/srv/bullpen"},
        {"HOME": ""},
        {},
    ],
)
@pytest.mark.parametrize("user_id", [0, 1000, 4_000_000])
def test_the_shim_looks_where_the_daemon_is(environment: dict[str, str], user_id: int) -> None:
    daemon = Paths.resolve(environment, user_id=user_id)
    assert shim.paths(environment, user_id) == (str(daemon.socket), str(daemon.spool))


def test_it_runs_without_the_package_and_imports_next_to_nothing(socket: Path, home: Path) -> None:
    alone = home / "shim.py"
    alone.write_bytes(SHIM.read_bytes())
    with Listener(socket) as daemon:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-X", "importtime", str(alone), "claude", "Stop"],
            input=b"{}",
            capture_output=True,
            check=True,
            timeout=30,
        )
        bare = subprocess.run(
            [sys.executable, "-I", "-S", "-X", "importtime", "-c", "pass"],
            capture_output=True,
            check=True,
            timeout=30,
        )
    assert daemon.events == ["Stop"]
    assert _imported(done) - _imported(bare) <= {"_socket", "_json", "_signal", "posix", "time"}


def _imported(done: subprocess.CompletedProcess[bytes]) -> set[str]:
    return {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
