"""The state file of a process says what it is doing, also where no hook does."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bullpen.agents.providers.claude.errors import NotUnderstood
from bullpen.agents.providers.claude.sessions import SessionFile, parse_session_file
from bullpen.model.states import Activity
from tests.agents.claude.recorded import lines

FILE = {"pid": 12, "sessionId": "s", "startedAt": 1_794_751_977_165}
NOW = datetime(2026, 11, 15, 14, 30, tzinfo=UTC)


def parse(**fields: Any) -> SessionFile:
    return parse_session_file(json.dumps({**FILE, **fields}).encode())


def test_a_recorded_run_goes_through_its_states() -> None:
    seen: list[Activity | None] = []
    for line in lines("sessions-turns.jsonl"):
        activity = parse_session_file(line).activity
        if not seen or seen[-1] is not activity:
            seen.append(activity)
    assert [activity and activity.value for activity in seen] == [
        None,  # it has not said yet
        *("idle", "running", "idle"),
        *("running", "waiting_approval", "running", "idle"),
        *("running", "waiting_approval", "idle"),  # refused by Esc
        *("running", "idle", "running", "idle"),  # ended by Esc
        *("running", "idle", "running", "idle"),  # ended with an error
        *("running", "idle", "running", "idle"),  # /clear, /rename
        *("waiting_input", "idle"),  # the menu of /model
    ]


def test_a_recorded_file_says_who_it_is_about() -> None:
    first, last = (
        parse_session_file(lines("sessions-turns.jsonl")[1]),
        lines("sessions-turns.jsonl"),
    )
    assert first == SessionFile(
        pid=29830,
        session_id="2b0a905b-38cc-439d-8bf6-420404536397",
        cwd="/home/dev/my.proj_1",
        process_start="1187936",
        version="2.1.197",
        entrypoint="cli",
        status="idle",
        started_at=datetime(2026, 11, 15, 14, 12, 57, 165_000, UTC),
        status_at=datetime(2026, 11, 15, 14, 12, 57, 131_000, UTC),
    )
    cleared = parse_session_file(last[-1])
    assert cleared.pid == first.pid
    assert cleared.session_id != first.session_id


@pytest.mark.requirement("TTL-4")
def test_only_a_name_that_somebody_chose_is_one() -> None:
    assert parse(name="my-proj-1-a4", nameSource="derived").name == ""
    assert parse(name="reviewer").name == "reviewer"


@pytest.mark.parametrize(
    ("fields", "activity"),
    [
        ({}, None),
        ({"status": "busy"}, Activity.RUNNING),
        ({"status": "idle"}, Activity.IDLE),
        ({"status": "shell"}, Activity.IDLE),
        ({"status": "waiting", "waitingFor": "permission prompt"}, Activity.WAITING_APPROVAL),
        ({"status": "waiting", "waitingFor": "worker request"}, Activity.WAITING_APPROVAL),
        ({"status": "waiting", "waitingFor": "sandbox request"}, Activity.WAITING_APPROVAL),
        ({"status": "waiting", "waitingFor": "dialog open"}, Activity.WAITING_INPUT),
        ({"status": "waiting", "waitingFor": "input needed"}, Activity.WAITING_INPUT),
        ({"status": "waiting"}, Activity.WAITING_INPUT),
        ({"status": "a word of a later version"}, None),
        ({"status": 7}, None),
    ],
)
def test_each_status_has_its_meaning(fields: dict[str, Any], activity: Activity | None) -> None:
    assert parse(**fields).activity is activity


def test_a_status_is_as_old_as_it_says_if_that_can_be() -> None:
    started = 1_794_751_977_165
    said = parse(status="idle", statusUpdatedAt=started + 1000)
    assert said.observed_at(NOW) == datetime(2026, 11, 15, 14, 12, 58, 165_000, UTC)
    just_now = parse(status="idle", statusUpdatedAt=NOW.timestamp() * 1000 - 900)
    assert just_now.observed_at(NOW) == NOW - timedelta(milliseconds=900)
    just_before = parse(status="idle", statusUpdatedAt=started - 34)
    assert just_before.observed_at(NOW) < NOW
    ahead = parse(status="idle", statusUpdatedAt=NOW.timestamp() * 1000 + 900)
    assert ahead.observed_at(NOW) == NOW
    for impossible in (None, 0, started - 60_000, started * 2, 10**30, "soon", True):
        assert parse(status="idle", statusUpdatedAt=impossible).observed_at(NOW) == NOW
    unknown_start = parse(status="idle", startedAt=None, statusUpdatedAt=started)
    assert unknown_start.observed_at(NOW) < NOW - timedelta(minutes=1)


WHOLE = lines("sessions-turns.jsonl")[1]


@pytest.mark.parametrize("size", [0, 1, 100, len(WHOLE) - 1])
def test_half_a_file_is_not_understood(size: int) -> None:
    with pytest.raises(NotUnderstood, match="a session file: "):
        parse_session_file(WHOLE[:size])


@pytest.mark.parametrize(
    "data",
    [
        WHOLE + b'","statusUpdatedAt":1}',  # a shorter text written over a longer one
        b"[]",
        b"null",
        b"{}",
        b'{"pid": 12}',
        b'{"sessionId": "s"}',
        b'{"pid": "12", "sessionId": "s"}',
        b'{"pid": true, "sessionId": "s"}',
        b'{"pid": -1, "sessionId": "s"}',
        b'{"pid": 0, "sessionId": "s"}',
        b'{"pid": 99999999999, "sessionId": "s"}',
        b'{"pid": 12, "sessionId": 5}',
    ],
)
def test_what_names_no_process_and_session_is_not_understood(data: bytes) -> None:
    with pytest.raises(NotUnderstood):
        parse_session_file(data)
