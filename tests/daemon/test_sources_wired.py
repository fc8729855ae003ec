"""Sources that are not ours, or not well: what the daemon asks them, and what becomes of it."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bullpen.testing.tmux import PrivateTmux
from tests.daemon.harness import Clock, Peer, event, running_daemon, settings, until
from tests.daemon.test_process import children, daemon, output

pytestmark = [pytest.mark.tmux, pytest.mark.xdist_group("daemon-processes")]

KIND = "gemini"


@pytest.fixture
async def tmux(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PrivateTmux]:
    async with PrivateTmux(width=120, height=40) as server:
        monkeypatch.setenv("BULLPEN_TMUX_SOCKET_PATH", server.target.socket_path)
        monkeypatch.setenv("TMUX_TMPDIR", str(Path(server.target.socket_path).parent))
        yield server


def said(event_type: str = "turn.started", **more: Any) -> dict[str, Any]:
    return event(event_type, kind=KIND, provider="gemini", session="gemini:one") | more


class Foreign:
    """A source that somebody else wrote, with nothing but the seed at hand."""

    def __init__(self, path: Path, epoch: str = "e") -> None:
        self.path = path
        self.epoch = epoch
        self.events: list[dict[str, Any]] = []
        self.pulls: list[dict[str, Any]] = []
        self.refusals = 0  # how many cursors it will not know
        self.health = "healthy"
        self.clock = Clock()
        self._writers: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Foreign"]:
        server = await asyncio.start_unix_server(self._serve, self.path)
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.close()
            await server.wait_closed()
            self.path.unlink(missing_ok=True)

    async def pulled(self, times: int = 1) -> None:
        """Wait until it was asked so many times more."""
        wanted = len(self.pulls) + times

        async def enough() -> Any:
            return len(self.pulls) >= wanted

        await until(enough)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while line := await reader.readline():
            request = json.loads(line)
            writer.write(json.dumps(self._answer(request)).encode() + b"\n")

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        assert request["method"] == "source.pull_events"
        params = request["params"]
        self.pulls.append(params)
        cursor = params["cursor"]
        epoch, _, place = (cursor or f"{self.epoch}:0").partition(":")
        if cursor is not None and (self.refusals or epoch != self.epoch):
            self.refusals = max(self.refusals - 1, 0)
            error = {
                "code": -32020,
                "message": "no such cursor",
                "data": {"reason": "invalid_cursor"},
            }
            return {"jsonrpc": "2.0", "id": request["id"], "error": error}
        events = self.events[int(place) : int(place) + params["limit"]]
        now = self.clock().isoformat()
        result = {
            "events": events,
            "next_cursor": f"{self.epoch}:{int(place) + len(events)}",
            "heartbeat_ts": now,
            "source_health": {"status": self.health, "checked_at": now},
        }
        return {"jsonrpc": "2.0", "id": request["id"], "result": result}


async def state(peer: Peer, kind: str = KIND) -> str | None:
    for each in await peer.ask("list_source_registry"):
        if each["source_kind"] == kind:
            return str(each["state"])
    return None


async def becomes(peer: Peer, wanted: str) -> None:
    async def look() -> Any:
        return await state(peer) == wanted

    await until(look)


async def activity(peer: Peer, wanted: str) -> None:
    async def look() -> Any:
        found = (await peer.sessions()).get("gemini:one")
        return found and found["activity_state"] == wanted

    await until(look)


# ------------------------------------------------------------------------------- pulling from one


@pytest.mark.requirement("IF-S1", "IF-S2", "IF-S3", "IF-S4", "IF-S5", "IF-S6", "A3-2", "A3-5")
async def test_a_foreign_source_is_pulled_from_and_followed_when_it_moves(home: Path) -> None:
    async with running_daemon() as (peer, _):
        one, other = Foreign(home / "one.sock"), Foreign(home / "other.sock")
        async with one.serving():
            one.events.append(said("turn.started"))
            reply = await peer.hello(KIND, socket_path=str(one.path))
            assert reply["registration"]["state"] == "pending"
            await becomes(peer, "active")
            await activity(peer, "running")
            first = one.pulls[0]
            assert first["cursor"] is None
            assert first["limit"] == 500
            await one.pulled()
            assert one.pulls[-1]["cursor"] == "e:1"
            one.health = "degraded"

            async def degraded() -> Any:
                return (await peer.health())[KIND]["status"] == "degraded"

            await until(degraded)
            async with other.serving():
                other.events = [*one.events, said("turn.completed")]
                reply = await peer.hello(KIND, socket_path=str(other.path))
                assert reply["registration"]["state"] == "active"
                await activity(peer, "idle")
                before = len(one.pulls)
                await other.pulled(3)
                assert len(one.pulls) <= before + 1
                assert (await peer.health())[KIND]["accepted"] == 2


@pytest.mark.requirement("A3-3", "A3-5", "IF-S6")
async def test_a_source_that_is_not_heard_of_is_stale_until_it_comes_back(home: Path) -> None:
    clock = Clock()
    async with running_daemon(clock=clock) as (peer, _):
        source = Foreign(home / "one.sock")
        source.clock = clock
        async with source.serving():
            await peer.hello(KIND, socket_path=str(source.path))
            await becomes(peer, "active")
        clock.advance(29)
        assert await state(peer) == "active"
        clock.advance(2)
        await becomes(peer, "stale")
        assert (await peer.health())[KIND]["status"] != "healthy"
        again = Foreign(home / "again.sock", "f")
        again.clock = clock
        async with again.serving():
            again.events.append(said("turn.started"))
            reply = await peer.hello(KIND, socket_path=str(again.path))
            assert reply["registration"]["state"] == "active"
            await activity(peer, "running")


@pytest.mark.requirement("A2-3", "A8-1")
@pytest.mark.parametrize(("pause", "is_resync"), [(27.0, True), (30.6, False)])
async def test_three_unknown_cursors_within_a_minute_are_a_warning(
    pause: float, is_resync: bool, home: Path
) -> None:
    clock = Clock()
    async with running_daemon(clock=clock) as (peer, _):
        source = Foreign(home / "one.sock")
        source.clock = clock
        source.events = [said("turn.started"), said("turn.completed")]
        async with source.serving():
            await peer.hello(KIND, socket_path=str(source.path))
            await activity(peer, "idle")
            for number in range(3):
                if number:
                    clock.advance(pause)
                    await peer.hello(KIND, socket_path=str(source.path))  # else it were stale
                await source.pulled(2)
                source.refusals = 1

                async def refused() -> Any:
                    return not source.refusals

                await until(refused)
                await source.pulled(2)
            # It was read from its start, and nothing was taken twice.
            assert sum(each["cursor"] is None for each in source.pulls) >= 3
            assert (await peer.health())[KIND]["accepted"] == 2
            alerts = [each["code"] for each in await peer.ask("list_alerts")]
            assert ("invalid_cursor" in alerts) is is_resync


@pytest.mark.requirement("TR-51", "TR-52", "TR-53", "CUR-1", "CUR-2")
async def test_nothing_is_taken_twice_or_skipped_whatever_a_source_does(home: Path) -> None:
    at = datetime.now(UTC)
    async with running_daemon() as (peer, _):
        source = Foreign(home / "one.sock")
        async with source.serving():
            source.events = [said("turn.started", event_id=f"a{each}") for each in range(3)]
            await peer.hello(KIND, socket_path=str(source.path))
            await activity(peer, "running")
            await source.pulled(5)
            assert {each["cursor"] for each in source.pulls[-4:]} == {"e:3"}
            # It begins anew, with what it had and one that is late and one that is not.
            source.epoch = "f"
            late = said("turn.completed", event_id="late")
            late["observed_at"] = at.replace(year=at.year - 1).isoformat()
            source.events += [late, said("turn.completed", event_id="b")]
            await activity(peer, "idle")
            await source.pulled(3)
            assert (await peer.health())[KIND]["accepted"] == 5
            assert (await peer.health())[KIND]["dropped"]["duplicate"] == 3
            ids = []
            cursor = None
            while True:
                reply = await peer.ask("gateway.pull_events", consumer="c", cursor=cursor, limit=2)
                if not reply["events"]:
                    break
                ids += [each["event_id"] for each in reply["events"]]
                await peer.ask(
                    "gateway.ack_delivery", consumer="c", delivery_token=reply["delivery_token"]
                )
                cursor = reply["next_cursor"]
    assert [each for each in ids if each[0] in ("a", "b", "l")] == ["a0", "a1", "a2", "late", "b"]


@pytest.mark.requirement("TR-54", "TR-03", "TR-04")
async def test_a_heartbeat_says_nothing_of_what_an_agent_does(home: Path) -> None:
    async with running_daemon() as (peer, _):
        source = Foreign(home / "one.sock")
        async with source.serving():
            source.events = [said("turn.started")]
            await peer.hello(KIND, socket_path=str(source.path))
            await activity(peer, "running")
            source.events += [said("heartbeat") for _ in range(5)]
            await source.pulled(3)
            found = (await peer.sessions())["gemini:one"]
            assert (await peer.health())[KIND]["accepted"] == 6
    assert (found["activity_state"], found["evidence_mode"]) == ("running", "deterministic")


@pytest.mark.parametrize(
    "answer",
    [b"rubbish\n", b'{"id":1}\n', b'{"jsonrpc":"2.0","id":1,"result":{"events":7}}\n', b""],
    ids=["rubbish", "nothing", "no-events", "silence"],
)
async def test_a_source_that_answers_nonsense_is_nobody_elses_trouble(
    answer: bytes, home: Path
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        await reader.read(-1)
        writer.close()

    path = home / "bad.sock"
    server = await asyncio.start_unix_server(serve, path)
    async with running_daemon() as (peer, _):
        await peer.hello(KIND, socket_path=str(path))

        async def unwell() -> Any:
            return (await peer.health())[KIND]["status"] != "healthy"

        await until(unwell)
        await peer.ingest(event("turn.started", session="claude:x"))
        assert (await peer.sessions())["claude:x"]["activity_state"] == "running"
    server.close()


# ----------------------------------------------------------------------- in processes of their own


@pytest.mark.requirement("IF-S7", "IF-S2", "IF-S5", "CUR-1", "IF-G5", "Q2")
async def test_sources_answer_anybody_and_are_asked_five_times_a_second(
    home: Path, tmux: PrivateTmux
) -> None:
    async with daemon(home, "--isolate-sources") as running:
        poller = Peer(home / "run/bullpen/bullpend.sources/poller.sock")
        request = {"method": "source.pull_events", "params": {"cursor": None, "limit": 1}}
        for number in (1, "a"):
            answer = await poller.exchange({"jsonrpc": "2.0", "id": number, **request})
            assert answer["id"] == number
        first = (await poller.exchange({"id": 7, **request}))["result"]
        heartbeat = datetime.fromisoformat(first["heartbeat_ts"])
        assert abs((datetime.now(UTC) - heartbeat).total_seconds()) < 5
        again = await poller.ask("source.pull_events", cursor=first["next_cursor"], limit=500)
        last = await poller.ask("source.pull_events", cursor=again["next_cursor"], limit=500)
        assert last["next_cursor"]
        source = Foreign(home / "one.sock")
        async with source.serving():
            await running.peer.hello(KIND, socket_path=str(source.path))
            await source.pulled()
            begun, loop = len(source.pulls), asyncio.get_running_loop()
            at = loop.time()
            await source.pulled(15)
            rate = (len(source.pulls) - begun) / (loop.time() - at)
    assert 3.5 <= rate <= 6.0


@pytest.mark.requirement("Q2", "PL-0")
async def test_in_one_process_sources_are_asked_at_the_poll_interval(home: Path) -> None:
    given = settings(observe={"poll_interval_ms": 500})
    async with running_daemon(given) as (peer, _):
        source = Foreign(home / "one.sock")
        async with source.serving():
            await peer.hello(KIND, socket_path=str(source.path))
            await source.pulled()
            loop = asyncio.get_running_loop()
            at = loop.time()
            await source.pulled(4)
            rate = 4 / (loop.time() - at)
    assert 1.4 <= rate <= 2.6


BREAK = """
import os, sys
def _break():
    words = getattr(sys, "orig_argv", [])
    if "source" not in words or os.environ["BREAK_KIND"] not in words:
        return
    with open(os.environ["BREAK_STARTS"], "a+") as file:
        file.write("x")
        file.flush()
        file.seek(0)
        starts = len(file.read())
    if starts > int(os.environ["BREAK_AFTER"]):
        if os.environ["BREAK_HOW"] == "hang":
            import time
            time.sleep(600)
        os._exit(7)
_break()
"""


def broken(home: Path, how: str, after: int, kind: str = "claude_transcript") -> dict[str, str]:
    """Return an environment in which a source crashes or hangs from some start on."""
    (home / "broken").mkdir()
    (home / "broken/sitecustomize.py").write_text(BREAK)
    return {
        "PYTHONPATH": str(home / "broken"),
        "BREAK_KIND": kind,
        "BREAK_HOW": how,
        "BREAK_AFTER": str(after),
        "BREAK_STARTS": str(home / "broken/starts"),
    }


@pytest.mark.requirement("A4-1")
async def test_nothing_is_served_unless_every_source_is_ready(
    home: Path, tmux: PrivateTmux
) -> None:
    process = asyncio.create_task(
        output(home, "daemon", "--isolate-sources", seconds=40.0, **broken(home, "hang", 0))
    )

    async def others_run() -> Any:
        return (home / "run/bullpen/bullpend.sources/poller.sock").exists()

    await until(others_run, 20.0)
    assert not (home / "run/bullpen/bullpend.sock").exists()
    code, words = await process
    assert code == 1
    assert "not ready: claude_transcript" in words
    assert not (home / "run/bullpen/bullpend.sock").exists()
    assert not list((home / "run/bullpen/bullpend.sources").glob("*.sock"))


@pytest.mark.requirement("A4-2", "A4-3", "A4-4", "A6-1", "A6-4", "TG-11")
async def test_a_source_that_crashes_in_a_loop_is_held_down_and_the_others_go_on(
    home: Path, tmux: PrivateTmux
) -> None:
    async with daemon(home, "--isolate-sources", **broken(home, "crash", 1)) as running:
        peer = running.peer

        async def started() -> Any:  # the supervisor's command may not have become the source yet
            return await children(running.process.pid, "claude_transcript")

        [pid] = await until(started)
        os.kill(pid, signal.SIGKILL)

        async def held_down() -> Any:
            alerts = await peer.ask("list_alerts")
            return [each for each in alerts if each["code"] == "source_held_down"]

        [alert] = await until(held_down, 40.0)
        assert (alert["level"], alert["policy"]) == ("escalate", "operator")
        assert "claude_transcript" in alert["message"]
        assert (await peer.health())["poller"]["status"] == "healthy"
        assert (await peer.health())["claude_transcript"]["status"] != "healthy"
        pane_id = await tmux.new_pane("exec -a claude sleep 600")

        async def managed() -> Any:
            pane = (await peer.panes()).get(pane_id)
            return pane and pane["presence"] == "managed"

        await until(managed)
        starts = (home / "broken/starts").read_text()
        assert len(starts) == 5  # the one that was killed, and four more
        _, words = await output(home, "doctor")
        assert "claude_transcript" in words
        acknowledged = await peer.ask("ack_alert", alert_id=alert["alert_id"])
        assert acknowledged["resolved_at"]
    log = (home / ".local/state/bullpen/bullpen.log").read_text()
    pauses = [
        float(json.loads(line)["event"].rpartition("again in ")[2].split()[0])
        for line in log.splitlines()
        if "is started again in" in line and '"source": "claude_transcript"' in line
    ]
    for pause, wanted in zip(pauses, (1, 2, 4, 8, 300), strict=False):
        assert 0.8 * wanted <= pause <= 1.2 * wanted
    assert len(pauses) >= 5
