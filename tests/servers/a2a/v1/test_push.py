"""Who asked for it is told by post, in order; and nobody has us post where he could not."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError

from bullpen.api.push import ListPush
from bullpen.api.settings import A2aSettings
from bullpen.connection import RemoteError
from bullpen.servers.a2a.room import Caller, Scope
from bullpen.servers.a2a.v1 import posting, push
from bullpen.servers.a2a.v1.posting import Poster, Target
from bullpen.servers.a2a.v1.push import Pauses, Push
from bullpen.servers.a2a.v1.targets import Forbidden
from tests.daemon.harness import until
from tests.servers.a2a.house import SECONDS
from tests.servers.a2a.v1.guests import Guest, House, house, text_message
from tests.servers.a2a.v1.hooks import HANGS, hooked

pytestmark = pytest.mark.requirement("a2a:push", "a2a:push-guard")

ENDED = "COMPLETED"
NOBODY = "http://127.0.0.1:9/"


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "PAUSES", Pauses((0.01, 0.01), (0.01,) * 8))


async def begin(there: House, guest: Guest, *configs: dict[str, Any]) -> tuple[str, Any]:
    """Have the agent at work on a task that somebody is to be told of."""
    message = {"message": text_message("go"), "configuration": {"returnImmediately": True}}
    task = (await guest.ask("SendMessage", message))["task"]
    typed = await there.agent.next()
    for each in configs:
        await guest.ask("CreateTaskPushNotificationConfig", {"taskId": task["id"], **each})
    return task["id"], typed


async def unfinished(there: House) -> int:
    found = await there.room.ask(ListPush())
    return len(found)


async def all_told(there: House) -> None:
    async def are() -> bool:
        return not await unfinished(there)

    await until(are, SECONDS)


@pytest.mark.requirement("S-191")
async def test_what_becomes_of_a_task_is_posted_to_who_gave_an_address_with_it() -> None:
    async with hooked() as hook, house() as (there, guest):
        wanted = {
            "url": hook.url,
            "token": "mine",
            "authentication": {"scheme": "Bearer", "credentials": "secret"},
        }
        message = {
            "message": text_message("go"),
            "configuration": {"taskPushNotificationConfig": wanted},
        }
        sending = [asyncio.create_task(guest.ask("SendMessage", message)) for _ in range(2)]
        await there.agent.answer(await there.agent.next(), "done")
        task, again = [(await each)["task"] for each in sending]
        assert again["id"] == task["id"]
        await hook.told(ENDED)
        assert "task" in hook.got[0][1]
        for headers, _ in hook.got:
            assert headers["authorization"] == "Bearer secret"
            assert headers["x-a2a-notification-token"] == "mine"
            assert headers["content-type"] == "application/json"
        listed = await guest.ask("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
        [found] = listed["configs"]  # one, though it was said twice
        named = {"taskId": task["id"], "id": found["id"]}
        assert await guest.ask("GetTaskPushNotificationConfig", named) == found
        for _ in range(2):
            await guest.ask("DeleteTaskPushNotificationConfig", named)
        assert await guest.refusal("GetTaskPushNotificationConfig", named) == -32001
        inside = {"taskId": task["id"], "url": "http://169.254.169.254/latest"}
        assert await guest.refusal("CreateTaskPushNotificationConfig", inside) == -32602
        unknown = {"taskId": "m-none", "url": hook.url}
        assert await guest.refusal("CreateTaskPushNotificationConfig", unknown) == -32001
        await all_told(there)


async def test_what_is_not_taken_is_posted_again_and_nothing_overtakes_it() -> None:
    async with hooked(503, 429, 200, 500) as hook, house() as (there, guest):
        _, typed = await begin(there, guest, {"url": hook.url})
        await hook.until(lambda it: len(it.got) > 0)
        await there.agent.answer(typed, "done")
        await hook.told(ENDED)
        order = ["SUBMITTED", "WORKING", ENDED]
        assert sorted(hook.states, key=order.index) == hook.states
        assert hook.tries == len(hook.got) + 3
        await all_told(there)


async def test_bad_targets_are_given_up_and_delay_nobody(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "POST_SECONDS", 5.0)
    async with (
        hooked(*[HANGS] * 20) as hanging,
        hooked(*[307] * 50) as elsewhere,
        hooked() as trap,
        hooked(*[500] * 50) as failing,
        _closing() as closing,
        hooked() as good,
        house() as (there, guest),
    ):
        elsewhere.location = trap.url
        bad = [f"{each}?key=hidden" for each in (hanging.url, elsewhere.url, failing.url, closing)]
        _, typed = await begin(there, guest, *({"url": each, "token": "hush"} for each in bad))
        task_id = (await guest.ask("ListTasks"))["tasks"][0]["id"]
        await guest.ask("CreateTaskPushNotificationConfig", {"taskId": task_id, "url": good.url})
        await there.agent.answer(typed, "done")
        await good.told(ENDED)
        assert hanging.got == elsewhere.got == failing.got == []
        assert trap.tries == 0  # a redirection is not followed
        await failing.until(lambda it: it.tries >= 9)
        assert "hush" not in caplog.text
        assert "hidden" not in caplog.text


@asynccontextmanager
async def _closing() -> AsyncIterator[str]:
    """Have one who hangs up on everybody, for a block."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def test_one_that_was_away_is_told_how_things_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(push, "PAUSES", Pauses((), (0.01,) * 8))
    async with hooked(500, 503, 500, 500) as hook, house() as (there, guest):
        _, typed = await begin(there, guest, {"url": hook.url})
        await hook.until(lambda it: it.tries > 0)
        await there.agent.answer(typed, "done")
        await hook.told(ENDED)
        [whole] = [each["task"] for _, each in hook.got]
        assert whole["artifacts"][0]["parts"] == [{"text": "done"}]
        await all_told(there)


async def test_one_that_was_removed_or_changed_is_told_so() -> None:
    async with hooked() as removed, hooked() as old, hooked() as new, house() as (there, guest):
        task_id, typed = await begin(
            there, guest, {"url": removed.url, "id": "a"}, {"url": old.url, "id": "b"}
        )
        await removed.until(lambda it: len(it.got) > 0)
        await old.until(lambda it: len(it.got) > 0)
        await guest.ask("DeleteTaskPushNotificationConfig", {"taskId": task_id, "id": "a"})
        changed = {"taskId": task_id, "id": "b", "url": new.url}
        await guest.ask("CreateTaskPushNotificationConfig", changed)
        await there.agent.answer(typed, "done")
        await new.told(ENDED)
        assert ENDED not in [*removed.states, *old.states]
        late = {"taskId": task_id, "url": old.url}
        await guest.ask("CreateTaskPushNotificationConfig", late)
        await all_told(there)
        assert ENDED not in old.states  # nothing becomes of the task any more


async def test_a_follow_up_is_told_as_well() -> None:
    async with hooked() as hook, house() as (there, guest):
        task_id, _ = await begin(there, guest, {"url": hook.url})
        await there.reply("which one?", type="progress", metadata={"asks": True})
        await hook.told("INPUT_REQUIRED")
        follow_up = {"message": text_message("the left one", taskId=task_id)}
        sending = asyncio.create_task(guest.ask("SendMessage", follow_up))
        await there.agent.answer(await there.agent.next(), "done")
        await sending
        await hook.told(ENDED)
        await all_told(there)


async def test_secrets_are_shown_to_who_gave_them_and_kept_from_everybody_else() -> None:
    async with house() as (there, guest):
        secret = {"token": "hush", "authentication": {"scheme": "Bearer", "credentials": "hush"}}
        config = {"id": "a", "url": NOBODY, **secret}
        task_id, _ = await begin(there, guest, config)
        named = {"taskId": task_id, "id": "a"}
        assert str(await guest.ask("GetTaskPushNotificationConfig", named)).count("hush") == 2
        there.caller = Caller(name="a2a:ci")
        shown = await guest.ask("GetTaskPushNotificationConfig", named)
        assert (shown["url"], "hush" in str(shown)) == (config["url"], False)
        for method, params in (
            ("DeleteTaskPushNotificationConfig", named),
            ("CreateTaskPushNotificationConfig", {**named, "url": config["url"]}),
        ):
            assert await guest.refusal(method, params) == -32600
        with pytest.raises(RemoteError, match="only the server"):
            await there.agent.connection.request(ListPush(), timeout=SECONDS)
        there.caller = Caller(name="a2a:chief", scopes=frozenset(Scope))
        await guest.ask("DeleteTaskPushNotificationConfig", named)
        assert await unfinished(there) == 0


async def test_what_cannot_be_posted_to_or_with_is_refused() -> None:
    async with house() as (there, guest):
        for wrong in (
            {"url": "https://example.com/", "token": "a\r\nb: c"},
            {"url": "https://example.com/", "id": "x" * 300},
            {"url": "https://example.com/", "authentication": {"scheme": "a\nb"}},
            {"url": ""},
        ):
            configuration = {"taskPushNotificationConfig": wrong}
            message = {"message": text_message("go"), "configuration": configuration}
            assert await guest.refusal("SendMessage", message) == -32602
        assert (await guest.ask("ListTasks"))["tasks"] == []
        some = ({"url": NOBODY, "id": str(each)} for each in range(20))
        task_id, _ = await begin(there, guest, *some)
        more = {"taskId": task_id, "url": NOBODY}
        assert await guest.refusal("CreateTaskPushNotificationConfig", more) == -32602  # too many
        await guest.ask("CreateTaskPushNotificationConfig", {**more, "id": "7"})
        config = pb.TaskPushNotificationConfig(url=NOBODY)
        for settings, is_local, may in (
            ({}, True, True),
            ({}, False, False),
            ({"bind": "0.0.0.0"}, True, False),  # others are served, too
            ({"hosts": "box.example"}, True, False),  # or passed on by somebody
            ({"bind": "0.0.0.0", "push_to_loopback": True}, False, True),
        ):
            there.room.settings = A2aSettings(**settings)
            with nullcontext() if may else pytest.raises(InvalidParamsError):
                there.room.part(Push).check(config, is_local=is_local)


def _names(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Have every name lead to addresses, the first of which is used up by each lookup."""
    asked: list[str] = []
    left = list(addresses)

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        address = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with hooked() as hook:
        url = hook.url.replace("127.0.0.1", "name.example")
        asked = _names(monkeypatch, "127.0.0.1", "169.254.169.254")
        assert await Poster(SECONDS).post(Target(url, {}, is_local=True), b"{}") == 200
        assert asked == ["name.example"]  # once: the name is not looked up again
        assert hook.got[0][0]["host"].startswith("name.example:")
        for is_local in (True, False):
            with pytest.raises(Forbidden):
                await Poster(SECONDS).post(Target(url, {}, is_local=is_local), b"{}")
        number = hook.url.replace("127.0.0.1", "2130706433")
        _names(monkeypatch, "127.0.0.1")
        with pytest.raises(Forbidden):
            await Poster(SECONDS).post(Target(number, {}, is_local=False), b"{}")
        assert hook.tries == 1


async def test_a_name_that_is_never_found_holds_up_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, go = socket.getaddrinfo, asyncio.Event()
    loop = asyncio.get_running_loop()

    def look_up(host: str, *more: Any, **said: Any) -> Any:
        if host == "slow.example":
            asyncio.run_coroutine_threadsafe(go.wait(), loop).result(SECONDS)
        return real("127.0.0.1", *more, **said)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(posting, "MOST_LOOKUPS", 2)
    async with hooked() as hook:
        poster = Poster(SECONDS)
        slow, quick = (hook.url.replace("127.0.0.1", f"{each}.example") for each in ("slow", "ok"))
        waiting = [
            asyncio.create_task(poster.post(Target(slow, {}, is_local=True), b"{}"))
            for _ in range(posting.MOST_AT_ONE)
        ]
        await asyncio.sleep(0)
        assert await poster.post(Target(quick, {}, is_local=True), b"{}") == 200
        assert not any(each.done() for each in waiting)
        go.set()
        assert await asyncio.gather(*waiting) == [200] * len(waiting)


def test_no_two_pauses_are_alike() -> None:
    pauses = Pauses()
    assert 0 < sum(pauses.of_event) < sum(pauses.of_end) < 3600
    for chance in (0.0, 0.5, 1.0):
        pauses = Pauses(chance=iter([chance]).__next__)
        assert pauses.some(1.0) == 0.5 + chance
