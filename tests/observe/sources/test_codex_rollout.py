"""Codex's session files, as they are written, found again, held open and let go of."""

import json
import os
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bullpen.model.events import activity_of
from bullpen.model.observations import Origin
from bullpen.model.states import Activity, EvidenceTier, Provider, SourceKind
from bullpen.observe.sources.codex_rollout import CodexRollout
from bullpen.observe.sources.port import SourceTrouble
from tests.agents.codex import recorded
from tests.observe.sources.codex_heard import Heard, Time

THREAD = "01a1df88-2bd0-7fe2-9f47-6b57f59c49e{}"


class Codex:
    """A directory of Codex's, the processes that write there, and a source that reads it."""

    def __init__(self, home: Path) -> None:
        self.time = Time()
        self.heard = Heard()
        self.home = home / ".codex"
        self.home.mkdir()
        self.proc = home / "proc"
        (self.proc / "self" / "fd").mkdir(parents=True)
        self.project = home / "project"
        self.project.mkdir()
        self.source = CodexRollout(self.time.now, self.home, proc=self.proc)

    async def look(self, seconds: float = 1.0) -> list[str]:
        """Let time pass, look, and return the types of what is told."""
        self.time.advance(seconds)
        self.heard.clear()
        await self.source.look()
        return self.heard.types()

    def begin(self, number: int = 0, *, day: str = "2026/11/15", **meta: Any) -> "File":
        thread_id = THREAD.format(number)
        directory = self.home / "sessions" / day
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"rollout-2026-11-15T14-00-00-{thread_id}.jsonl"
        file = File(self.time, path, thread_id)
        fields = {"id": thread_id, "cwd": str(self.project), "originator": "codex-tui"}
        file.write("session_meta", **fields, cli_version="0.166.0", source="cli", **meta)
        return file

    def run(self, pid: int, *files: "File", argv: tuple[str, ...] = ("codex",)) -> None:
        """Have a process that has files open."""
        directory = self.proc / str(pid)
        (directory / "fd").mkdir(parents=True)
        (directory / "comm").write_text("codex\n")
        (directory / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
        fields = ["S", *map(str, range(4, 22)), f"9{pid}", *map(str, range(23, 30))]
        (directory / "stat").write_text(f"{pid} (codex) {' '.join(fields)}")
        for number, file in enumerate(files):
            (directory / "fd" / str(number)).symlink_to(file.path.resolve())

    def end(self, pid: int) -> None:
        shutil.rmtree(self.proc / str(pid))

    def name(self, file: "File", name: str) -> None:
        with (self.home / "session_index.jsonl").open("a") as index:
            index.write(json.dumps({"id": file.thread_id, "thread_name": name}) + "\n")


class File:
    """A session file, dated by the test's clock."""

    def __init__(self, time: Time, path: Path, thread_id: str) -> None:
        self.time = time
        self.path = path
        self.thread_id = thread_id

    def write(self, kind: str, **payload: Any) -> None:
        at = self.time.now().isoformat().replace("+00:00", "Z")
        self.append(json.dumps({"timestamp": at, "type": kind, "payload": payload}) + "\n")

    def append(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)
        now = self.time.now().timestamp()
        os.utime(self.path, (now, now))

    def event(self, kind: str, **payload: Any) -> None:
        self.write("event_msg", type=kind, turn_id="u1", **payload)

    def call(self, call_id: str) -> None:
        self.write("response_item", type="function_call", name="exec_command", call_id=call_id)


@pytest.fixture
async def codex(home: Path) -> AsyncIterator[Codex]:
    codex = Codex(home)
    await codex.source.open(codex.heard)
    yield codex
    await codex.source.aclose()


async def test_without_any_files_there_is_nothing_to_tell(codex: Codex) -> None:
    assert await codex.look() == []
    assert codex.source.kind is SourceKind.CODEX_ROLLOUT


async def test_a_new_file_is_found_at_the_next_look_and_all_of_it_is_told(codex: Codex) -> None:
    await codex.look()
    file = codex.begin()
    codex.run(41, file)
    file.event("task_started")
    assert await codex.look() == ["turn.started"]
    file.call("c1")
    assert await codex.look() == ["tool.started"]
    file.event("task_complete")
    assert await codex.look() == ["turn.completed"]
    assert await codex.look() == []


@pytest.mark.requirement("COR-1", "COR-3")
async def test_what_is_told_says_where_and_when_it_was(codex: Codex) -> None:
    await codex.look()
    file = codex.begin()
    codex.run(41, file)
    at = codex.time.now()
    file.event("task_started")
    await codex.look()
    [observation] = codex.heard.observations
    assert observation.session_key == f"codex:{file.thread_id}"
    assert observation.observed_at == at
    assert observation.provider is Provider.CODEX
    assert observation.source_kind is SourceKind.CODEX_ROLLOUT
    assert observation.tier is EvidenceTier.DETERMINISTIC
    assert observation.source_event_id == "u1"
    assert observation.origin == Origin(
        pid=41, process_start="941", cwd=str(codex.project.resolve())
    )
    size = len(file.path.read_bytes().splitlines()[0]) + 1
    assert observation.event_id == f"{file.path.stat().st_ino}:{size}"
    assert codex.source.version == "0.166.0"


async def test_a_directory_is_told_as_what_it_leads_to(codex: Codex) -> None:
    link = codex.project.parent / "link"
    link.symlink_to(codex.project)
    await codex.look()
    file = codex.begin()
    file.write("turn_context", cwd=f"{link}/")
    file.event("task_started")
    await codex.look()
    assert codex.heard.last(file.thread_id).origin == Origin(cwd=str(codex.project.resolve()))


async def test_of_what_was_there_before_us_the_last_state_is_told_as_of_its_time(
    codex: Codex,
) -> None:
    file = codex.begin()
    codex.run(41, file)
    file.event("task_started")
    file.event("task_complete")
    codex.time.advance(3)
    at = codex.time.now()
    file.event("task_started")
    codex.time.advance(200)
    assert await codex.look() == ["turn.started"]
    assert codex.heard.last(file.thread_id).observed_at == at


async def test_the_last_words_of_a_session_that_is_over_are_not_told(codex: Codex) -> None:
    file = codex.begin()
    file.event("task_started")  # and then it was killed
    assert await codex.look() == []
    # Somebody takes it up again.
    codex.run(42, file)
    file.event("task_started")
    assert await codex.look(3) == ["turn.started", "session.located"]
    assert codex.heard.last(file.thread_id).origin == Origin(
        pid=42, process_start="942", cwd=str(codex.project.resolve())
    )


async def test_where_nobody_can_tell_who_has_files_open_the_recent_ones_are_believed(
    codex: Codex,
) -> None:
    shutil.rmtree(codex.proc)
    recent = codex.begin(1)
    recent.event("task_started")
    assert await codex.look(14 * 60) == ["turn.started"]
    assert codex.heard.last(recent.thread_id).origin == Origin(cwd=str(codex.project.resolve()))
    assert await codex.look(3600) == []  # nor can it be told that it is over


async def test_a_file_of_long_ago_is_followed_as_long_as_its_process_lives(codex: Codex) -> None:
    old = codex.begin(1, day="2025/01/31")
    codex.run(41, old)
    old.event("task_complete")
    unused = codex.begin(2, day="2025/01/30")
    unused.event("task_started")
    codex.time.advance(86400)
    assert await codex.look() == ["turn.completed"]
    old.event("task_started")
    assert await codex.look() == ["turn.started"]
    assert codex.heard.about(unused.thread_id) == []


async def test_an_old_session_that_is_taken_up_is_found_by_its_prompt(codex: Codex) -> None:
    file = codex.begin(day="2025/01/31")
    file.event("task_complete")
    codex.begin(1)
    codex.time.advance(86400)
    await codex.look()
    (codex.home / "history.jsonl").write_text("{}\n")
    assert await codex.look() == []  # the file itself is written a moment later
    codex.run(41, file)
    file.event("task_started")
    assert await codex.look() == ["turn.completed", "turn.started"]


async def test_an_old_session_is_found_within_half_a_minute_in_any_case(codex: Codex) -> None:
    file = codex.begin(day="2025/01/31")
    file.event("task_complete")
    codex.time.advance(86400)
    await codex.look()
    file.event("task_started")
    assert await codex.look(29) == []
    assert await codex.look(1) == ["turn.completed", "turn.started"]


async def test_a_session_is_over_when_its_process_is_gone(codex: Codex) -> None:
    await codex.look()
    file = codex.begin()
    codex.run(41, file)
    file.event("task_started")
    await codex.look()
    assert await codex.look() == []
    assert await codex.look() == []
    codex.end(41)
    assert await codex.look() == ["session.ended"]
    assert codex.heard.last(file.thread_id).observed_at == codex.time.now()
    assert await codex.look() == []


async def test_a_process_with_the_same_number_is_another(codex: Codex) -> None:
    await codex.look()
    file = codex.begin()
    codex.run(41, file)
    file.event("task_started")
    await codex.look()
    stat = codex.proc / "41" / "stat"
    stat.write_text(stat.read_text().replace("941", "942"))
    (codex.proc / "41" / "fd" / "0").unlink()
    assert await codex.look() == ["session.ended"]


async def test_one_that_is_dead_and_still_listed_is_gone(codex: Codex) -> None:
    await codex.look()
    file = codex.begin()
    codex.run(41, file)
    file.event("task_started")
    await codex.look()
    stat = codex.proc / "41" / "stat"
    stat.write_text(stat.read_text().replace(") S", ") Z"))
    (codex.proc / "41" / "fd" / "0").unlink()
    assert await codex.look() == ["session.ended"]


async def test_a_session_another_process_has_taken_over_goes_on(codex: Codex) -> None:
    await codex.look()
    file = codex.begin()
    codex.run(41, file)
    file.event("task_complete")
    await codex.look()
    codex.end(41)
    codex.run(42, file)
    assert await codex.look() == ["session.located"]
    assert codex.heard.last(file.thread_id).payload["originator"] == "codex-tui"


async def test_a_run_nobody_saw_the_process_of_is_over_when_it_was_silent_for_long(
    codex: Codex,
) -> None:
    await codex.look()
    file = codex.begin()
    file.event("task_started")
    file.event("task_complete")
    assert await codex.look() == ["turn.started", "turn.completed"]
    assert await codex.look(14 * 60) == []
    assert await codex.look(2 * 60) == ["session.ended"]
    assert await codex.look(60) == []


async def test_threads_on_a_server_are_found_by_their_directory_not_its_process(
    codex: Codex,
) -> None:
    await codex.look()
    file = codex.begin()
    codex.run(41, file, argv=("codex", "app-server", "--listen", "unix://"))
    file.event("task_started")
    await codex.look()
    assert codex.heard.last(file.thread_id).origin == Origin(cwd=str(codex.project.resolve()))
    codex.end(41)
    assert await codex.look() == ["session.ended"]


@pytest.mark.parametrize(
    "meta",
    [{"thread_source": "thread_title"}, {"parent_thread_id": "p"}],
    ids=["title", "subagent"],
)
async def test_the_files_of_threads_nobody_works_in_are_passed_over(
    codex: Codex, meta: dict[str, str]
) -> None:
    await codex.look()
    hidden = codex.begin(1, **meta)
    hidden.event("task_started")
    mine = codex.begin(2)
    mine.event("task_started")
    assert await codex.look() == ["turn.started"]
    hidden.event("task_complete")
    mine.event("task_complete")
    assert await codex.look() == ["turn.completed"]
    assert codex.heard.about(hidden.thread_id) == []


@pytest.mark.requirement("TTL-4")
async def test_a_thread_is_told_by_the_name_it_was_given(codex: Codex) -> None:
    await codex.look()
    file, other = codex.begin(1), codex.begin(2)
    codex.name(file, "First title")
    codex.name(file, "Fix the tests")
    file.event("task_started")
    assert await codex.look() == ["turn.started", "session.named"]
    assert codex.heard.last(file.thread_id).payload == {"title": "Fix the tests"}
    assert await codex.look() == []
    codex.name(other, "Another")  # nothing happens in it
    for name in ("Mend the tests", "Fix the tests"):
        codex.name(file, name)
        assert await codex.look() == ["session.named"]
        assert codex.heard.last(file.thread_id).payload == {"title": name}


async def test_a_line_waits_for_its_end(codex: Codex) -> None:
    await codex.look()
    file = codex.begin()
    whole = json.dumps({"type": "event_msg", "payload": {"type": "task_started"}})
    file.append(whole[:20])
    assert await codex.look() == []
    file.append(whole[20:])
    assert await codex.look() == []
    file.append("\n")
    assert await codex.look() == ["turn.started"]


async def test_a_file_whose_first_line_is_not_complete_is_read_when_it_is(codex: Codex) -> None:
    await codex.look()
    file = codex.begin()
    text = file.path.read_text()
    file.path.write_text(text[:30])
    assert await codex.look() == []
    file.append(text[30:])
    file.event("task_started")
    assert await codex.look() == ["turn.started"]


async def test_a_file_that_was_written_anew_tells_its_last_state(codex: Codex) -> None:
    await codex.look()
    file = codex.begin()
    for kind in ("task_started", "task_complete", "task_started"):
        file.event(kind)
    await codex.look()
    codex.time.advance(60)
    await codex.look()
    lines = file.path.read_text().splitlines(keepends=True)
    file.path.write_text("".join(lines[:3]))
    assert await codex.look() == ["turn.completed"]


async def test_what_ends_a_tool_is_told_once_though_it_is_read_at_two_looks(codex: Codex) -> None:
    await codex.look()
    file = codex.begin()
    file.event("task_started")
    file.call("c1")
    await codex.look()
    file.event("item_completed", item={"type": "CommandExecution", "id": "c1"})
    assert await codex.look() == ["tool.completed"]
    file.write("response_item", type="function_call_output", call_id="c1")
    assert await codex.look() == []


async def test_a_thread_without_a_directory_is_nowhere(codex: Codex) -> None:
    await codex.look()
    file = codex.begin()
    text = file.path.read_text().replace(str(codex.project), "")
    file.path.write_text(text)
    file.event("task_started")
    await codex.look()
    assert codex.heard.last(file.thread_id).origin == Origin()


async def test_a_disk_that_cannot_be_read_is_said_and_tried_again(
    codex: Codex, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    await codex.look()
    file = codex.begin()
    codex.run(41, file)
    file.event("task_started")
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        with pytest.raises(SourceTrouble, match="Permission denied") as caught:
            await codex.look()
    assert caught.value.is_down
    assert await codex.look() == ["turn.started"]


async def test_lines_that_cannot_be_read_are_said_to_be_so_and_the_rest_is_told(
    codex: Codex,
) -> None:
    await codex.look()
    file = codex.begin()
    await codex.look()
    file.append('{"type": "event_msg"\n')
    file.append("x" * (2 * 2**20 + 1) + "\n")
    file.event("task_started")
    with pytest.raises(SourceTrouble, match="2 lines are too long or no JSON") as caught:
        await codex.look()
    assert not caught.value.is_down
    assert codex.heard.types() == ["turn.started"]


async def test_a_recorded_session_is_told_from_its_file(codex: Codex) -> None:
    lines = recorded.rollout(recorded.TERMINAL).read_text().splitlines(keepends=True)
    directory = codex.home / "sessions/2026/11/15"
    directory.mkdir(parents=True)
    codex.time.at = datetime(2026, 11, 15, 14, 6, 45, tzinfo=UTC)
    await codex.look(0)
    file = File(codex.time, directory / recorded.rollout(recorded.TERMINAL).name, recorded.TERMINAL)
    codex.run(41)
    told: list[Activity] = []
    for line in lines:
        at = datetime.fromisoformat(json.loads(line)["timestamp"])
        while codex.time.now() < at:
            codex.time.at = min(at, codex.time.now() + timedelta(seconds=1))
        file.append(line)
        if not (codex.proc / "41/fd/0").is_symlink():
            (codex.proc / "41/fd/0").symlink_to(file.path.resolve())
        await codex.look(0)
        for each in codex.heard.observations:
            activity = activity_of(each.event_type)
            if activity is not None and (not told or told[-1] is not activity):
                told.append(activity)
    turns = [Activity.RUNNING, Activity.IDLE]
    assert told == [
        *turns * 5,
        *[Activity.RUNNING, Activity.ERROR] * 2,
        *[Activity.RUNNING, Activity.RATE_LIMITED],
        *turns * 2,
    ]


async def test_what_cannot_be_read_at_all_is_said(codex: Codex) -> None:
    (codex.home / "session_index.jsonl").write_text("{}\n")
    file = codex.begin()
    file.event("task_started")
    directory = file.path.parent
    unreadable = directory / f"rollout-2026-11-15T14-00-00-{THREAD.format(9)}.jsonl"
    unreadable.mkdir()
    shutil.rmtree(codex.proc)
    with pytest.raises(SourceTrouble, match="Is a directory"):
        await codex.look()
    assert codex.heard.types() == ["turn.started"]  # the others are read all the same


async def test_looking_at_what_does_not_change_opens_no_file(
    codex: Codex, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        file = codex.begin(number)
        file.event("task_complete")
        codex.name(file, "A name")
        codex.run(40 + number, file)
    await codex.look()
    await codex.look()
    opened: list[str] = []
    listed: list[str] = []
    real_open, real_scan = os.open, os.scandir

    def note_open(path: Any, *arguments: Any, **options: Any) -> int:
        opened.append(str(path))
        return real_open(path, *arguments, **options)

    def note_scan(path: Any) -> Any:
        listed.append(str(path))
        return real_scan(path)

    monkeypatch.setattr(os, "open", note_open)
    monkeypatch.setattr(os, "scandir", note_scan)
    for _ in range(10):
        await codex.look()
    assert (opened, listed) == ([], [])


async def test_where_there_is_no_proc_nothing_is_concluded_from_nobody(codex: Codex) -> None:
    file = codex.begin()
    file.event("task_started")
    shutil.rmtree(codex.proc)
    assert "turn.started" in await codex.look()
    for _ in range(5):
        assert "session.ended" not in await codex.look(60)
