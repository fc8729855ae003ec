"""The official clients, as they are, against agents of ours in their terminals."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bullpen.testing.programs.libraries import node_modules_of, python_with
from bullpen.testing.programs.node import find_node
from tests.interop.a2a.houses import HERE, house, lines_of
from tests.servers.a2a.house import linux_only
from tests.servers.a2a.v1.hooks import hooked

pytestmark = [linux_only, pytest.mark.timeout(1000)]  # the first run downloads

BINDINGS = ("JSONRPC", "HTTP+JSON")
CLIENTS = HERE / "clients"
LIFE = ["submitted", "working", "completed"]


def sdk_1() -> list[str | Path]:
    return [sys.executable, CLIENTS / "sdk_1.py"]


def sdk_0_3() -> list[str | Path]:
    return [python_with(HERE / "a2a-0.3.lock"), CLIENTS / "sdk_0_3.py"]


def sdk_js() -> list[str | Path]:
    modules = node_modules_of(HERE / "a2a-js" / "package-lock.json")
    return [find_node().bin / "node", CLIENTS / "sdk_js.mjs", modules]


COMMANDS: dict[str, Callable[[], list[str | Path]]] = {
    "sdk-1": sdk_1,
    "sdk-0.3": sdk_0_3,
    "sdk-js": sdk_js,
}


@pytest.mark.requirement("a2a:clients")
async def test_the_official_clients_talk_to_agents_of_ours_by_every_binding(home: Path) -> None:
    made = await asyncio.gather(*(asyncio.to_thread(each) for each in COMMANDS.values()))
    async with (
        hooked() as hook,
        house(home, "dummy", "patient", "conformance") as ours,
    ):
        urls = [await ours.url(each) for each in ("dummy", "patient", "conformance")]
        said = await asyncio.gather(*(lines_of(*each, *urls, hook.url) for each in made))
        for name, lines in zip(COMMANDS, said, strict=True):
            for binding in BINDINGS:
                steps = {each["step"]: each for each in lines if each["binding"] == binding}
                judge(name, binding, steps, hook.url)
        ended = {each["id"] for lines in said for each in lines if each["step"] == "canceled"}
        assert len(ended) == len(COMMANDS) * len(BINDINGS)
        await hook.until(lambda hook: told_of_the_end(hook.got) >= ended)
        tokens = {headers["x-a2a-notification-token"] for headers, _ in hook.got}
        assert tokens == {f"of {each}" for each in BINDINGS}


def judge(name: str, binding: str, steps: dict[str, dict[str, Any]], hook: str) -> None:
    """See that a client got what it should have by a binding."""
    where = f"{name} {binding}"
    assert (steps["card"]["name"], steps["card"]["streams"]) == ("dummy", True), where
    sent = steps["sent"]
    assert sent["state"] == "completed", where
    assert sent["text"] == f"[DUMMY] You said: [from a2a] hello {binding}", where
    assert {**steps["got"], "step": "sent"} == sent, where
    streamed, chunked = steps["streamed"], steps["chunked"]
    assert "".join(streamed["chunks"]) == "[DUMMY] You said: [from a2a] stream", where
    assert "".join(chunked["chunks"]) == "chunk-1 chunk-2", where
    assert streamed["id"] != sent["id"], where
    for states in (streamed["states"], chunked["states"]):
        # Who begins to listen late is told first how it is by then.
        assert states == LIFE[-len(states) :], where
    asked, replied = steps["asked"], steps["replied"]
    assert (asked["state"], replied["state"]) == ("input_required", "completed"), where
    assert asked["id"] == replied["id"], where
    hooked = steps["hooked"]
    assert (hooked["url"], hooked["token"]) == (f"{hook}?{binding}", f"of {binding}"), where
    canceled, followed = steps["canceled"], steps["followed"]
    assert canceled["state"] == "canceled", where
    assert followed["id"] == canceled["id"], where
    assert followed["states"][-2:] == ["working", "canceled"], where
    if name != "sdk-0.3":  # which has no word for these
        assert steps["listed"]["has_it"], where
        assert steps["hooks"]["urls"] == [f"{hook}?{binding}"], where
        assert not steps["unhooked"]["has_it"], where


def told_of_the_end(got: list[tuple[dict[str, str], Any]]) -> set[str]:
    """Return the tasks of which it was posted that they are cancelled."""
    updates = [body["statusUpdate"] for _, body in got if "statusUpdate" in body]
    return {each["taskId"] for each in updates if each["status"]["state"] == "TASK_STATE_CANCELED"}
