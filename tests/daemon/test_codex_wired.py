"""Codex as the daemon sees it: a scripted `codex` on the PATH, panes in a real tmux, the socket."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bullpen.api.settings import Settings
from bullpen.testing.codex_server import FakeCodex
from bullpen.testing.tmux import PrivateTmux
from tests.daemon.harness import Peer, event, running_daemon, settings, until

pytestmark = pytest.mark.tmux

OFFICIAL = {"initialize", "initialized", "thread/list", "thread/loaded/list", "thread/read"}
AGENT = "exec -a codex sleep 600"


@pytest.fixture
async def tmux(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PrivateTmux]:
    async with PrivateTmux(width=120, height=40) as server:
        monkeypatch.setenv("BULLPEN_TMUX_SOCKET_PATH", server.target.socket_path)
        monkeypatch.setenv("TMUX_TMPDIR", str(Path(server.target.socket_path).parent))
        yield server


@pytest.fixture
async def codex(home: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCodex:
    fake = await FakeCodex.install(home / "bin")
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    return fake


def watching(**more: Any) -> Settings:
    return settings(sources={"codex_appserver": "auto", "codex_capture": True} | more)


def thread(thread_id: str, cwd: str | Path = "/", status: str = "idle", **more: Any) -> str:
    described = {
        "id": thread_id,
        "cwd": str(cwd),
        "status": {"type": status},
        "updatedAt": int(datetime.now(UTC).timestamp()),
        "source": "cli",
    } | more
    return f"thread {json.dumps(described)}"


def send(method: str, **params: Any) -> str:
    return f"send {json.dumps({'method': method, 'params': params})}"


def turn(thread_id: str, status: str) -> str:
    what = "turn/started" if status == "started" else "turn/completed"
    return send(
        what, threadId=thread_id, turn={"id": f"{thread_id}-turn", "status": status, "items": []}
    )


async def managed(peer: Peer, pane_id: str) -> dict[str, Any]:
    async def look() -> Any:
        pane = (await peer.panes()).get(pane_id)
        return pane if pane and pane["presence"] == "managed" else None

    found: dict[str, Any] = await until(look)
    return found


async def holds(peer: Peer, session: str, **wanted: Any) -> dict[str, Any]:
    """Wait until a session is as wanted."""

    async def look() -> Any:
        found = (await peer.sessions()).get(session)
        return found if found and wanted.items() <= found.items() else None

    try:
        found: dict[str, Any] = await until(look)
    except TimeoutError:
        raise AssertionError((await peer.sessions()).get(session), wanted) from None
    return found


async def in_pane(peer: Peer, pane_id: str, session: str | None) -> dict[str, Any]:
    async def look() -> Any:
        pane = (await peer.panes()).get(pane_id)
        return pane if pane and pane["session_key"] == session else None

    try:
        found: dict[str, Any] = await until(look)
    except TimeoutError:
        raise AssertionError((await peer.panes()).get(pane_id)) from None
    return found


async def is_well(peer: Peer, kind: str = "codex_appserver") -> bool:
    return bool((await peer.health())[kind]["status"] == "healthy")


async def project(home: Path, name: str = "project") -> Path:
    path = home / name
    path.mkdir()
    return path.resolve()


# ------------------------------------------------------------------------------------ being heard


@pytest.mark.requirement("SRC-1", "SRC-2", "SRC-3", "CX-1", "CX-2", "CX-3", "CX-4", "CX-5")
async def test_a_server_is_started_and_asked_in_codexs_own_words(
    codex: FakeCodex, tmux: PrivateTmux
) -> None:
    async with running_daemon(watching()) as (peer, _):
        await until(lambda: is_well(peer))
        await until(lambda: codex.received("thread/list"))
        [started] = await codex.notes("started")
        assert started["arguments"] == ["app-server"]
        assert (await codex.methods())[:3] == ["initialize", "initialized", "thread/list"]
        assert set(await codex.methods()) <= OFFICIAL
        received = await codex.received()
        assert all(each["jsonrpc"] == "2.0" for each in received)
        assert set(received[0]["params"]["clientInfo"]) == {"name", "title", "version"}
        asked = (await codex.received("thread/list"))[0]["params"]
        assert (asked["limit"], asked["sortKey"]) == (50, "updated_at")
        assert (await peer.health())["codex_appserver"]["version"]


@pytest.mark.requirement("CX-7")
async def test_it_is_asked_for_the_directories_of_the_panes(
    codex: FakeCodex, tmux: PrivateTmux, home: Path
) -> None:
    directory = await project(home)
    link = home / "link"
    link.symlink_to(directory)
    await tmux.new_pane(AGENT, cwd=directory)
    async with running_daemon(watching()) as (peer, _):
        await until(lambda: is_well(peer))

        async def asked() -> Any:
            lists = await codex.received("thread/list")
            return [each for each in lists if str(directory) in each["params"].get("cwd", [])]

        await until(asked)
        other = await project(home, "other")
        await tmux.new_pane(AGENT, cwd=other)

        async def asked_anew() -> Any:
            lists = await codex.received("thread/list")
            return [each for each in lists if str(other) in each["params"].get("cwd", [])]

        await until(asked_anew)


@pytest.mark.requirement("CX-6", "CX-9", "CX-10", "CX-11", "COR-1", "COR-2", "SRC-5", "TR-25")
async def test_what_a_thread_does_is_told_of_its_pane(
    codex: FakeCodex, tmux: PrivateTmux, home: Path
) -> None:
    directory = await project(home)
    pane_id = await tmux.new_pane(AGENT, cwd=directory)
    await codex.tell(thread("t1", directory))
    async with running_daemon(watching()) as (peer, _):
        pane = await in_pane(peer, pane_id, "codex:t1")
        assert (pane["signature_class"], pane["evidence_mode"]) == ("deterministic",) * 2
        assert (pane["activity_state"], pane["activity_source"]) == ("idle", "codex_appserver")
        says = [
            (turn("t1", "started"), "running", "turn.started"),
            (turn("t1", "completed"), "idle", "turn.completed"),
            (turn("t1", "started"), "running", "turn.started"),
            (turn("t1", "interrupted"), "idle", "turn.interrupted"),
            (turn("t1", "started"), "running", "turn.started"),
            (turn("t1", "failed"), "error", "turn.failed"),
            (
                send("thread/status/changed", threadId="t1", status={"type": "active"}),
                "running",
                "",
            ),
            (send("thread/status/changed", threadId="t1", status="idle"), "idle", ""),
            (send("thread/status/changed", threadId="t1", status="systemError"), "error", ""),
            (
                send(
                    "thread/status/changed",
                    threadId="t1",
                    status={"type": "active", "activeFlags": ["waitingOnApproval"]},
                ),
                "waiting_approval",
                "",
            ),
        ]
        for line, activity, _ in says:
            await codex.tell(line)
            await codex.wake()

            async def told(activity: str = activity) -> Any:
                return (await peer.panes())[pane_id]["activity_state"] == activity

            await until(told)
        reply = await peer.ask("gateway.pull_events", consumer="test", limit=1000)
    heard = [
        each["event_type"] for each in reply["events"] if each["source_kind"] == "codex_appserver"
    ]
    for _, _, event_type in says:
        assert event_type in ("", *heard)
    assert {"thread.active", "thread.idle", "thread.systemError"} <= set(heard)


@pytest.mark.requirement("CX-6", "IF-D4")
async def test_a_change_between_two_lists_is_pushed(
    codex: FakeCodex, tmux: PrivateTmux, home: Path
) -> None:
    directory = await project(home)
    pane_id = await tmux.new_pane(AGENT, cwd=directory)
    await codex.tell(thread("t1", directory))
    async with running_daemon(watching()) as (peer, _):
        await in_pane(peer, pane_id, "codex:t1")
        async with peer.follow() as told:
            await codex.tell(thread("t1", directory, "active"))

            async def pushed() -> Any:
                return [
                    each
                    for each in told
                    if each.get("method") == "state_changed"
                    and each["params"]["change"]["kind"] == "agent"
                    and each["params"]["change"]["agent"]["activity"] == "running"
                ]

            await until(pushed)


@pytest.mark.requirement("CX-8", "TR-31")
async def test_what_is_said_before_the_answer_is_not_lost(
    codex: FakeCodex, tmux: PrivateTmux
) -> None:
    await codex.tell(thread("t1"), thread("t2"), thread("t3"))
    async with running_daemon(watching()) as (peer, _):
        await holds(peer, "codex:t3", activity_state="idle")
        # No wake: they are sent when the next list is asked for, before the answer to it.
        await codex.tell(turn("t1", "started"), turn("t2", "started"), turn("t2", "failed"))
        await holds(peer, "codex:t1", activity_state="running")
        await holds(peer, "codex:t2", activity_state="error")


@pytest.mark.requirement("TTL-4")
async def test_an_agent_has_the_name_of_its_thread(
    codex: FakeCodex, tmux: PrivateTmux, home: Path
) -> None:
    directory = await project(home)
    pane_id = await tmux.new_pane(AGENT, cwd=directory)
    await codex.tell(thread("t1", directory, name="mend the roof"))
    async with running_daemon(watching()) as (peer, _):
        await in_pane(peer, pane_id, "codex:t1")

        async def titled(title: str) -> Any:
            return (await peer.panes())[pane_id]["title"] == title

        await until(lambda: titled("mend the roof"))
        await codex.tell(send("thread/name/updated", threadId="t1", threadName="paint it"))
        await codex.wake()
        await until(lambda: titled("paint it"))


@pytest.mark.requirement("CX-4", "TR-33")
async def test_what_a_server_asks_is_not_ours_to_answer(
    codex: FakeCodex, tmux: PrivateTmux
) -> None:
    question = {"id": 99, "method": "item/commandExecution/requestApproval", "params": {}}
    await codex.tell(thread("t1"), f"send {json.dumps(question)}", "print this is no JSON")
    async with running_daemon(watching()) as (peer, _):
        await holds(peer, "codex:t1", activity_state="idle")
        assert "" not in await codex.methods()


# -------------------------------------------------------------------------------- not being heard


@pytest.mark.requirement("CX-12", "RT-5", "SRC-1")
async def test_without_codex_nothing_is_wrong(tmux: PrivateTmux, home: Path) -> None:
    given = watching(codex_command="no-such-codex")
    async with running_daemon(given) as (peer, _):

        async def absent() -> Any:
            health = (await peer.health())["codex_appserver"]
            return health["is_absent"] and health

        health = await until(absent)
        assert health["status"] == "degraded"
        assert health["reason"] == "no-such-codex is not installed"
        summary = await peer.ask("summary")
        assert summary["absent"] == ["codex_appserver"]
        assert summary["sources"]["codex_appserver"] == "degraded"
        assert await peer.ask("list_alerts") == []


@pytest.mark.requirement("CX-12", "TR-32")
async def test_a_codex_that_is_installed_later_is_found(
    tmux: PrivateTmux, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    given = watching(codex_command=str(home / "bin/codex"))
    async with running_daemon(given) as (peer, _):

        async def absent() -> Any:
            return (await peer.health())["codex_appserver"]["is_absent"]

        await until(absent)
        codex = await FakeCodex.install(home / "bin")
        await codex.tell(thread("t1"))
        await holds(peer, "codex:t1", activity_state="idle")
        assert not (await peer.health())["codex_appserver"]["is_absent"]


@pytest.mark.requirement("CX-12", "CX-2")
@pytest.mark.parametrize("line", ["exit 3", "refuse initialize -32600 no"])
async def test_a_server_that_cannot_be_used_is_a_reason_and_no_crash(
    line: str, codex: FakeCodex, tmux: PrivateTmux
) -> None:
    pane_id = await tmux.new_pane(AGENT)
    await codex.tell(line)
    async with running_daemon(watching()) as (peer, _):

        async def down() -> Any:
            health = (await peer.health())["codex_appserver"]
            return health["status"] == "down" and "cannot be used" in health["reason"]

        await until(down)
        await managed(peer, pane_id)
        # It is tried again.
        await codex.tell_anew(thread("t1"))
        await until(lambda: is_well(peer))


@pytest.mark.requirement("TG-9", "CX-16", "RES-9", "SRC-4", "IF-S6", "TG-11", "TR-29")
async def test_while_the_server_is_gone_the_screen_is_read_and_only_then(
    codex: FakeCodex, tmux: PrivateTmux, home: Path
) -> None:
    directory = await project(home)
    pane_id = await tmux.new_program(PRINTER, cwd=directory)
    pipe = directory / "pipe"
    await codex.tell(thread("other", "/elsewhere"))
    async with running_daemon(watching()) as (peer, _):
        await until(lambda: is_well(peer))
        await managed(peer, pane_id)
        await say(pipe, {"type": "thread.started", "thread_id": "t9"}, {"type": "turn.started"})

        async def suppressed() -> Any:
            dropped = (await peer.health())["codex_capture"]["dropped"]
            return dropped.get("source_rank_suppressed", 0) >= 2

        await until(suppressed)
        assert "codex:t9" not in await peer.sessions()
        await codex.tell_anew("exit 1")
        await codex.kill()

        async def down() -> Any:
            return (await peer.health())["codex_appserver"]["status"] == "down"

        await until(down)
        assert (await peer.health())["claude_hooks"]["status"] == "healthy"
        await say(pipe, {"type": "turn.completed", "usage": {}})
        found = await holds(peer, "codex:t9", activity_state="idle")
        assert found["activity_source"] == "codex_capture"
        assert (await peer.panes())[pane_id]["evidence_mode"] == "deterministic"
        # And when it is back, nothing is taken from the screen.
        await codex.tell_anew(thread("other", "/elsewhere"))
        await until(lambda: is_well(peer), 40.0)
        before = (await peer.health())["codex_capture"]["accepted"]
        await say(pipe, {"type": "turn.started"})
        count = (await peer.health())["codex_capture"]["dropped"]["source_rank_suppressed"]

        async def suppressed_again() -> Any:
            dropped = (await peer.health())["codex_capture"]["dropped"]
            return dropped["source_rank_suppressed"] > count

        await until(suppressed_again)
        assert (await peer.health())["codex_capture"]["accepted"] == before


# A process called `codex` that prints what it is sent.
PRINTER = """
import os, sys
if sys.argv[-1] != "again":
    program = [sys.executable, "-I", "-u", "-c", sys.orig_argv[-1], "again"]
    os.execv(sys.executable, ["codex", "-I", "-u", "-c", sys.orig_argv[-1], "again"])
os.mkfifo("pipe")
while True:
    with open("pipe") as pipe:
        for line in pipe:
            print(line, end="", flush=True)
"""


async def say(pipe: Path, *lines: dict[str, Any]) -> None:
    await until(lambda: asyncio.to_thread(pipe.exists))
    text = "".join(json.dumps(each) + "\n" for each in lines)
    await asyncio.to_thread(pipe.write_text, text, "utf-8")


@pytest.mark.requirement("CX-14", "CX-15", "SRC-4")
async def test_a_line_that_stays_on_the_screen_is_told_once(tmux: PrivateTmux, home: Path) -> None:
    directory = await project(home)
    pane_id = await tmux.new_program(PRINTER, cwd=directory)
    given = watching(codex_command="no-such-codex")
    async with running_daemon(given) as (peer, _):
        await managed(peer, pane_id)
        await say(directory / "pipe", {"type": "thread.started", "thread_id": "t9"})
        await say(directory / "pipe", {"type": "turn.started"})
        await holds(peer, "codex:t9", activity_state="running")
        # It is looked at again, and what is below it changes.
        for number in range(10):
            await say(directory / "pipe", {"nothing": number})
            await tmux.wait_for(pane_id, f'"nothing": {number}')

        async def looked() -> Any:
            return (await tmux.screen(pane_id)).count("nothing") == 10

        await until(looked)
        await asyncio.sleep(0.6)  # three looks of the poller, which tell nothing
        reply = await peer.ask("gateway.pull_events", consumer="test", limit=1000)
    heard = [
        each["event_type"] for each in reply["events"] if each["source_kind"] == "codex_capture"
    ]
    assert heard.count("turn.started") == 1


@pytest.mark.requirement("CX-13", "TR-38")
async def test_lines_of_a_file_in_a_shell_are_nothing(tmux: PrivateTmux, home: Path) -> None:
    directory = await project(home)
    lines = [{"type": "thread.started", "thread_id": "t9"}, {"type": "turn.started"}]
    (directory / "file").write_text("".join(json.dumps(each) + "\n" for each in lines))
    pane_id = await tmux.new_pane("cat file; exec sh", cwd=directory)
    await tmux.wait_for(pane_id, "turn.started")
    given = watching(codex_command="no-such-codex")
    async with running_daemon(given) as (peer, _):
        other = await tmux.new_pane("exec -a claude sleep 600")
        await managed(peer, other)
        assert "codex:t9" not in await peer.sessions()
        assert (await peer.panes())[pane_id]["presence"] == "unmanaged"
        assert (await peer.health())["codex_capture"]["accepted"] == 0


# ------------------------------------------------------------------------ whose thread, which pane


@pytest.mark.requirement("COR-1", "SRC-5", "TR-28")
@pytest.mark.parametrize("how", ["slash", "dots", "link", "link-of-the-pane"])
async def test_a_thread_is_found_however_its_directory_is_spelt(
    how: str, codex: FakeCodex, tmux: PrivateTmux, home: Path
) -> None:
    directory = await project(home)
    link = home / "link"
    link.symlink_to(directory)
    spelt = {
        "slash": f"{directory}/",
        "dots": f"{directory}/../project/.",
        "link": str(link),
        "link-of-the-pane": str(directory),
    }
    pane_id = await tmux.new_pane(AGENT, cwd=link if how == "link-of-the-pane" else directory)
    await codex.tell(thread("t1", spelt[how]))
    async with running_daemon(watching()) as (peer, _):
        await in_pane(peer, pane_id, "codex:t1")


@pytest.mark.requirement("COR-3", "TR-05", "TR-06", "TR-07", "TG-7")
async def test_of_several_panes_in_a_directory_it_is_the_one_with_codex(
    codex: FakeCodex, tmux: PrivateTmux, home: Path
) -> None:
    directory = await project(home)
    others = [
        await tmux.new_pane("exec sh", cwd=directory),
        await tmux.new_pane("exec -a vim sleep 600", cwd=directory),
        await tmux.new_pane("exec -a claude sleep 600", cwd=directory),
    ]
    pane_id = await tmux.new_pane(AGENT, cwd=directory)
    await codex.tell(thread("t1", directory, "active"))
    async with running_daemon(watching()) as (peer, _):
        await in_pane(peer, pane_id, "codex:t1")
        panes = await peer.panes()
    assert [panes[each]["presence"] for each in others] == ["unmanaged", "unmanaged", "managed"]
    assert panes[others[2]]["provider"] == "claude"
    assert panes[others[2]]["evidence_mode"] == "heuristic"


@pytest.mark.requirement("COR-4")
async def test_of_several_threads_in_a_directory_it_is_the_active_one_then_the_newest(
    codex: FakeCodex, tmux: PrivateTmux, home: Path
) -> None:
    directory = await project(home)
    pane_id = await tmux.new_pane(AGENT, cwd=directory)
    now = int(datetime.now(UTC).timestamp())
    await codex.tell(
        thread("old", directory, updatedAt=now - 60),
        thread("new", directory, updatedAt=now - 10),
    )
    async with running_daemon(watching()) as (peer, _):
        await in_pane(peer, pane_id, "codex:new")
        await codex.tell(thread("old", directory, "active", updatedAt=now - 60))
        await in_pane(peer, pane_id, "codex:old")
        assert (await peer.panes())[pane_id]["activity_state"] == "running"


@pytest.mark.requirement("COR-5", "DM-11")
async def test_a_thread_in_no_pane_is_a_session_only(
    codex: FakeCodex, tmux: PrivateTmux, home: Path
) -> None:
    directory = await project(home)
    pane_id = await tmux.new_pane(AGENT, cwd=directory)
    await codex.tell(thread("t1", "/somewhere/else", "active"))
    async with running_daemon(watching()) as (peer, _):
        found = await holds(peer, "codex:t1", activity_state="running")
        assert found["representative_pane_instance_id"] is None
        pane = await managed(peer, pane_id)
        assert pane["session_key"] != "codex:t1"
        assert pane["evidence_mode"] == "heuristic"


@pytest.mark.requirement("RES-9", "ERR-4")
async def test_what_the_screen_says_through_the_socket_is_suppressed_too(
    codex: FakeCodex, tmux: PrivateTmux
) -> None:
    async with running_daemon(watching()) as (peer, _):
        await until(lambda: is_well(peer))
        answer = await peer.exchange(
            {
                "id": 1,
                "method": "source.ingest",
                "params": {
                    "source_kind": "codex_capture",
                    "events": [
                        event(
                            "turn.started",
                            kind="codex_capture",
                            provider="codex",
                            session="codex:x",
                        )
                    ],
                },
            }
        )
        assert answer["error"]["data"]["reason"] == "source_rank_suppressed"
