"""The daemon may go away at any moment: the agent goes on, and nothing is typed or told twice."""

import asyncio
from pathlib import Path

from bullpen.model.deliveries import ReceiptState
from tests.wrapper.rooms import SECRET, Daemon, Room, dummy, room


async def test_it_comes_back_with_its_secret_and_what_happened_meanwhile(home: Path) -> None:
    place = Room(home)
    first, second = place.daemon, Daemon(place.paths, home / "private")
    async with place.wrapped(dummy(1.0), name="ann") as glass:
        async with first.serve():
            await first.until_ready()
            assert (await first.inject("hello", "m1:1")).outcome == "submitted"
        async with second.serve():
            await second.until(lambda: second.started, "coming back")
            answer = await second.answer("m1:1")
            assert answer.text == "[DUMMY] You said: [from bob] hello"
            registration = second.registrations[0]
            assert (registration.name, registration.secret) == ("ann", SECRET)
            (attempt,) = registration.attempts
            assert attempt.attempt_id == "m1:1"
            assert attempt.state in (
                *(ReceiptState.SUBMITTED, ReceiptState.SEEN, ReceiptState.ANSWERED),
            )
            await second.until_ready()
            again = await second.inject("hello", "m1:1")
            assert again.outcome == "submitted"
            assert (await second.answer_to("next", "m2:1")).is_ok
            assert glass.shown.count(b"You said: [from bob] hello") == 1


async def test_an_end_is_told_until_it_is_taken(home: Path) -> None:
    async with room(home) as place, place.wrapped(dummy(0.2)):
        daemon = place.daemon
        await daemon.until_ready()
        daemon.takes_answers = False  # it hangs up instead
        assert (await daemon.inject("hello")).outcome == "submitted"
        await daemon.until(lambda: len(daemon.registrations) > 2, "coming back twice")
        assert not daemon.answers
        assert daemon.registrations[-1].attempts[0].state is ReceiptState.ANSWERED
        assert daemon.registrations[-1].attempts[0].text == "[DUMMY] You said: [from bob] hello"
        daemon.takes_answers = True
        answer = await daemon.answer("m1:1")
        assert answer.text == "[DUMMY] You said: [from bob] hello"


async def test_whoever_asked_may_hang_up_while_it_types(home: Path) -> None:
    async with room(home) as place, place.wrapped(dummy(0.0)) as glass:
        daemon = place.daemon
        await daemon.until_ready()
        await glass.type("draft")
        await daemon.until(lambda: not daemon.states[-1].is_ready)
        asking = asyncio.create_task(daemon.inject("hello", ready_seconds=20.0))
        await asyncio.sleep(0)
        await daemon.hang_up()
        await asyncio.wait([asking])
        assert asking.exception() is not None
        await daemon.until(lambda: len(daemon.registrations) > 1, "coming back")
        await glass.type("\x15")
        reply = await daemon.inject("hello")
        assert reply.outcome == "submitted"
        assert (await daemon.answer("m1:1")).is_ok
        assert glass.shown.count(b"You said: [from bob] hello") == 1
