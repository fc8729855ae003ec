"""Waiting for a message or a mailbox: a look is whole, and nothing that is told is missed."""

import asyncio

import pytest

from bullpen.mail.signals import Signals

SECONDS = 20.0


@pytest.mark.requirement("talk:look")
@pytest.mark.parametrize("seconds", [0.0, 0.001], ids=["at-once", "in-a-moment"])
async def test_a_look_that_takes_something_is_never_cut_short(seconds: float) -> None:
    waiting = ["a message"]
    taken = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, taken.set)

    async def take() -> str | None:
        if not waiting:
            return None
        found = waiting.pop()
        await taken.wait()  # as from a database: it is gone from there by now
        return found

    assert await Signals().wait("codex", take, seconds) == "a message"


@pytest.mark.requirement("talk:look")
async def test_who_waits_looks_again_when_something_is_told_even_while_he_looks() -> None:
    signals = Signals()
    looks = 0

    async def look() -> int | None:
        nonlocal looks
        looks += 1
        if looks == 1:
            signals.tell("codex")  # when it is too late for this look
        elif looks == 2:
            asyncio.get_running_loop().call_soon(signals.tell, "codex")
        return looks if looks == 3 else None

    assert await signals.wait("codex", look, SECONDS) == 3


@pytest.mark.requirement("talk:look")
async def test_without_time_there_is_one_look_and_what_others_are_told_wakes_nobody() -> None:
    signals = Signals()
    looks = 0

    async def look() -> str | None:
        nonlocal looks
        looks += 1
        signals.tell("claude")
        return None

    assert await signals.wait("codex", look, 0) is None
    assert looks == 1
    assert await signals.wait("codex", look, 0.01) is None
    assert looks == 3  # before and after
