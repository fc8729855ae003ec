"""The words of the app server, in the shapes of several versions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.agents.providers.codex import appserver
from bullpen.agents.providers.codex.appserver import Thread, ThreadStatus
from bullpen.agents.providers.codex.facts import CodexFact
from bullpen.model.events import activity_of
from bullpen.model.states import Activity
from tests.agents.codex import recorded


def status_changed(status: object) -> CodexFact | None:
    return appserver.translate("thread/status/changed", {"threadId": "t1", "status": status})


@pytest.mark.requirement("CX-11", "DET-9")
@pytest.mark.parametrize(
    ("status", "event_type", "activity"),
    [
        ({"type": "idle"}, "thread.idle", Activity.IDLE),
        ("idle", "thread.idle", Activity.IDLE),
        ({"type": "active", "activeFlags": []}, "thread.active", Activity.RUNNING),
        ("active", "thread.active", Activity.RUNNING),
        ({"type": "systemError"}, "thread.systemError", Activity.ERROR),
        (
            {"type": "active", "activeFlags": ["waitingOnApproval"]},
            "thread.waitingOnApproval",
            Activity.WAITING_APPROVAL,
        ),
        (
            {"type": "active", "activeFlags": ["waitingOnUserInput"]},
            "thread.waitingOnUserInput",
            Activity.WAITING_INPUT,
        ),
        (
            {"type": "active", "activeFlags": ["waitingOnUserInput", "waitingOnApproval"]},
            "thread.waitingOnApproval",
            Activity.WAITING_APPROVAL,
        ),
        ({"type": "active", "activeFlags": ["new", 7]}, "thread.active", Activity.RUNNING),
    ],
)
def test_a_status_is_an_object_or_a_word(
    status: object, event_type: str, activity: Activity
) -> None:
    fact = status_changed(status)
    assert fact is not None
    assert (fact.thread_id, fact.event_type) == ("t1", event_type)
    assert activity_of(event_type) is activity


@pytest.mark.parametrize("status", [{"type": "notLoaded"}, "notLoaded", None, {}, 7, "sleeping"])
def test_a_status_that_tells_nothing_asserts_nothing(status: object) -> None:
    assert status_changed(status) is None


@pytest.mark.requirement("CX-9")
def test_the_start_of_a_turn_is_told_with_its_id() -> None:
    params = {"threadId": "t1", "turn": {"id": "u1", "status": "inProgress"}}
    fact = appserver.translate("turn/started", params)
    assert fact == CodexFact(event_type="turn.started", thread_id="t1", source_event_id="u1")


@pytest.mark.requirement("CX-10")
@pytest.mark.parametrize(
    ("status", "activity"),
    [
        ("completed", Activity.IDLE),
        ("interrupted", Activity.IDLE),
        ("failed", Activity.ERROR),
    ],
)
def test_the_end_of_a_turn_is_told_with_how_it_ended(status: str, activity: Activity) -> None:
    params = {"threadId": "t1", "turn": {"id": "u1", "status": status, "error": None}}
    fact = appserver.translate("turn/completed", params)
    assert fact is not None
    assert (fact.event_type, fact.source_event_id) == (f"turn.{status}", "u1")
    assert activity_of(fact.event_type) is activity


@pytest.mark.parametrize(
    "error",
    [
        {"message": "sorry", "codexErrorInfo": "usageLimitExceeded"},
        {
            "message": "sorry",
            "codexErrorInfo": {"responseTooManyFailedAttempts": {"httpStatusCode": 429}},
        },
        {"message": "exceeded retry limit, last status: 429 Too Many Requests"},
    ],
)
def test_a_turn_refused_for_usage_is_no_error(error: dict[str, Any]) -> None:
    params = {"threadId": "t1", "turn": {"id": "u1", "status": "failed", "error": error}}
    fact = appserver.translate("turn/completed", params)
    assert fact is not None
    assert fact.event_type == "turn.rate_limited"
    assert fact.payload == {"error": error["message"]}


@pytest.mark.parametrize("message", ["there are 429 of them", "line 429", "a rate limit"])
def test_an_error_may_mention_what_it_likes(message: str) -> None:
    params = {"threadId": "t1", "turn": {"status": "failed", "error": {"message": message}}}
    fact = appserver.translate("turn/completed", params)
    assert fact is not None
    assert fact.event_type == "turn.failed"


@pytest.mark.requirement("TTL-4")
def test_a_name_is_told_when_it_is_given_and_not_when_it_is_taken_away() -> None:
    given = appserver.translate("thread/name/updated", {"threadId": "t1", "threadName": "Fix it"})
    assert given is not None
    assert (given.event_type, given.payload) == ("session.named", {"title": "Fix it"})
    assert appserver.translate("thread/name/updated", {"threadId": "t1"}) is None


def test_a_thread_that_was_closed_is_over() -> None:
    fact = appserver.translate("thread/closed", {"threadId": "t1"})
    assert fact is not None
    assert activity_of(fact.event_type) is Activity.EXITED


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("turn/started", {}),
        ("turn/started", None),
        ("turn/started", [1]),
        ("turn/completed", {"threadId": "t1"}),
        ("turn/completed", {"threadId": "t1", "turn": {"status": "inProgress"}}),
        ("item/started", {"threadId": "t1", "item": {}}),
        ("item/commandExecution/requestApproval", {"threadId": "t1", "turnId": "u1"}),
        ("configWarning", {"summary": "…"}),
    ],
)
def test_other_notifications_say_nothing(method: str, params: object) -> None:
    assert appserver.translate(method, params) is None


def test_what_a_shared_server_told_somebody_who_only_watches() -> None:
    messages = recorded.objects("appserver-shared.jsonl")
    hidden = {
        thread.thread_id
        for each in messages
        if each.get("method") == "thread/started"
        and (thread := appserver.read_thread(each["params"])) is not None
        and thread.is_hidden
    }
    facts = [
        appserver.translate(each["method"], each["params"])
        for each in messages[1:]
        if "method" in each
    ]
    told = [fact for fact in facts if fact is not None and fact.thread_id not in hidden]
    assert [fact.event_type for fact in told] == [
        "thread.active",
        "thread.idle",
        "session.named",
        *["thread.active", "thread.idle"] * 2,
    ]
    assert len(hidden) == 1


def test_threads_are_read_from_the_list() -> None:
    [listed] = [
        each["result"]
        for each in recorded.objects("appserver-shared.jsonl")
        if "data" in each.get("result", {})
    ]
    assert appserver.parse_threads(listed) == [
        Thread(
            thread_id="01a1de82-bc0c-7472-9851-565757bf2746",
            status=ThreadStatus("idle"),
            name="Fake title",
            cwd="/home/dev/demo/proj/x1",
            preview="hello daemon",
            updated_at=1794734472.0,
            source="vscode",
        )
    ]


@pytest.mark.parametrize(
    "thread",
    [
        {"id": "t", "ephemeral": True},
        {"id": "t", "threadSource": "thread_title"},
        {"id": "t", "source": {"subAgent": "review"}},
        {"id": "t", "parentThreadId": "p"},
    ],
)
def test_threads_nobody_works_in_are_known_as_such(thread: dict[str, Any]) -> None:
    read = appserver.read_thread(thread)
    assert read is not None
    assert read.is_hidden


@pytest.mark.parametrize("result", [None, {}, {"data": None}, {"data": [None, {}, {"id": 7}]}])
def test_an_answer_without_threads_has_none(result: object) -> None:
    assert appserver.parse_threads(result) == []


def test_a_thread_of_an_old_version_has_no_status_and_says_nothing() -> None:
    [thread] = appserver.parse_threads({"data": [{"id": "t"}]})
    assert thread.status.event_type is None


@pytest.mark.requirement("CX-3")
def test_we_introduce_ourselves() -> None:
    assert appserver.initialize_params("1.2.3") == {
        "clientInfo": {"name": "bullpen", "title": "bullpen", "version": "1.2.3"}
    }


@pytest.mark.requirement("CX-5", "CX-7")
def test_the_latest_threads_are_asked_for_in_certain_directories_or_all() -> None:
    assert appserver.list_params() == {
        "limit": 50,
        "sortKey": "updated_at",
        "sourceKinds": ["cli", "vscode", "exec", "appServer", "unknown"],
        "modelProviders": [],
        "useStateDbOnly": True,
    }
    assert appserver.list_params(["/a", "/b"], is_plain=True) == {
        "limit": 50,
        "sortKey": "updated_at",
        "cwd": ["/a", "/b"],
    }


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ({"userAgent": "bullpen/0.166.0 (Debian 12.0.0; x86_64) xterm (bullpen; 0)"}, "0.166.0"),
        ({"userAgent": "codex-tui/0.170.0-alpha.1 (Mac OS)"}, "0.170.0-alpha.1"),
        ({"userAgent": "codex"}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_the_version_is_in_the_answer_to_our_introduction(answer: object, version: str) -> None:
    assert appserver.version_of(answer) == version


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
METHODS = ["thread/status/changed", "thread/name/updated", "turn/completed", "thread/closed"]
FIELDS = ["id", "threadId", "thread", "status", "turn", "threadName", "source", "updatedAt", "cwd"]


@given(
    method=st.sampled_from(METHODS),
    params=st.dictionaries(st.sampled_from(FIELDS), json_values) | json_values,
)
def test_whatever_a_server_says_it_is_read(method: str, params: object) -> None:
    appserver.translate(method, params)
    appserver.parse_threads({"data": [params]})
