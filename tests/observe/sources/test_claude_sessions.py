"""State files tell what living processes are doing, and nothing of dead ones."""

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from bullpen.model.observations import Observation, Origin
from bullpen.model.states import EvidenceTier, Provider, SourceKind
from bullpen.observe.sources.blocking import BlockingLook
from bullpen.observe.sources.claude_sessions import ClaudeSessions
from bullpen.observe.sources.port import SourceTrouble
from tests.agents.claude.recorded import lines
from tests.observe.sources.claude_world import CWD, OTHER, SESSION, START, World, emitted, told
from tests.observe.sources.claude_world import milliseconds as ms

Look = Callable[[], Awaitable[list[Observation]]]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def source(world: World) -> ClaudeSessions:
    return ClaudeSessions(world.now, world.config, proc=world.proc)


@pytest.fixture
def look(source: ClaudeSessions) -> Look:
    return emitted(source)


async def test_without_the_program_there_is_nothing_to_see(look: Look) -> None:
    assert await look() == []


@pytest.mark.requirement("SIG-1")
async def test_a_running_session_is_told_at_the_first_look_with_all_that_is_known(
    world: World, look: Look, source: ClaudeSessions
) -> None:
    since = START + timedelta(minutes=1)
    world.start(12, status="busy", statusUpdatedAt=ms(since))
    [said] = await look()
    assert said == Observation(
        event_id=f"12-100-{ms(since)}-busy",
        provider=Provider.CLAUDE,
        source_kind=SourceKind.CLAUDE_SESSIONS,
        tier=EvidenceTier.DETERMINISTIC,
        observed_at=since,
        session_key=f"claude:{SESSION}",
        event_type="activity.running",
        source_event_id=f"12-100-{ms(since)}-busy",
        payload={"status": "busy"},
        origin=Origin(pid=12, process_start="100", cwd=CWD),
    )
    assert source.version == "2.1.197"


async def test_what_does_not_change_is_not_told_again(world: World, look: Look) -> None:
    world.start(12, status="idle", statusUpdatedAt=ms(START))
    assert told(await look()) == [(SESSION, "activity.idle")]
    assert await look() == []
    world.register(12, status="idle", statusUpdatedAt=ms(START), updatedAt=ms(START) + 5)
    assert await look() == []


async def test_a_state_that_came_back_between_two_looks_is_told(world: World, look: Look) -> None:
    world.start(12, status="idle", statusUpdatedAt=ms(START))
    first = await look()
    world.register(12, status="idle", statusUpdatedAt=ms(START) + 1)
    second = await look()
    assert [each.event_type for each in first + second] == ["activity.idle"] * 2
    assert first[0].event_id != second[0].event_id


@pytest.mark.requirement("DET-9")
async def test_a_recorded_run_is_told_from_its_beginning_to_its_end(
    world: World, look: Look
) -> None:
    world.start(29830)
    world.run(29830, start="1187936")
    world.time = START + timedelta(hours=1)
    said: list[Observation] = []
    for line in lines("sessions-turns.jsonl"):
        world.session_path(29830).write_bytes(line)
        said += await look()
    world.end(29830)
    said += await look()
    first = [each.event_type for each in said if each.session_key == f"claude:{SESSION}"]
    assert first == [
        "activity.starting",
        *("activity.idle", "activity.running", "activity.idle"),
        *("activity.running", "activity.waiting_approval", "activity.running", "activity.idle"),
        *("activity.running", "activity.waiting_approval", "activity.idle"),
        *["activity.running", "activity.idle"] * 4,
        "session.ended",
    ]
    second = [each for each in said if each.session_key == f"claude:{OTHER}"]
    assert [each.event_type for each in second] == [
        *("activity.running", "activity.idle"),
        "session.named",
        *("activity.running", "activity.idle", "activity.waiting_input", "activity.idle"),
        "session.ended",
    ]
    assert len({(each.session_key, each.event_id) for each in said}) == len(said)
    assert all(
        each.observed_at <= world.time and each.origin and each.origin.pid == 29830 for each in said
    )


async def test_a_cleared_session_is_over_once_the_next_one_is_told(
    world: World, look: Look
) -> None:
    world.start(12, status="idle")
    await look()
    world.register(12, OTHER, status="busy")
    said = await look()
    assert told(said) == [(OTHER, "activity.running"), (SESSION, "session.ended")]
    assert said[1].payload == {"replaced_by": f"claude:{OTHER}"}


@pytest.mark.requirement("TTL-1", "TTL-4")
async def test_a_name_that_somebody_gave_is_told_once(world: World, look: Look) -> None:
    world.start(12, status="idle", name="my-proj-1-a4", nameSource="derived")
    assert told(await look()) == [(SESSION, "activity.idle")]
    world.register(12, status="idle", name="reviewer")
    [named] = await look()
    assert (named.event_type, named.payload) == ("session.named", {"title": "reviewer"})
    assert await look() == []
    world.pass_seconds(1)
    world.register(12, status="idle", name="writer")
    world.pass_seconds(1)
    [again] = await look()
    assert again.event_id != named.event_id


async def test_a_shell_beside_an_idle_session_is_told_as_that(world: World, look: Look) -> None:
    world.start(12, status="shell")
    [said] = await look()
    assert said.event_type == "activity.idle"
    assert said.payload["background"] is True


async def test_a_session_without_a_status_is_starting(world: World, look: Look) -> None:
    world.start(12, entrypoint="sdk-cli")
    [said] = await look()
    assert (said.event_type, said.observed_at) == ("activity.starting", START)


async def test_a_status_that_is_new_to_us_is_no_guess_but_a_trouble(
    world: World, look: Look, source: ClaudeSessions
) -> None:
    world.start(12, status="pondering")
    with pytest.raises(SourceTrouble, match="status 'pondering'") as caught:
        await look()
    assert not caught.value.is_down


async def test_a_process_that_was_killed_ends_its_session_though_its_file_stays(
    world: World, look: Look
) -> None:
    world.start(12, status="busy")
    await look()
    world.kill(12)
    [said] = await look()
    assert said.event_type == "session.ended"
    assert said.observed_at == world.now()
    assert await look() == []
    assert world.session_path(12).exists()


@pytest.mark.parametrize(
    ("start", "state"), [("999", "S"), ("100", "Z")], ids=["another-process", "zombie"]
)
async def test_a_file_that_was_left_behind_is_not_believed(
    world: World, look: Look, start: str, state: str
) -> None:
    world.register(12, status="busy")
    assert await look() == []
    world.run(12, start=start, state=state)
    assert await look() == []


async def test_the_same_number_with_another_start_is_another_process(
    world: World, look: Look
) -> None:
    world.start(12, status="busy")
    await look()
    world.run(12, start="200")
    world.register(12, OTHER, procStart="200", status="idle")
    said = await look()
    assert told(said) == [(OTHER, "activity.idle"), (SESSION, "session.ended")]
    assert said[1].payload == {}


async def test_a_session_that_two_processes_share_ends_with_the_second(
    world: World, look: Look
) -> None:
    world.start(12, status="idle")
    world.start(13, status="idle")
    await look()
    world.end(12)
    assert await look() == []
    world.end(13)
    assert told(await look()) == [(SESSION, "session.ended")]


@pytest.mark.parametrize("torn", [b"", b'{"pid":12,"sessionId', b'{"pid":12}","status":"idle"}'])
async def test_a_torn_file_is_read_again_before_it_is_called_trouble(
    world: World, look: Look, torn: bytes
) -> None:
    world.start(12, status="busy")
    await look()
    world.session_path(12).write_bytes(torn)
    assert await look() == []
    assert await look() == []
    with pytest.raises(SourceTrouble, match=r"12\.json"):
        await look()
    world.register(12, status="idle")
    assert told(await look()) == [(SESSION, "activity.idle")]


async def test_one_bad_file_does_not_hide_the_others(world: World, look: Look) -> None:
    world.start(12, status="idle")
    world.start(13, OTHER, status="idle")
    world.session_path(12).write_bytes(b"\xff\x00")
    assert told(await look()) == [(OTHER, "activity.idle")]


async def test_what_is_no_session_file_is_left_alone(world: World, look: Look) -> None:
    world.start(12, status="idle")
    directory = world.session_path(12).parent
    for name in ("notes.json", "12.json.tmp", ".json", "12", "12.", "12.txt", "²².json", "٣.json"):
        (directory / name).write_text("{}")
    assert len(await look()) == 1
    for _ in range(3):  # after which a torn file is a trouble
        assert await look() == []


async def test_a_file_about_another_process_is_not_believed(world: World, look: Look) -> None:
    world.start(12, status="idle")
    world.session_path(12).rename(world.session_path(13))
    assert await look() == []


async def test_a_pipe_in_place_of_a_file_holds_nothing_up(world: World, look: Look) -> None:
    world.start(13, OTHER, status="idle")
    os.mkfifo(world.session_path(12))
    assert told(await look()) == [(OTHER, "activity.idle")]


async def test_a_directory_that_cannot_be_read_is_a_trouble(
    world: World, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")  # which the superuser never meets

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        with pytest.raises(SourceTrouble, match="Permission denied") as caught:
            await look()
    assert caught.value.is_down


async def test_where_there_is_no_process_directory_the_number_must_do(
    world: World, look: Look
) -> None:
    world.register(os.getpid(), status="idle", procStart="Sun Nov 15 14:00:00 2026")
    world.register(2**22 + 1, OTHER, status="idle")
    assert told(await look()) == [(SESSION, "activity.idle")]


async def test_our_own_process_is_known_by_its_start(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("there is no /proc")
    world = World(tmp_path)
    look = emitted(ClaudeSessions(world.now, world.config))
    stat = Path("/proc/self/stat").read_text()  # noqa: ASYNC240 - no file that could block
    started = stat.rpartition(")")[2].split()[19]
    world.register(os.getpid(), status="idle", procStart=started)
    assert len(await look()) == 1
    world.register(os.getpid(), status="idle", procStart="1")
    assert told(await look()) == [(SESSION, "session.ended")]


async def test_a_look_that_was_given_up_is_taken_up_by_the_next() -> None:
    go_on = threading.Event()
    calls: list[int] = []

    def read() -> int:
        calls.append(1)
        go_on.wait(10)
        return len(calls)

    look = BlockingLook(read)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await look.result()
    go_on.set()
    assert await look.result() == 1
    assert await look.result() == 2


async def test_what_a_look_raises_is_raised_once() -> None:
    def read() -> int:
        raise OSError(5, "Input/output error")

    look = BlockingLook(read)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            await look.result()
