"""Codex's app server, as a fake on stdio and on the socket of a shared one."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.connection import Connection, Context, listen
from bullpen.jsonrpc.wire import Notification, Request, Response, decode_value
from bullpen.model.observations import Origin
from bullpen.model.states import EvidenceTier, Provider, SourceKind
from bullpen.observe.sources.codex_appserver import CodexAppServer, decode_for_watching
from bullpen.observe.sources.port import SourceTrouble
from bullpen.testing.codex_server import FakeCodex
from bullpen.testing.tmux import eventually
from tests.observe.sources.codex_heard import Heard, Time, is_gone

PARAMS_OF_A_LIST = {
    "limit": 50,
    "sortKey": "updated_at",
    "sourceKinds": ["cli", "vscode", "exec", "appServer", "unknown"],
    "modelProviders": [],
    "useStateDbOnly": True,
}


def thread(thread_id: str = "t1", status: Any = "idle", **more: Any) -> str:
    """Return the line of a script that lists a thread."""
    shape = {"type": status} if isinstance(status, str) else status
    fields = {"id": thread_id, "cwd": "/project", "status": shape, "updatedAt": 1000, **more}
    return f"thread {json.dumps(fields)}"


def send(method: str, **params: Any) -> str:
    return f"send {json.dumps({'method': method, 'params': params, 'emittedAtMs': 7})}"


def turn(method: str, status: str, thread_id: str = "t1") -> str:
    return send(method, threadId=thread_id, turn={"id": "u1", "status": status, "error": None})


class Watching:
    """A source that looks at a fake."""

    def __init__(self, home: Path, fake: FakeCodex, **options: Any) -> None:
        self.time = Time()
        self.heard = Heard()
        self.fake = fake
        known: dict[str, Any] = {"command": fake.command, "client_version": "1.2.3"}
        known |= {"clock": self.time.clock, "settle_seconds": 0.0} | options
        self.source = CodexAppServer(self.time.now, home=home, **known)

    async def look(self) -> None:
        async with asyncio.timeout(20):
            await self.source.look()

    async def trouble(self) -> SourceTrouble:
        with pytest.raises(SourceTrouble) as caught:
            await self.look()
        return caught.value


@asynccontextmanager
async def watching(home: Path, **options: Any) -> AsyncIterator[Watching]:
    fake = await FakeCodex.install(home / "bin")
    watch = Watching(home / ".codex", fake, **options)
    await watch.source.open(watch.heard)
    try:
        yield watch
    finally:
        await watch.source.aclose()


@pytest.fixture
async def watch(home: Path) -> AsyncIterator[Watching]:
    async with watching(home) as watch:
        yield watch


@pytest.mark.requirement("SRC-1", "SRC-2", "SRC-3", "CX-1", "CX-5")
async def test_a_server_is_started_and_asked_for_its_threads_at_every_look(watch: Watching) -> None:
    for _ in range(3):
        await watch.look()
    [started] = await watch.fake.notes("started")
    assert started["arguments"] == ["app-server"]
    assert await watch.fake.methods() == ["initialize", "initialized", *["thread/list"] * 3]
    lists = await watch.fake.received("thread/list")
    assert [each["params"] for each in lists] == [PARAMS_OF_A_LIST] * 3
    assert watch.source.kind is SourceKind.CODEX_APPSERVER


@pytest.mark.requirement("CX-2", "CX-3", "CX-4")
async def test_we_introduce_ourselves_in_json_rpc_2_and_accept_answers_in_none(
    watch: Watching,
) -> None:
    await watch.look()
    received = await watch.fake.received()
    assert received[0] == {
        "jsonrpc": "2.0",
        "id": received[0]["id"],
        "method": "initialize",
        "params": {"clientInfo": {"name": "bullpen", "title": "bullpen", "version": "1.2.3"}},
    }
    assert received[1] == {"jsonrpc": "2.0", "method": "initialized", "params": {}}
    assert {each["jsonrpc"] for each in received} == {"2.0"}
    assert watch.source.version == "0.0.0"
    assert watch.source.is_alive
    assert not watch.source.is_shared


@pytest.mark.requirement("CX-2", "CX-12")
async def test_a_server_that_does_not_answer_is_given_up_and_ended(home: Path) -> None:
    async with watching(home, handshake_seconds=0.5) as watch:
        await watch.fake.tell("swallow initialize")
        trouble = await watch.trouble()
        assert trouble.is_down
        assert str(trouble) == "codex app-server cannot be used: it was not ready within 0.5 s"
        assert not watch.source.is_alive
        pid = await watch.fake.pid()
        assert await is_gone(pid)


async def test_a_look_does_not_wait_for_long_until_a_server_is_ready(home: Path) -> None:
    async with watching(home, patience_seconds=0.1) as watch:
        await watch.fake.tell("swallow initialize")
        for _ in range(2):
            trouble = await watch.trouble()
            assert trouble.is_down
            assert str(trouble) == "codex app-server is not ready yet"
        assert await watch.fake.starts() <= 1
        async with asyncio.timeout(5):  # less than the handshake may take
            await watch.source.aclose()
    if await watch.fake.starts():
        assert await is_gone(await watch.fake.pid())


async def test_a_server_that_became_ready_between_two_looks_is_used(home: Path) -> None:
    async with watching(home, patience_seconds=0.0) as watch:
        await watch.trouble()
        await eventually(lambda: _has_looked(watch))
        assert await watch.fake.starts() == 1


async def _has_looked(watch: Watching) -> bool:
    try:
        await watch.look()
    except SourceTrouble:
        return False
    return True


async def test_a_server_that_became_ready_and_was_never_used_is_ended(home: Path) -> None:
    async with watching(home, patience_seconds=0.0) as watch:
        await watch.trouble()

        async def is_ready() -> bool:
            return "initialized" in await watch.fake.methods()

        await eventually(is_ready)
        await watch.source.aclose()
        assert await is_gone(await watch.fake.pid())


def test_it_is_given_ten_seconds() -> None:
    source = CodexAppServer(Time().now, home=Path("/nowhere"))
    assert source._handshake_seconds == 10


@pytest.mark.requirement("CX-12")
async def test_without_codex_on_the_path_there_is_a_reason_and_no_crash(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    source = CodexAppServer(Time().now, home=home / ".codex")
    await source.open(Heard())
    for _ in range(2):
        with pytest.raises(SourceTrouble) as caught:
            await source.look()
        assert caught.value.is_absent
        assert not caught.value.is_down
        assert str(caught.value) == "codex is not installed"
    assert not source.is_alive
    await source.aclose()


async def test_codex_is_found_on_the_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = await FakeCodex.install(home / "bin")
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    source = CodexAppServer(Time().now, home=home / ".codex")
    await source.open(Heard())
    await source.look()
    await source.aclose()
    assert await fake.starts() == 1


async def test_what_it_says_on_stderr_is_part_of_the_reason(home: Path) -> None:
    program = "import sys; sys.exit('no config\\nbad config')"
    source = CodexAppServer(Time().now, home=home, command=(sys.executable, "-c", program))
    await source.open(Heard())
    with pytest.raises(SourceTrouble, match="bad config"):
        await source.look()
    await source.aclose()


@pytest.mark.requirement("CX-12")
async def test_a_first_start_that_fails_is_tried_again_after_a_pause(watch: Watching) -> None:
    await watch.fake.tell("exit 3")
    assert (await watch.trouble()).is_down
    await watch.fake.tell_anew()
    assert (await watch.trouble()).is_down  # it is not time yet
    assert await watch.fake.starts() == 1
    watch.time.advance(1)
    await watch.look()
    assert await watch.fake.starts() == 2
    assert watch.source.is_alive


async def test_the_pause_grows_with_each_failure_up_to_half_a_minute(watch: Watching) -> None:
    await watch.fake.tell("exit 3")
    pauses = []
    for _ in range(7):
        await watch.trouble()
        starts = await watch.fake.starts()
        pause = 0
        while await watch.fake.starts() == starts:
            pause += 1
            watch.time.advance(1)
            await watch.trouble()
        pauses.append(pause)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


@pytest.mark.requirement("CX-6", "CX-11", "COR-1", "SRC-5")
async def test_a_status_that_changed_between_two_looks_is_told_once(watch: Watching) -> None:
    await watch.fake.tell(thread(status="idle"))
    await watch.look()
    await watch.fake.tell(thread(status={"type": "active", "activeFlags": []}))
    for _ in range(3):
        await watch.look()
    await watch.fake.tell(thread(status={"type": "active", "activeFlags": ["waitingOnApproval"]}))
    await watch.look()
    await watch.fake.tell(thread(status="systemError"))
    await watch.look()
    told = [each for each in watch.heard.types("t1") if each != "thread.listed"]
    assert told == [
        "thread.idle",
        "thread.active",
        "thread.waitingOnApproval",
        "thread.systemError",
    ]
    last = watch.heard.last("t1")
    assert (last.provider, last.source_kind) == (Provider.CODEX, SourceKind.CODEX_APPSERVER)
    assert last.tier is EvidenceTier.DETERMINISTIC
    assert last.confidence == 1.0
    assert last.observed_at == watch.time.now()
    assert last.origin is not None
    assert last.origin.cwd == "/project"
    assert last.pane_id is None
    assert len({each.event_id for each in watch.heard.observations}) == len(
        watch.heard.observations
    )


@pytest.mark.requirement("CX-8")
async def test_what_is_told_before_the_answer_to_a_list_is_not_lost(watch: Watching) -> None:
    await watch.fake.tell(thread())
    await watch.look()
    watch.heard.clear()
    await watch.fake.tell(
        turn("turn/started", "inProgress"),
        send("thread/status/changed", threadId="t1", status={"type": "idle"}),
        turn("turn/completed", "completed"),
    )
    await watch.look()
    assert watch.heard.types("t1") == ["turn.started", "thread.idle", "turn.completed"]


@pytest.mark.requirement("CX-9", "CX-10")
@pytest.mark.parametrize("status", ["completed", "interrupted", "failed"])
async def test_turns_are_told_as_they_begin_and_end_between_two_looks(
    watch: Watching, status: str
) -> None:
    await watch.fake.tell(thread())
    await watch.look()
    await watch.fake.tell(turn("turn/started", "inProgress"), turn("turn/completed", status))
    await watch.fake.wake()
    ended = await watch.heard.wait_for(f"turn.{status}", "t1")
    assert watch.heard.types("t1")[-2:] == ["turn.started", f"turn.{status}"]
    assert ended.source_event_id == "u1"


@pytest.mark.requirement("CX-11")
@pytest.mark.parametrize("status", [{"type": "active", "activeFlags": []}, "active"])
async def test_a_status_comes_as_an_object_or_a_word(watch: Watching, status: object) -> None:
    await watch.look()
    await watch.fake.tell(send("thread/status/changed", threadId="t1", status=status))
    await watch.fake.wake()
    await watch.heard.wait_for("thread.active", "t1")


async def test_an_answer_that_is_older_than_a_notification_changes_nothing(
    watch: Watching,
) -> None:
    await watch.fake.tell(thread(status={"type": "active", "activeFlags": []}))
    await watch.look()
    watch.heard.clear()
    # The list was made before the turn ended, and is sent after that was told.
    await watch.fake.tell(send("thread/status/changed", threadId="t1", status={"type": "idle"}))
    await watch.look()
    assert watch.heard.types("t1") == ["thread.idle"]
    await watch.fake.tell(thread(status="idle"))
    await watch.look()
    assert "thread.active" not in watch.heard.types("t1")


@pytest.mark.requirement("TTL-4")
async def test_names_are_told_as_they_are_listed_and_as_they_change(watch: Watching) -> None:
    await watch.fake.tell(thread(name="Fix the tests"))
    await watch.look()
    await watch.look()
    assert watch.heard.types("t1") == ["thread.listed", "session.named", "thread.idle"]
    assert watch.heard.about("t1")[1].payload == {"title": "Fix the tests"}
    await watch.fake.tell(send("thread/name/updated", threadId="t1", threadName="Mend the tests"))
    await watch.fake.wake()
    await eventually(lambda: watch.heard.last("t1").payload == {"title": "Mend the tests"})
    assert watch.heard.last("t1").event_type == "session.named"
    watch.heard.clear()
    await watch.fake.tell(thread(name="Mend the tests", updatedAt=2000))
    await watch.look()
    assert watch.heard.types("t1") == ["thread.listed"]  # the name is known


@pytest.mark.requirement("COR-4")
async def test_a_thread_run_elsewhere_is_told_without_an_activity(watch: Watching) -> None:
    recent = int(watch.time.now().timestamp()) - 60
    await watch.fake.tell(
        thread("named", "notLoaded", name="A name", updatedAt=recent),
        thread("nameless", "notLoaded", updatedAt=recent),
        thread("old", "notLoaded", name="Old", updatedAt=recent - 3600),
    )
    await watch.look()
    assert watch.heard.types("named") == ["thread.listed", "session.named"]
    assert watch.heard.types("nameless") == ["thread.listed"]
    assert watch.heard.types("old") == []
    assert watch.heard.last("nameless").payload == {
        "cwd": "/project",
        "status": "notLoaded",
        "updated_at": "2026-11-15T13:59:00+00:00",
        "preview": "",
        "source": "",
    }


@pytest.mark.requirement("COR-4")
async def test_when_a_thread_was_used_is_told_whenever_that_changes(watch: Watching) -> None:
    for updated in (1000, 1000, 2000):
        await watch.fake.tell(thread(updatedAt=updated))
        await watch.look()
    listed = [each for each in watch.heard.observations if each.event_type == "thread.listed"]
    assert [each.payload["updated_at"] for each in listed] == [
        "1970-01-01T00:16:40+00:00",
        "1970-01-01T00:33:20+00:00",
    ]


@pytest.mark.requirement("COR-1")
async def test_a_thread_is_where_its_directory_leads_to(watch: Watching, home: Path) -> None:
    real = home / "real"
    real.mkdir()
    (home / "link").symlink_to(real)
    await watch.fake.tell(thread("linked", cwd=f"{home}/link/"), thread("nowhere", cwd=""))
    await watch.look()
    origins = {each.session_key: each.origin for each in watch.heard.observations}
    assert origins == {
        "codex:linked": Origin(cwd=str(real.resolve())),
        "codex:nowhere": Origin(),
    }


@pytest.mark.requirement("CX-7", "COR-5")
async def test_threads_are_asked_for_by_the_directories_of_panes_and_now_and_then_all(
    watch: Watching, home: Path
) -> None:
    real = home / "real"
    real.mkdir()
    link = home / "link"
    link.symlink_to(real)
    await watch.fake.tell(
        thread("here", cwd=str(real), name="Here"), thread("there", cwd="/there", name="There")
    )
    watch.source.watch_cwds([str(link), "/gone"])
    for _ in range(11):
        await watch.look()
    lists = [each["params"].get("cwd") for each in await watch.fake.received("thread/list")]
    filtered = sorted({"/gone", str(link), str(real.resolve())})
    assert lists == [filtered, None, *[filtered] * 10, None]
    for each in ("here", "there"):
        assert watch.heard.types(each) == ["thread.listed", "session.named", "thread.idle"]


async def test_a_server_of_another_version_is_asked_for_less(watch: Watching) -> None:
    await watch.look()
    await watch.fake.tell("refuse thread/list -32600 unknown field `sourceKinds`")
    trouble = await watch.trouble()
    assert not trouble.is_down
    assert "unknown field" in str(trouble)
    last = (await watch.fake.received("thread/list"))[-1]
    assert last["params"] == {"limit": 50, "sortKey": "updated_at"}
    assert watch.source.is_alive


@pytest.mark.requirement("CX-16", "TG-9")
async def test_a_server_that_dies_is_lost_at_once_and_started_again(watch: Watching) -> None:
    await watch.fake.tell(thread())
    await watch.look()
    await watch.fake.kill()
    await eventually(lambda: not watch.source.is_alive)
    trouble = await watch.trouble()
    assert trouble.is_down
    assert "was ended by signal 9" in str(trouble)
    watch.heard.clear()
    watch.time.advance(1)
    await watch.look()
    assert watch.source.is_alive
    assert watch.heard.types("t1") == ["thread.listed", "thread.idle"]


async def test_one_that_dies_again_and_again_is_left_alone_for_longer_and_longer(
    watch: Watching,
) -> None:
    pauses = []
    for _ in range(3):
        await watch.look()
        await watch.fake.kill()
        await eventually(lambda: not watch.source.is_alive)
        await watch.trouble()
        starts, pause = await watch.fake.starts(), 0
        while await watch.fake.starts() == starts:
            pause += 1
            watch.time.advance(1)
            await _has_looked(watch)
        pauses.append(pause)
    assert pauses == [1, 2, 4]


async def test_one_that_was_there_for_long_is_started_again_without_a_growing_pause(
    watch: Watching,
) -> None:
    for _ in range(3):
        await watch.look()
        watch.time.advance(10)
        await watch.look()
        await watch.fake.kill()
        await eventually(lambda: not watch.source.is_alive)
        await watch.trouble()
        watch.time.advance(1)
    await watch.look()
    assert await watch.fake.starts() == 4


async def test_a_server_that_no_longer_answers_is_ended(home: Path) -> None:
    async with watching(home, answer_seconds=0.2) as watch:
        await watch.look()
        await watch.fake.tell("swallow thread/list")
        trouble = await watch.trouble()
        assert trouble.is_down
        assert "no answer to 'thread/list'" in str(trouble)
        assert await is_gone(await watch.fake.pid())


async def test_nothing_of_a_server_is_left_when_we_close(watch: Watching) -> None:
    await watch.fake.tell("child")
    await watch.look()
    [child] = await watch.fake.notes("child")
    pid = await watch.fake.pid()
    assert os.getsid(pid) == pid  # what is sent to our terminal is not for it
    await watch.source.aclose()
    await watch.source.aclose()
    assert await is_gone(pid)
    await eventually(lambda: is_gone(child["child"]))
    assert not watch.source.is_alive


async def test_one_that_does_not_end_with_its_stdin_is_killed(watch: Watching) -> None:
    await watch.fake.tell("stubborn")
    await watch.look()
    await watch.source.aclose()
    assert await is_gone(await watch.fake.pid())


async def test_garbage_between_the_messages_does_no_harm(watch: Watching) -> None:
    await watch.fake.tell(
        thread(),
        "print WARNING: something",
        'print {"id": 99, "result": {}}',
        'print {"method": 7}',
        'print {"method": "thread/started", "params": [1]}',
        'print {"method": "turn/started", "params": "x"}',
    )
    await watch.look()
    assert watch.heard.types("t1") == ["thread.listed", "thread.idle"]
    assert await watch.fake.methods() == ["initialize", "initialized", "thread/list"]  # no answers


# ----------------------------------------------------------------------- what is not ours to answer


async def test_an_approval_is_never_answered_not_even_when_we_leave(watch: Watching) -> None:
    request = {
        "method": "item/commandExecution/requestApproval",
        "id": 0,
        "params": {"threadId": "t1", "turnId": "u1", "itemId": "c1", "command": "rm x"},
    }
    question = {"method": "item/tool/requestUserInput", "id": "q", "params": {"threadId": "t1"}}
    await watch.fake.tell(thread(), f"send {json.dumps(request)}", f"send {json.dumps(question)}")
    await watch.look()
    await watch.look()
    await watch.source.aclose()
    assert await watch.fake.methods() == ["initialize", "initialized", *["thread/list"] * 2]
    assert watch.heard.types("t1") == ["thread.listed", "thread.idle"]


def test_a_request_is_news_to_somebody_who_only_watches() -> None:
    message = decode_for_watching(b'{"id":0,"method":"ask","params":{"a":1}}')
    assert isinstance(message, Notification)
    assert (message.method, decode_value(message.params)) == ("ask", {"a": 1})
    assert isinstance(decode_for_watching(b'{"id":0,"result":{}}'), Response)
    [one, two] = decode_for_watching(b'[{"id":0,"method":"a"},{"method":"b"}]')  # type: ignore[misc]
    assert [one, two] == [Notification("a"), Notification("b")]
    malformed = decode_for_watching(b'{"id":0,"method":7}')
    assert malformed.is_response  # type: ignore[union-attr]


# ------------------------------------------------------------------------------- a shared server


class Shared:
    """A server on the socket that Codex's programs share."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.peers: list[Connection] = []
        self.threads: dict[str, dict[str, Any]] = {}
        self.answers: list[Any] = []

    def put(self, thread_id: str, status: object, **more: Any) -> dict[str, Any]:
        made = {"id": thread_id, "cwd": "/project", "status": status, "updatedAt": 1, **more}
        self.threads[thread_id] = made
        return made

    async def handle(self, message: Request | Notification, context: Context) -> Any:
        params = decode_value(message.params)
        self.asked.append(message.method)
        match message.method:
            case "initialize":
                self.peers.append(context.connection)
                return {"userAgent": "codex-tui/0.166.0 (fake)"}
            case "thread/list":
                return {"data": [each for each in self.threads.values() if "listed" in each]}
            case "thread/loaded/list":
                return {"data": list(self.threads)}
            case "thread/read":
                return {"thread": self.threads[params["threadId"]]}
        return None

    async def tell(self, method: str, **params: Any) -> None:
        for peer in self.peers:
            await peer.notify(method, params)

    def status(self, thread_id: str, status: object) -> Any:
        return self.tell("thread/status/changed", threadId=thread_id, status=status)


def shared_socket(home: Path) -> Path:
    directory = home / ".codex" / "app-server-control"
    directory.mkdir(parents=True, exist_ok=True)
    # Codex keeps it elsewhere and puts a link here.
    real = home / "s.sock"
    link = directory / "app-server-control.sock"
    if not link.is_symlink():
        link.symlink_to(real)
    return real


@asynccontextmanager
async def sharing(home: Path, server: Shared) -> AsyncIterator[None]:
    builder = Connection.builder().name("shared").on_message(server.handle)
    async with listen(f"ws+unix://{shared_socket(home)}", builder):
        yield


async def test_a_shared_server_is_watched_instead_of_one_of_our_own(
    watch: Watching, home: Path
) -> None:
    server = Shared()
    server.put("t1", {"type": "active", "activeFlags": []}, listed=True, name="Named")
    async with sharing(home, server):
        await watch.look()
        assert watch.source.is_shared
        assert watch.source.version == "0.166.0"
        assert watch.heard.types("t1") == ["thread.listed", "session.named", "thread.active"]
        await server.status("t1", {"type": "active", "activeFlags": ["waitingOnApproval"]})
        await watch.heard.wait_for("thread.waitingOnApproval", "t1")
        await watch.source.aclose()
    assert await watch.fake.starts() == 0


async def test_a_thread_without_a_prompt_is_known_though_it_is_not_listed(
    watch: Watching, home: Path
) -> None:
    server = Shared()
    server.put("t1", {"type": "idle"})
    async with sharing(home, server):
        await watch.look()
        await watch.look()
        assert watch.heard.types("t1") == ["thread.listed", "thread.idle"]
        assert server.asked.count("thread/read") == 1
        await watch.source.aclose()


async def test_the_thread_that_thinks_of_a_title_is_not_told(watch: Watching, home: Path) -> None:
    server = Shared()
    server.put("early", {"type": "idle"}, ephemeral=True, threadSource="thread_title")
    async with sharing(home, server):
        await watch.look()
        # One was there before us; one begins while we look on, and one before we knew of it.
        await server.status("early", {"type": "active", "activeFlags": []})
        late = server.put("late", {"type": "idle"}, ephemeral=True, threadSource="thread_title")
        await server.tell("thread/started", thread=late)
        await server.status("late", {"type": "active", "activeFlags": []})
        server.put("unknown", {"type": "idle"}, ephemeral=True, threadSource="thread_title")
        await server.status("unknown", {"type": "active", "activeFlags": []})
        mine = server.put("mine", {"type": "idle"})
        await server.tell("thread/started", thread=mine)
        await watch.heard.wait_for("thread.idle", "mine")
        await watch.look()
        await server.status("unknown", {"type": "idle"})
        await server.status("mine", {"type": "active", "activeFlags": []})
        await watch.heard.wait_for("thread.active", "mine")
        assert {each.session_key for each in watch.heard.observations} == {"codex:mine"}
        await watch.source.aclose()


async def test_what_is_told_of_a_thread_we_do_not_know_waits_until_we_do(
    watch: Watching, home: Path
) -> None:
    server = Shared()
    async with sharing(home, server):
        await watch.look()
        server.put("t1", {"type": "idle"})
        await server.status("t1", {"type": "active", "activeFlags": []})
        await server.status("t1", {"type": "idle"})
        await server.tell("turn/completed", threadId="gone", turn={"status": "completed"})
        await watch.look()
        assert watch.heard.types("t1") == ["thread.active", "thread.idle", "thread.listed"]
        assert watch.heard.types("gone") == []
        await watch.source.aclose()


async def test_a_shared_server_that_appears_takes_the_place_of_ours(
    watch: Watching, home: Path
) -> None:
    await watch.look()
    pid = await watch.fake.pid()
    server = Shared()
    async with sharing(home, server):
        await watch.look()
        assert watch.source.is_shared
        assert await is_gone(pid)
        server.peers[0].close_soon()
        await eventually(lambda: not watch.source.is_alive)
        assert (await watch.trouble()).is_down
    await watch.look()  # it is gone: there is one of our own again
    assert watch.source.is_alive
    assert not watch.source.is_shared
    assert await watch.fake.starts() == 2


async def test_a_socket_that_was_left_behind_is_no_trouble(watch: Watching, home: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(shared_socket(home)))
    await watch.look()
    assert watch.source.is_alive
    assert not watch.source.is_shared


async def test_a_server_that_just_starts_is_left_to_whoever_started_it(home: Path) -> None:
    server = Shared()
    async with watching(home, settle_seconds=60.0) as watch, sharing(home, server):
        started = watch.time.now().timestamp() - 1
        await asyncio.to_thread(os.utime, home / "s.sock", (started, started))
        await watch.look()
        assert not watch.source.is_shared
        watch.time.advance(60)
        await watch.look()
        assert watch.source.is_shared
        await watch.source.aclose()


async def test_without_the_library_for_websockets_ours_is_watched_and_the_reason_is_told(
    watch: Watching, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(home, Shared()):
        monkeypatch.setitem(sys.modules, "websockets", None)
        await watch.fake.tell(thread())
        trouble = await watch.trouble()
        assert not trouble.is_down
        assert "pip install websockets" in str(trouble)
        assert watch.source.is_alive
        assert watch.heard.types("t1") == ["thread.listed", "thread.idle"]
        assert "pip install websockets" in str(await watch.trouble())
    await watch.look()  # without a shared server there is nothing to be heard there


async def test_a_shared_server_that_hangs_is_passed_over(home: Path) -> None:
    async def swallow(message: Request | Notification, context: Context) -> None:
        if isinstance(message, Request):
            kept.append(context.detach())

    kept: list[Any] = []
    builder = Connection.builder().name("hangs").on_message(swallow)
    async with (
        watching(home, handshake_seconds=1.0) as watch,
        listen(f"ws+unix://{shared_socket(home)}", builder),
    ):
        trouble = await watch.trouble()
        assert not trouble.is_down
        assert "cannot be heard" in str(trouble)
        assert watch.source.is_alive
        await watch.source.aclose()
