"""Who asked for it is told by post, in order; and nobody has us post where he could not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bullpen.servers.a2a.v1.events import Event
from bullpen.servers.a2a.v1.push import Forbidden, Push, check_url
from tests.servers.a2a.v1.guests import house, served, text_message


class Hook:
    """Takes what is posted, or does not."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.got: list[tuple[dict[str, str], Any]] = []
        self.tries = 0
        self.url = ""

    async def take(self, request: Request) -> Response:
        self.tries += 1
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 0:
            await asyncio.Event().wait()
        if status < 300:
            self.got.append((dict(request.headers), await request.json()))
        return Response(status_code=status, headers={"location": self.url})


@asynccontextmanager
async def hooked(*statuses: int) -> AsyncIterator[Hook]:
    hook = Hook(*statuses)
    app = Starlette(routes=[Route("/hook", hook.take, methods=["POST"])])
    async with served(app) as url:
        hook.url = f"{url}hook"
        yield hook


async def status(*states: str) -> AsyncIterator[Event]:
    for state in states:
        told = pb.TaskStatus(state=f"TASK_STATE_{state}")
        yield pb.TaskStatusUpdateEvent(task_id="m-1", context_id="m-1", status=told)


def config(url: str, **more: Any) -> pb.TaskPushNotificationConfig:
    return pb.TaskPushNotificationConfig(task_id="m-1", url=url, **more)


def told(hook: Hook) -> list[str]:
    return [each["statusUpdate"]["status"]["state"][11:] for _, each in hook.got]


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
        sending = asyncio.create_task(guest.ask("SendMessage", message))
        await there.agent.answer(await there.agent.next(), "done")
        task = (await sending)["task"]
        async with asyncio.timeout(20):
            while "COMPLETED" not in str(hook.got[-1:]):  # noqa: ASYNC110 - it looks from outside
                await asyncio.sleep(0.02)
        assert "task" in hook.got[0][1]
        for headers, _ in hook.got:
            assert headers["authorization"] == "Bearer secret"
            assert headers["x-a2a-notification-token"] == "mine"
            assert headers["content-type"] == "application/json"
        listed = await guest.ask("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
        [found] = listed["configs"]
        named = {"taskId": task["id"], "id": found["id"]}
        assert await guest.ask("GetTaskPushNotificationConfig", named) == found
        for _ in range(2):
            await guest.ask("DeleteTaskPushNotificationConfig", named)
        assert await guest.refusal("GetTaskPushNotificationConfig", named) == -32001
        inside = {"taskId": task["id"], "url": "http://169.254.169.254/latest"}
        assert await guest.refusal("CreateTaskPushNotificationConfig", inside) == -32602
        unknown = {"taskId": "m-none", "url": hook.url}
        assert await guest.refusal("CreateTaskPushNotificationConfig", unknown) == -32001


async def test_what_is_not_taken_is_posted_again_and_nothing_overtakes_it() -> None:
    async with hooked(503, 429, 200, 500) as hook:
        push = Push(pauses=[0, 0])
        push.add(config(hook.url), is_local=True)
        await push.tell("m-1", status("SUBMITTED", "WORKING", "COMPLETED"))
        assert told(hook) == ["SUBMITTED", "WORKING", "COMPLETED"]
        assert hook.tries == 6


async def test_one_that_hangs_or_sends_elsewhere_is_given_up_and_delays_nobody() -> None:
    async with hooked(0) as hanging, hooked(307, 307) as elsewhere, hooked() as good:
        push = Push(pauses=[], post_seconds=3.0)
        for each in (hanging, elsewhere, good):
            push.add(config(each.url), is_local=True)
        async with asyncio.timeout(20):
            await push.tell("m-1", status("WORKING", "COMPLETED"))
        assert told(good) == ["WORKING", "COMPLETED"]
        assert (hanging.tries, hanging.got) == (1, [])
        assert (elsewhere.tries, elsewhere.got) == (1, [])  # a redirection is not followed


async def test_one_that_was_removed_is_told_nothing_more() -> None:
    async with hooked() as hook:
        push = Push()
        added = push.add(config(hook.url), is_local=True)

        async def events() -> AsyncIterator[Event]:
            async for event in status("WORKING"):
                yield event
            async with asyncio.timeout(20):
                while not hook.got:  # noqa: ASYNC110 - it looks from outside
                    await asyncio.sleep(0.01)
            push.remove("m-1", added.id)
            async for event in status("COMPLETED"):
                yield event

        await push.tell("m-1", events())
        assert told(hook) == ["WORKING"]


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.com/",
        "http://",
        "http://user:word@example.com/",
        "http://exa mple.com/",
        "http://example.com:99999/",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest",
        "http://0.0.0.0/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://224.0.0.1/",
        "http://example.com/\r\nx: y",
    ],
)
def test_what_is_not_public_is_not_posted_to(url: str) -> None:
    for is_local in (True, False):
        with pytest.raises(Forbidden):
            check_url(url, is_local=is_local)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/", "http://localhost/", "http://[::1]/", "http://[::ffff:127.0.0.1]/"],
)
def test_this_machine_is_posted_to_only_for_who_is_on_it(url: str) -> None:
    check_url(url, is_local=True)
    with pytest.raises(Forbidden):
        check_url(url, is_local=False)


async def test_a_name_that_leads_to_this_machine_is_caught_where_it_leads() -> None:
    async with hooked() as hook:
        push = Push(pauses=[])
        port = hook.url.rpartition(":")[2]
        push.add(config(f"http://2130706433:{port}"), is_local=False)  # 127.0.0.1 as one number
        await push.tell("m-1", status("COMPLETED"))
        assert hook.tries == 0


def test_what_cannot_stand_in_a_header_is_refused() -> None:
    with pytest.raises(InvalidParamsError, match="token"):
        Push().add(config("https://example.com/", token="a\r\nb: c"), is_local=False)


def test_there_are_only_so_many_addresses_of_a_task() -> None:
    push = Push()
    for each in range(20):
        push.add(config("https://example.com/", id=str(each)), is_local=False)
    push.add(config("https://example.com/2", id="7"), is_local=False)
    with pytest.raises(InvalidParamsError):
        push.add(config("https://example.com/"), is_local=False)
