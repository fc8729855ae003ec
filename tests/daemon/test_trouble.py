"""The daemon against a world that is broken: it says so in clear words, goes on, and loses nothing.

Wherever it can be, what is broken is really broken: a tmux that stands still, a disk that refuses,
a peer that never reads.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.api.runtime import Paths
from bullpen.connection import Connection
from bullpen.daemon.alarms import Alarms
from bullpen.daemon.alerts import AlertLedger
from bullpen.daemon.door import open_door
from bullpen.daemon.latency import Latencies
from bullpen.testing.tmux import PrivateTmux
from tests.daemon.harness import (
    LINE_LIMIT,
    Clock,
    Peer,
    event,
    running_daemon,
    settings,
    until,
)
from tests.daemon.test_process import daemon, output

pytestmark = [pytest.mark.tmux, pytest.mark.xdist_group("daemon-processes")]


@pytest.fixture
async def tmux(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PrivateTmux]:
    async with PrivateTmux(width=120, height=40) as server:
        monkeypatch.setenv("BULLPEN_TMUX_SOCKET_PATH", server.target.socket_path)
        monkeypatch.setenv("TMUX_TMPDIR", str(Path(server.target.socket_path).parent))
        yield server


async def managed(peer: Peer, pane_id: str) -> dict[str, Any]:
    async def look() -> Any:
        pane = (await peer.panes()).get(pane_id)
        return pane if pane and pane["presence"] == "managed" else None

    found: dict[str, Any] = await until(look)
    return found


async def doctor(home: Path, tmux: str = "") -> dict[str, dict[str, str]]:
    """Run the real command, perhaps with another tmux; return what it says of each thing."""
    _, said = await output(home, "doctor", "--json", TMUX_BIN=tmux)
    return {each["name"]: each for each in json.loads(said)["checks"]}


async def goes_on(peer: Peer, session: str = "claude:after") -> None:
    """Make sure that it takes what it is told, and tells it."""
    assert (await peer.ingest(event("turn.started", session=session)))["accepted"] == 1
    assert (await peer.sessions())[session]["activity_state"] == "running"


def log_of(home: Path) -> str:
    path = home / ".local/state/bullpen/bullpen.log"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def put_program(directory: Path, name: str, script: str) -> str:
    """Make a program of a shell script; return a PATH with it in front."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (directory / name).chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


# -------------------------------------------------------------------------------------------- tmux


@pytest.mark.requirement("TMX-9", "PL-1", "TMX-10")
async def test_a_tmux_that_stands_still_is_named_and_what_was_seen_stands(
    home: Path, tmux: PrivateTmux
) -> None:
    pane_id = await tmux.new_pane("exec -a claude sleep 600")
    async with daemon(home) as running:
        await managed(running.peer, pane_id)
        tmux.hang()
        try:

            async def said() -> Any:
                found = await doctor(home)
                return "has not answered" in found["source poller"]["said"] and found

            found = await until(said, 20.0)
            assert found["source poller"]["level"] == "warn"
            async with asyncio.timeout(0.5):
                pane = (await running.peer.panes())[pane_id]
            assert pane["presence"] == "managed"
            await goes_on(running.peer)
        finally:
            tmux.go_on()

        async def well() -> Any:
            return (await running.peer.health())["poller"]["status"] == "healthy"

        await until(well, 20.0)
        assert (await running.peer.panes())[pane_id]["presence"] == "managed"


@pytest.mark.requirement("TMX-9", "TMX-10")
@pytest.mark.parametrize(
    "script",
    ["exec sleep 30", "echo rubbish; echo '%begin'; printf '\\377\\376%%end 1 2 3'; exec sleep 30"],
    ids=["hangs", "talks-rubbish"],
)
async def test_a_program_that_is_no_tmux_is_no_hindrance(
    script: str, home: Path, tmux: PrivateTmux
) -> None:
    path = put_program(home / "fake", "tmux", script)
    async with daemon(home, PATH=path) as running:

        async def said() -> Any:
            health = (await running.peer.health())["poller"]
            return health["status"] != "healthy" and "tmux" in health["reason"]

        await until(said, 20.0)
        await goes_on(running.peer)
        found = await doctor(home)
        assert found["source poller"]["level"] == "warn"
        assert tmux.target.socket_path in found["source poller"]["said"]


@pytest.mark.requirement("PL-1", "TG-8", "BND-8")
async def test_a_tmux_that_dies_and_comes_back_is_looked_at_again(tmux: PrivateTmux) -> None:
    pane_id = await tmux.new_pane("exec -a claude sleep 600")
    async with running_daemon() as (peer, _):
        before = await managed(peer, pane_id)
        await tmux.kill()

        async def gone() -> Any:
            return not await peer.panes()

        await until(gone)
        assert await peer.agents() == {}
        await goes_on(peer)
        await tmux.new_session("again")
        again = await tmux.new_pane("exec -a claude sleep 600")
        assert again == pane_id
        after = await managed(peer, again)
    assert after["pane_instance_id"] != before["pane_instance_id"]


@pytest.mark.requirement("TMX-4", "TR-49")
async def test_names_of_any_kind_are_told_as_they_are(tmux: PrivateTmux) -> None:
    name = "a\tb|c\nd 🐂 %s #{x}"
    pane_id = await tmux.new_pane("exec -a claude sleep 600")
    await tmux.run("rename-window", "-t", pane_id, name)
    await tmux.run("select-pane", "-t", pane_id, "-T", "one 🐂|#S")
    await tmux.run("rename-session", "-t", "main", "my |session 🐂")
    async with running_daemon() as (peer, _):
        pane = await managed(peer, pane_id)
        place = pane["place"]
        assert len(await peer.panes()) == len((await tmux.run("list-panes", "-a")).splitlines())
    assert place["session_name"] == "my |session 🐂"
    assert "🐂" in place["window_name"]
    assert "|c" in place["window_name"]
    assert "🐂|" in pane["title"]


async def test_without_tmux_it_says_so_and_hears_what_it_is_told(home: Path) -> None:
    nowhere = str(home / "tmux")  # a tmux of this machine is found without any PATH
    async with daemon(home, TMUX_BIN=nowhere) as running:
        await goes_on(running.peer)
        found = await doctor(home, nowhere)
    assert found["tmux"]["level"] == "bad"
    assert nowhere in found["tmux"]["said"]
    assert found["daemon"]["level"] == "ok"


@pytest.mark.requirement("TR-50")
@pytest.mark.parametrize("seconds", [0.0, -3600.0], ids=["in-time", "clock-set-back"])
async def test_a_second_server_is_found_when_it_appears(seconds: float, tmux: PrivateTmux) -> None:
    clock = Clock()
    async with running_daemon(clock=clock) as (peer, _):
        await until(peer.panes)
        clock.advance(seconds)
        path = Path(tmux.target.socket_path).parent / f"tmux-{os.getuid()}/another"
        path.parent.mkdir(mode=0o700)
        command = ("-S", str(path), "-f", "/dev/null")
        start = ("new-session", "-d", "exec -a codex sleep 600")
        process = await asyncio.create_subprocess_exec(tmux.executable, "-u", *command, *start)
        assert await process.wait() == 0
        try:

            async def seen() -> Any:
                agents = (await peer.agents()).values()
                return [each for each in agents if each["place"]["tmux_socket"] == str(path)]

            [agent] = await until(seen)
            assert agent["provider"] == "codex"
        finally:
            end = await asyncio.create_subprocess_exec(tmux.executable, *command, "kill-server")
            await end.wait()


# ------------------------------------------------------------------------------------ what is said


SHIM = (sys.executable, "-P", "-m", "bullpen.agents.hooks.shim")


def hook(name: str = "UserPromptSubmit", **more: Any) -> dict[str, Any]:
    return {"hook_event_name": name, "session_id": "s1", "cwd": "/", "prompt": "hi"} | more


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        [hook()],
        "text",
        7,
        {},
        {"hook_event_name": 7, "session_id": []},
        {"hook_event_name": "UserPromptSubmit"},
        {"hook_event_name": "NoSuchHook", "session_id": "s1"},
    ],
    ids=lambda each: json.dumps(each)[:40],
)
async def test_a_hook_that_makes_no_sense_spoils_nothing(payload: Any) -> None:
    async with running_daemon() as (peer, _):
        answer = await peer.exchange(
            {"id": 7, "method": "hook.report", "params": {"provider": "claude", "payload": payload}}
        )
        assert ("error" in answer) or answer["result"] is True
        if "error" in answer:
            assert answer["error"]["data"]["reason"] == "invalid_source_event"
        await peer.ask("hook.report", provider="claude", payload=hook())
        await until(lambda: started(peer, "claude:s1"))
        assert (await peer.health())["claude_hooks"]["status"] == "healthy"


async def started(peer: Peer, session: str) -> Any:
    found = (await peer.sessions()).get(session)
    return found and found["activity_state"] == "running"


async def test_a_hook_of_five_megabytes_is_heard_of(home: Path) -> None:
    async with running_daemon() as (peer, _):
        await peer.ask("hook.report", provider="claude", payload=hook(prompt="x" * 5_000_000))
        await until(lambda: started(peer, "claude:s1"))
        assert (await peer.health())["claude_hooks"]["status"] == "healthy"


async def test_what_is_nested_too_deeply_is_answered_and_the_next_is_heard() -> None:
    deep = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
    line = b'{"id":7,"method":"hook.report","params":{"provider":"claude","payload":%s}}' % deep
    async with running_daemon() as (peer, _):
        answer = await peer.exchange(line)
        assert answer["error"]["code"] in (-32700, -32602)
        nested: Any = "x"
        for _ in range(300):
            nested = [nested]
        await peer.ask("hook.report", provider="claude", payload=hook(deep=nested))
        await until(lambda: started(peer, "claude:s1"))


async def test_half_a_character_is_no_hindrance(home: Path, tmux: PrivateTmux) -> None:
    line = (
        rb'{"id":7,"method":"hook.report","params":{"provider":"claude","payload":'
        rb'{"hook_event_name":"UserPromptSubmit","session_id":"s1","cwd":"/","prompt":"\ud800x"}}}'
    )
    async with daemon(home) as running:
        answer = await running.peer.exchange(line)
        assert answer["id"] in (7, None)
        await running.peer.ask("hook.report", provider="claude", payload=hook(session_id="s2"))
        await until(lambda: started(running.peer, "claude:s2"))
        assert await running.end(signal.SIGTERM) == 0


# --------------------------------------------------------------------------------------- peers


async def test_a_thousand_may_ask_at_once() -> None:
    async with running_daemon() as (peer, _):
        asking = [
            asyncio.open_unix_connection(str(peer.path), limit=LINE_LIMIT) for _ in range(1000)
        ]
        ends = await asyncio.gather(*asking, return_exceptions=True)
        open_ends = [each for each in ends if not isinstance(each, BaseException)]
        assert len(open_ends) >= 900
        try:
            for _, writer in open_ends:
                writer.write(b'{"id":1,"method":"summary","params":{}}\n')
            async with asyncio.timeout(20):
                lines = await asyncio.gather(*(reader.readline() for reader, _ in open_ends))
            answers = [json.loads(line) for line in lines if line]
            assert len(answers) >= 900
            assert all("result" in each for each in answers)
        finally:
            for _, writer in open_ends:
                writer.close()

        async def answers_again() -> Any:
            with contextlib.suppress(OSError, ValueError):
                return await peer.ask("summary")

        await until(answers_again)


async def test_whoever_sends_half_a_line_and_hangs_is_nobodys_trouble() -> None:
    async with running_daemon() as (peer, _):
        ends = []
        for _ in range(20):
            end = socket.socket(socket.AF_UNIX)
            end.connect(str(peer.path))
            end.send(b'{"id":1,"method":"summ')
            ends.append(end)
        await goes_on(peer)
        for end in ends:
            end.close()
        await goes_on(peer, "claude:later")


async def test_whoever_never_reads_is_cut_off_and_the_others_hear_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 1500
    monkeypatch.setattr("bullpen.daemon.door.MAX_UNSENT_BYTES", 4 * 2**20)
    async with running_daemon() as (peer, _):
        deaf = socket.socket(socket.AF_UNIX)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(str(peer.path))
        deaf.send(b'{"id":1,"method":"subscribe","params":{}}\n')
        version = (await peer.ask("summary"))["version"]
        async with peer.follow(since_version=version) as told:
            for start in range(0, count, 250):
                events = [
                    event("turn.started", session=f"claude:{number}:{'x' * 900}")
                    for number in range(start, start + 250)
                ]
                await peer.ingest(*events)
            last = (await peer.ask("summary"))["version"]
            assert last - version >= count

            async def heard() -> Any:
                changes = [each for each in told if each.get("method") == "state_changed"]
                return changes and changes[-1]["params"]["change"]["version"] == last and changes

            changes = await until(heard, 30.0)
            versions = [each["params"]["change"]["version"] for each in changes]
            assert versions == list(range(version + 1, last + 1))
        deaf.setblocking(False)

        async def cut_off() -> Any:
            try:
                return not deaf.recv(2**20)
            except BlockingIOError:
                return False
            except OSError:
                return True

        await until(cut_off, 20.0)
        deaf.close()
        await goes_on(peer)


async def test_garbage_is_answered_and_is_nobody_elses_trouble() -> None:
    async with running_daemon() as (peer, _):
        reader, writer = await asyncio.open_unix_connection(str(peer.path), limit=LINE_LIMIT)
        heard = asyncio.create_task(reader.read(-1))
        for number in range(10):
            with contextlib.suppress(ConnectionError):  # it may well hang up
                writer.write(bytes((each * 7 + number) % 256 for each in range(10_000)) + b"\n")
                await writer.drain()
            await goes_on(peer, f"claude:{number}")
        writer.close()
        await asyncio.wait([heard], timeout=5.0)
        heard.cancel()
        await asyncio.wait([heard])
        await goes_on(peer)


async def test_a_subscriber_that_is_killed_is_forgotten(home: Path) -> None:
    async with running_daemon() as (peer, daemon_):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bullpen",
            "watch",
            "--json",
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        await peer.ingest(event("turn.started", session="claude:x"))

        async def subscribed() -> Any:
            return len(daemon_.service.subscribers)

        await until(subscribed, 20.0)
        process.kill()
        await process.communicate()
        await goes_on(peer)

        async def forgotten() -> Any:
            return not len(daemon_.service.subscribers)

        await until(forgotten)


async def test_a_long_answer_is_given_whole() -> None:
    async with running_daemon() as (peer, _):
        for _ in range(12):
            await peer.ingest(event("turn.started", payload={"text": "x" * 900_000}))
        reply = await peer.ask("gateway.pull_events", consumer="somebody", limit=500)
        assert len(reply["events"]) >= 12


# --------------------------------------------------------------------------------- files and disks


async def test_records_with_broken_lines_are_read_as_far_as_they_go(home: Path) -> None:
    directory = home / ".claude/projects/-p"
    directory.mkdir(parents=True)
    transcript = directory / "11111111-1111-4111-8111-111111111111.jsonl"

    def line(number: int, **more: Any) -> bytes:
        record = {
            "type": "user",
            "uuid": f"u{number}",
            "sessionId": transcript.stem,
            "cwd": "/p",
            "timestamp": now_text(),
            "message": {"role": "user", "content": "hello"},
        } | more
        return json.dumps(record).encode() + b"\n"

    transcript.write_bytes(
        b"\x00\xff no json\n"
        b'{"type": "user", "message": "\\ud800", "uuid": "x", "timestamp": 7}\n'
        + b"[" * 20_000
        + b"\n"
        + line(0, message={"role": "user", "content": "y" * 5_000_000})
        + line(3)
        + b'{"type":"assis'
    )
    async with running_daemon(settings(sources={"claude_transcript": True})) as (peer, _):
        await until(lambda: started(peer, f"claude:{transcript.stem}"))
        await until(lambda: is_well(peer, "claude_transcript"))
        # The rest of the torn line, then another file in its place.
        with transcript.open("ab") as file:
            file.write(b'tant"}\n')
        transcript.unlink()
        answer = {"role": "assistant", "content": [], "stop_reason": "end_turn"}
        transcript.write_bytes(line(1) + line(2, type="assistant", message=answer))

        async def ended() -> Any:
            found = (await peer.sessions())[f"claude:{transcript.stem}"]
            return found["activity_state"] == "idle"

        await until(ended)
        await until(lambda: is_well(peer, "claude_transcript"))


def now_text() -> str:
    return Clock()().isoformat().replace("+00:00", "Z")


async def is_well(peer: Peer, kind: str) -> bool:
    return bool((await peer.health())[kind]["status"] == "healthy")


async def test_a_torn_sessions_file_hides_no_other(home: Path) -> None:
    directory = home / ".claude/sessions"
    directory.mkdir(parents=True)
    own = os.getpid()
    (directory / "1.json").write_bytes(b'{"pid": 1, "sess')
    (directory / "2.json").write_bytes(b"[1, 2, 3]")
    (directory / "3.json").write_bytes(b"\xff" * 100_000)
    (directory / "x.json").mkdir()
    whole = {"pid": own, "sessionId": "whole", "cwd": "/", "status": "busy", "startedAt": 1}
    (directory / f"{own}.json").write_text(json.dumps(whole))
    async with running_daemon(settings(sources={"claude_sessions": True})) as (peer, _):
        await until(lambda: started(peer, "claude:whole"))
        assert set(await peer.sessions()) == {"claude:whole"}


async def test_a_rollout_with_a_broken_line_is_read_on(home: Path) -> None:
    thread = "019a0000-0000-7000-8000-000000000001"
    directory = home / ".codex/sessions/2026/01/01"
    directory.mkdir(parents=True)
    rollout = directory / f"rollout-2026-01-01T00-00-00-{thread}.jsonl"

    def line(kind: str, **payload: Any) -> bytes:
        return json.dumps({"timestamp": now_text(), "type": kind, "payload": payload}).encode()

    async with running_daemon(settings(sources={"codex_rollout": True})) as (peer, _):
        await until(lambda: is_well(peer, "codex_rollout"))
        rollout.write_bytes(
            line("session_meta", id=thread, cwd="/p", timestamp=now_text())
            + b"\n{broken\n\n\x80\xff\n"
            + line("event_msg", type="task_started", turn_id="t")
            + b"\n"
        )
        await until(lambda: started(peer, f"codex:{thread}"))


async def test_rubbish_in_the_spool_hides_no_hook(home: Path) -> None:
    async with running_daemon() as (peer, _):
        spool = Paths.resolve().spool
        (spool / "rubbish").write_bytes(b"\xff\xfe")
        (spool / "empty.json").touch()
        (spool / "list.json").write_text("[]")
        (spool / "a directory.json").mkdir()
        (spool / "link.json").symlink_to("/etc/passwd")
        await goes_on(peer)
        await until(lambda: is_well(peer, "claude_hooks"))
    # Nobody is there: the shim leaves it in the spool, among all that.
    await run_shim(json.dumps(hook()).encode())
    async with running_daemon() as (peer, _):
        await until(lambda: started(peer, "claude:s1"))


async def run_shim(payload: bytes) -> int:
    process = await asyncio.create_subprocess_exec(
        *SHIM, "claude", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    await process.communicate(payload)
    assert process.returncode is not None
    return process.returncode


@pytest.mark.requirement("TR-47")
@pytest.mark.parametrize(
    "payload",
    [b"", b"not json", b"[1]", b"\xff\xfe", b"[" * 100_000, json.dumps(hook()).encode()],
    ids=["nothing", "words", "list", "bytes", "nested", "whole"],
)
async def test_the_shim_never_fails_whatever_it_is_given(payload: bytes, home: Path) -> None:
    assert await run_shim(payload) == 0  # and nobody is there
    async with running_daemon() as (peer, _):
        assert await run_shim(payload) == 0
        assert await run_shim(json.dumps(hook(session_id="s2")).encode()) == 0
        await until(lambda: started(peer, "claude:s2"))


@pytest.mark.requirement("TR-47")
async def test_the_shim_takes_five_megabytes(home: Path) -> None:
    payload = json.dumps(hook(prompt="x" * 5_000_000)).encode()
    async with running_daemon() as (peer, _):
        assert await run_shim(payload) == 0
        await until(lambda: started(peer, "claude:s1"))
    assert await run_shim(payload.replace(b"s1", b"s2")) == 0
    async with running_daemon() as (peer, _):
        await until(lambda: started(peer, "claude:s2"))


def state_of(home: Path) -> Path:
    state = home / ".local/state/bullpen"
    state.mkdir(parents=True, exist_ok=True)
    for directory in (state, *state.parents[:2]):
        directory.chmod(0o700)
    return state


async def test_a_database_that_cannot_be_written_is_named(home: Path, tmux: PrivateTmux) -> None:
    (state_of(home) / "state.db").mkdir()
    async with daemon(home) as running:
        await goes_on(running.peer)
        found = await doctor(home)
        assert found["store"]["level"] == "bad"
        assert "cannot be used" in found["store"]["said"]
        assert "state.db" in found["alerts"]["said"]


async def test_a_database_of_a_newer_version_is_left_alone(home: Path, tmux: PrivateTmux) -> None:
    path = state_of(home) / "state.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (x)")
        database.execute("PRAGMA user_version = 9999")
        database.commit()
    before = path.read_bytes()
    code, said = await output(home, "daemon")
    assert code == 1
    assert "state.db: has schema version 9999; this bullpen knows up to" in said
    assert path.read_bytes() == before


async def test_while_another_has_locked_the_database_nothing_is_lost(
    home: Path, tmux: PrivateTmux
) -> None:
    async with daemon(home) as running:
        await running.peer.ingest(event(session="claude:first"))
        path = state_of(home) / "state.db"

        async def stored() -> Any:
            return await asyncio.to_thread(sessions_in, path)

        await until(stored)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await goes_on(running.peer, "claude:locked")

            async def said() -> Any:
                return "locked" in (await doctor(home))["alerts"]["said"]

            await until(said, 30.0)
            await goes_on(running.peer, "claude:still")
            other.execute("ROLLBACK")

        async def all_stored() -> Any:
            wanted = {"claude:first", "claude:locked", "claude:still"}
            return wanted <= await asyncio.to_thread(sessions_in, path)

        await until(all_stored, 20.0)
        codes = {each["code"] for each in await running.peer.ask("list_alerts")}
        assert "store_unavailable" not in codes


def sessions_in(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return {each for (each,) in database.execute("SELECT session_key FROM session_state_v2")}


async def test_a_log_that_cannot_be_written_is_named_and_cleared(
    home: Path, tmux: PrivateTmux
) -> None:
    log = state_of(home) / "bullpen.log"
    log.mkdir()
    async with daemon(home) as running:
        await goes_on(running.peer)

        async def said() -> Any:
            found = await doctor(home)
            return "bullpen.log" in found["alerts"]["said"] and found

        found = await until(said, 20.0)
        assert (found["log"]["level"], found["log"]["fix"]) == ("warn", f"ls -ld {log}")
        log.rmdir()
        # Whatever is logged next.
        await running.peer.exchange(b"{")
        tmux.hang()
        try:

            async def well() -> Any:
                return not await running.peer.ask("list_alerts")

            await until(well, 20.0)
        finally:
            tmux.go_on()
    assert log.is_file()


async def test_without_a_log_a_daemon_is_started_all_the_same(home: Path) -> None:
    (state_of(home) / "bullpen.log").mkdir()
    code, said = await output(home, "up")
    try:
        assert code == 0, said
        await goes_on(Peer(home / "run/bullpen/bullpend.sock"))
    finally:
        assert (await output(home, "down"))[0] == 0


async def test_settings_that_cannot_be_read_are_named_with_their_place(home: Path) -> None:
    config = home / ".config/bullpen"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[observe]\npoll_interval_ms = \n")
    code, said = await output(home, "daemon")
    assert code == 1
    assert "config.toml" in said
    assert "line 2" in said
    found = await doctor(home)
    assert found["settings"]["level"] == "bad"
    assert "line 2" in found["settings"]["said"]


async def test_broken_rules_of_the_user_are_named_and_ours_are_used(
    home: Path, tmux: PrivateTmux
) -> None:
    rules = home / ".config/bullpen/rules"
    rules.mkdir(parents=True)
    (rules / "claude.toml").write_text("schema = 1\nprovider = \n")
    pane_id = await tmux.new_pane("exec -a claude sleep 600")
    async with daemon(home) as running:
        await managed(running.peer, pane_id)
        found = await doctor(home)
        assert found["source poller"]["level"] == "warn"
        assert "rules/claude.toml: is no TOML" in found["source poller"]["said"]
        assert "line 2" in found["source poller"]["said"]


async def test_a_socket_that_was_removed_is_made_anew_and_nobody_is_cut_off(
    home: Path, tmux: PrivateTmux
) -> None:
    async with daemon(home) as running:
        async with running.peer.follow() as told:
            running.peer.path.unlink()
            # A command that comes in between waits for it, and starts no other.
            code, said = await output(home, "status")
            assert (code, "Monitoring: on" in said) == (0, True)
            await goes_on(running.peer)

            async def heard() -> Any:
                return [each for each in told if "claude:after" in json.dumps(each)]

            await until(heard)
        assert running.process.returncode is None
        assert await running.end(signal.SIGTERM) == 0
    assert not running.peer.path.exists()
    assert "was removed" in log_of(home)


@pytest.mark.requirement("UDS-2", "UDS-3")
async def test_the_whole_directory_of_the_socket_is_made_anew(home: Path) -> None:
    import shutil

    from bullpen.api.runtime import prepare

    paths = Paths.resolve()
    await asyncio.to_thread(prepare, paths)
    told: list[object] = []
    async with open_door(paths, Connection.builder(), told.append, look_seconds=0.02):
        for _ in range(3):
            await asyncio.to_thread(shutil.rmtree, paths.socket.parent)

            async def there() -> Any:
                return paths.socket.exists()

            await until(there)
        # And what somebody else has put there is told of, as long as it is there.
        paths.socket.unlink()
        paths.socket.mkdir()

        async def said() -> Any:
            return told[-1]

        await until(said)
        assert "not a socket" in str(told[-1])
        paths.socket.rmdir()

        async def over() -> Any:
            return told[-1] is None

        await until(over)
    assert not paths.socket.exists()
    assert paths.socket.parent.stat().st_mode & 0o777 == 0o700


# --------------------------------------------------------------------------------------- the clock


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0], ids=["back", "ahead"])
async def test_a_clock_that_is_set_costs_nothing(seconds: float, tmux: PrivateTmux) -> None:
    pane_id = await tmux.new_pane("exec -a claude sleep 600")
    clock = Clock()
    async with running_daemon(clock=clock) as (peer, _):
        pane = await managed(peer, pane_id)
        await peer.ingest(event("turn.started", pane=pane, at=clock()))
        clock.advance(seconds)
        again = await tmux.new_pane("exec -a codex sleep 600")
        await managed(peer, again)
        assert (await peer.panes())[pane_id]["presence"] == "managed"
        # One that is pulled from was not heard of for an hour until it is.
        await until(lambda: is_active(peer, "claude_hooks"))
        accepted = await peer.ingest(event("turn.completed", pane=pane, at=clock()))
        assert accepted["accepted"] == 1
        assert (await peer.panes())[pane_id]["activity_state"] == "idle"
        # Nor is overlooked what becomes of a pane.
        await tmux.run("kill-pane", "-t", pane_id)

        async def gone() -> Any:
            return pane_id not in await peer.panes()

        await until(gone)
        await tmux.run("respawn-pane", "-k", "-t", again, "sleep 600")

        async def no_agent() -> Any:
            return (await peer.panes())[again]["presence"] == "unmanaged"

        await until(no_agent)
        await goes_on_at(peer, clock)
        assert (await peer.health())["poller"]["status"] == "healthy"


async def is_active(peer: Peer, kind: str) -> bool:
    registered = await peer.ask("list_source_registry")
    return any(each["source_kind"] == kind and each["state"] == "active" for each in registered)


async def goes_on_at(peer: Peer, clock: Clock) -> None:
    said = event("turn.started", session="claude:now", at=clock())
    assert (await peer.ingest(said))["accepted"] == 1
    assert (await peer.sessions())["claude:now"]["activity_state"] == "running"


# ----------------------------------------------------------------------------------------- alarms


@pytest.mark.requirement("A6-1", "A6-4")
async def test_a_source_that_is_down_for_a_minute_is_an_alert_until_it_is_not() -> None:
    from bullpen.model.sources import SourceHealth
    from bullpen.model.states import EvidenceTier, HealthStatus, SourceKind

    clock = Clock()
    limits = {EvidenceTier.DETERMINISTIC: 2.0, EvidenceTier.HEURISTIC: 5.0}
    alarms = Alarms(AlertLedger(lambda: "a"), Latencies(limits), clock)

    def judge(status: HealthStatus, **more: Any) -> list[str]:
        health = SourceHealth(status=status, checked_at=clock(), reason="no eyes", **more)
        alarms.judge_sources([(SourceKind.POLLER, health)])
        return [each.message for each in alarms.open]

    assert judge(HealthStatus.DOWN) == []
    clock.advance(59)
    assert judge(HealthStatus.DOWN) == []
    clock.advance(2)
    assert judge(HealthStatus.DOWN) == ["poller is down: no eyes"]
    assert judge(HealthStatus.DEGRADED) == []
    clock.advance(3600)
    assert judge(HealthStatus.DOWN) == []
    clock.advance(-7200)
    assert judge(HealthStatus.DOWN) == []
    clock.advance(61)
    assert judge(HealthStatus.DOWN) == ["poller is down: no eyes"]
    assert judge(HealthStatus.DOWN, is_absent=True) == []


@pytest.mark.requirement("A6-4")
async def test_what_was_noticed_once_is_over_a_minute_later_and_with_a_restart() -> None:
    from bullpen.model.reasons import Reason
    from bullpen.model.states import EvidenceTier, SourceKind

    clock = Clock()
    limits = {EvidenceTier.DETERMINISTIC: 2.0, EvidenceTier.HEURISTIC: 5.0}
    ledger = AlertLedger(lambda: "a")
    alarms = Alarms(ledger, Latencies(limits), clock)
    alarms.trouble(Reason.ACK_TIMEOUT, "late", SourceKind.POLLER)
    clock.advance(59)
    alarms.clear_past()
    assert [each.code for each in alarms.open] == ["ack_timeout"]
    clock.advance(2)
    alarms.clear_past()
    assert alarms.open == ()
    alarms.trouble(Reason.ACK_TIMEOUT, "late", SourceKind.POLLER)
    again = Alarms(ledger, Latencies(limits), clock)
    again.begin_anew()
    assert again.open == ()
