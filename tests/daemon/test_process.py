"""The daemon as a process: how it begins, how it ends, and what it survives."""

import asyncio
import json
import os
import signal
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.testing.tmux import PrivateTmux
from tests.daemon.harness import SECONDS, Peer, event, until

pytestmark = [pytest.mark.tmux, pytest.mark.xdist_group("daemon-processes")]

QUIET = {
    "BULLPEN_SOURCES_CODEX_APPSERVER": "off",
    "BULLPEN_SOURCES_COPILOT": "false",
    "BULLPEN_SOURCES_GEMINI": "false",
    "BULLPEN_SOURCES_OPENCODE": "false",
    "BULLPEN_OBSERVE_POLL_INTERVAL_MS": "200",
    "BULLPEN_OBSERVE_TMUX_ONLY": "true",  # not the agents of others on this machine
}


@pytest.fixture
async def tmux(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PrivateTmux]:
    async with PrivateTmux(width=120, height=40) as server:
        monkeypatch.setenv("BULLPEN_TMUX_SOCKET_PATH", server.target.socket_path)
        monkeypatch.setenv("TMUX_TMPDIR", str(Path(server.target.socket_path).parent))
        yield server


class Process:
    """A daemon of its own."""

    def __init__(self, process: asyncio.subprocess.Process, peer: Peer) -> None:
        self.process = process
        self.peer = peer

    async def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        async with asyncio.timeout(SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def daemon(home: Path, *arguments: str, **variables: str) -> AsyncIterator[Process]:
    """Start `bullpen daemon`, wait until it answers, and end it in any case."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bullpen",
        "daemon",
        *arguments,
        env={**os.environ, **QUIET, **variables},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    peer = Peer(home / "run/bullpen/bullpend.sock")
    try:

        async def answers() -> Any:
            if process.returncode is not None:
                assert process.stderr is not None
                raise AssertionError((await process.stderr.read()).decode())
            try:
                return await peer.ask("daemon.info")
            except (OSError, ValueError):
                return None

        await until(answers, 20.0)
        yield Process(process, peer)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def output(
    home: Path, *arguments: str, seconds: float = 20.0, **variables: str
) -> tuple[int | None, str]:
    """Run a command that is to end by itself; return its exit code and what it complained of."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bullpen",
        *arguments,
        env={**os.environ, **QUIET, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(seconds):
        said, _ = await process.communicate()
    return process.returncode, said.decode()


@pytest.mark.requirement("SIGN-1", "SIGN-2", "UDS-5", "CLI-2", "RT-1")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["sigint", "sigterm"])
async def test_a_signal_ends_it_in_order(
    number: signal.Signals, home: Path, tmux: PrivateTmux
) -> None:
    async with daemon(home) as running:
        assert await running.end(number) == 0
    assert not running.peer.path.exists()
    log = (home / ".local/state/bullpen/bullpen.log").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    # Servers beside it may just be beginning, and say so.
    own = [each["event"] for each in lines if each["logger"] == "bullpen.daemon"]
    assert own[-2:] == [f"stopping: {number.name}", "stopped"]
    assert lines[-1]["event"] == "stopped"
    assert stat.S_IMODE((home / ".local/state/bullpen/bullpen.log").stat().st_mode) == 0o600


@pytest.mark.requirement("UDS-4")
async def test_a_second_daemon_is_refused_and_the_first_goes_on(
    home: Path, tmux: PrivateTmux
) -> None:
    async with daemon(home) as running:
        code, said = await output(home, "daemon")
        assert code == 3
        assert f"already running (pid {running.process.pid})" in said
        assert await running.peer.ask("list_panes") is not None


@pytest.mark.requirement("UDS-4")
async def test_what_a_killed_daemon_left_is_no_hindrance(home: Path, tmux: PrivateTmux) -> None:
    async with daemon(home) as running:
        await running.peer.ingest(event())
        await until(lambda: kept(home, "events_raw_v2"))
        await running.end(signal.SIGKILL)
    assert running.peer.path.exists()
    async with daemon(home) as running:
        assert (await running.peer.ingest(event()))["accepted"] == 1


async def kept(home: Path, table: str) -> int:
    def read() -> int:
        path = home / ".local/state/bullpen/state.db"
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            [count] = database.execute(f"SELECT count(*) FROM {table}").fetchone()
        database.close()
        return int(count)

    return await asyncio.to_thread(read)


@pytest.mark.requirement(
    "DB-1", "DB-2", "DB-3", "DB-4", "DB-5", "DB-6", "DM-17", "A1-1", "A2-1", "A6-3", "A7-3", "PER-2"
)
async def test_what_it_knows_is_in_the_database(home: Path, tmux: PrivateTmux) -> None:
    pane_id = await tmux.new_pane("exec -a claude sleep 600")
    async with daemon(home) as running:
        pane = await until(lambda: managed(running.peer, pane_id))
        await running.peer.ingest(event("tool.started", pane=pane))
        again = event("tool.started", pane=pane)
        await running.peer.ingest(again)
        await running.peer.ingest(again)
        assert await running.end(signal.SIGTERM) == 0
    counts = {}
    for table in (
        "events_raw_v2",
        "session_state_v2",
        "pane_state_v2",
        "binding_link_v2",
        "source_health_v2",
        "state_snapshot_v2",
    ):
        counts[table] = await kept(home, table)
    assert all(counts.values()), counts
    for table in ("cursor_state_v2", "alert_ledger_v1"):
        assert await kept(home, table) >= 0


async def managed(peer: Peer, pane_id: str) -> Any:
    pane = (await peer.panes()).get(pane_id)
    return pane if pane and pane["presence"] == "managed" else None


@pytest.mark.requirement("LOG-1")
async def test_the_level_of_the_log_is_a_variable(home: Path, tmux: PrivateTmux) -> None:
    async with daemon(home, BULLPEN_LOG="error") as running:
        await running.end(signal.SIGTERM)
    log = home / ".local/state/bullpen/bullpen.log"
    assert not log.exists() or log.read_text() == ""
    async with daemon(home, RUST_LOG="debug") as running:
        await running.peer.ingest(event(session="claude:a"))
        old = {"observed_at": "2020-01-01T00:00:00Z"}
        late = [event(session="claude:a") | old for _ in range(2)]  # the first is told to everybody
        await running.peer.exchange(
            {
                "id": 1,
                "method": "source.ingest",
                "params": {"source_kind": "claude_hooks", "events": late},
            }
        )
        await running.end(signal.SIGTERM)
    assert '"debug"' in log.read_text()


# ------------------------------------------------------------------------------ what is in the way


async def test_a_damaged_database_is_put_aside_and_said(home: Path, tmux: PrivateTmux) -> None:
    state = home / ".local/state/bullpen"
    state.mkdir(parents=True, mode=0o700)
    (state / "state.db").write_bytes(b"this is no database" * 1000)
    async with daemon(home) as running:
        [alert] = await running.peer.ask("list_alerts")
        assert alert["code"] == "store_unavailable"
        assert "corrupt" in alert["message"]
        assert (await running.peer.ingest(event()))["accepted"] == 1
        _, said = await output(home, "doctor")
        assert "corrupt" in said
    assert list(state.glob("state.db.corrupt-*"))


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files by prlimit")
@pytest.mark.requirement("IF-G4")
async def test_while_the_disk_is_full_it_goes_on_and_nothing_is_lost(
    home: Path, tmux: PrivateTmux
) -> None:
    import resource

    async with daemon(home) as running:
        pid = running.process.pid
        before = await until(lambda: kept(home, "source_health_v2"))
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
        sessions = [f"claude:full-{number}" for number in range(20)]
        for session in sessions:
            await running.peer.ingest(event("turn.started", session=session))

        async def said() -> Any:
            alerts = await running.peer.ask("list_alerts")
            return [each for each in alerts if each["code"] == "store_unavailable"]

        await until(said)
        assert set(sessions) <= (await running.peer.sessions()).keys()
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)

        async def stored() -> Any:
            return not await said() and await kept(home, "events_raw_v2") >= len(sessions)

        await until(stored, 20.0)
    assert before


async def test_a_wrong_setting_is_named_and_nothing_is_started(home: Path) -> None:
    config = home / ".config/bullpen"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[observe]\npoll_intervall_ms = 5\n")
    code, said = await output(home, "daemon")
    assert code == 1
    assert "poll_intervall_ms" in said
    assert "poll_interval_ms" in said


# --------------------------------------------------------------------------------------- isolated


@pytest.mark.requirement(
    "Q1", "Q2", "RT-4", "A4-1", "IF-S1", "IF-S2", "IF-S3", "IF-S4", "IF-S5", "IF-S6"
)
async def test_each_source_can_have_a_process_and_a_socket_of_its_own(
    home: Path, tmux: PrivateTmux
) -> None:
    pane_id = await tmux.new_pane("exec -a claude sleep 600")
    async with daemon(home, "--isolate-sources") as running:
        assert (await running.peer.ask("daemon.info"))["is_isolated"] is True
        await until(lambda: managed(running.peer, pane_id))
        sockets = sorted((home / "run/bullpen").rglob("*.sock"))
        kinds = {path.stem for path in sockets}
        assert {"poller", "claude_hooks", "codex_rollout", "codex_capture"} <= kinds
        poller = Peer(next(path for path in sockets if path.stem == "poller"))
        one = await poller.ask("source.pull_events", cursor=None, limit=1)
        assert len(one["events"]) <= 1
        assert one["source_health"]["status"] == "healthy"
        assert {"events", "next_cursor", "heartbeat_ts", "source_health"} <= one.keys()
        hook = {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": "hi"}
        socket = f"{tmux.target.socket_path},1,0"
        await running.peer.ask(
            "hook.report", provider="claude", payload=hook, tmux=socket, tmux_pane=pane_id
        )

        async def heard() -> Any:
            return (await running.peer.panes())[pane_id]["session_key"] == "claude:s1"

        await until(heard)
        assert await running.end(signal.SIGTERM) == 0


@pytest.mark.requirement("A4-2", "TG-9", "RES-11")
async def test_a_source_that_is_killed_comes_back_and_others_go_on(
    home: Path, tmux: PrivateTmux
) -> None:
    pane_id = await tmux.new_pane("exec -a claude sleep 600")
    async with daemon(home, "--isolate-sources") as running:
        name = (await until(lambda: managed(running.peer, pane_id)))["agent"]

        async def started() -> Any:
            return await children(running.process.pid, "poller")

        [pid] = await until(started)
        os.kill(pid, signal.SIGKILL)

        async def fell() -> Any:
            return (await running.peer.health())["poller"]["status"] != "healthy"

        await until(fell)
        assert (await running.peer.health())["claude_hooks"]["status"] == "healthy"
        assert (await running.peer.panes())[pane_id]["presence"] == "managed"

        async def rose() -> Any:
            return (await running.peer.health())["poller"]["status"] == "healthy"

        await until(rose, 20.0)
        assert (await managed(running.peer, pane_id))["agent"] == name


async def children(parent: int, kind: str) -> list[int]:
    process = await asyncio.create_subprocess_exec(
        *("ps", "-axww", "-o", "pid=,ppid=,args="),  # ww: however wide a terminal is said to be
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    rows = [line.split(None, 2) for line in said.decode().splitlines()]
    return [
        int(pid)
        for pid, ppid, arguments in rows
        if int(ppid) == parent and f" source {kind}" in arguments
    ]
