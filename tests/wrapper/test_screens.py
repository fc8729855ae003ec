"""A wrapped program that paints a screen: what is seen decides what is typed, and what was said."""

from pathlib import Path

import pytest

from bullpen.api.wrapping import AnswerDialog, PressKeys, ReadTerminal, WrapperInterrupt
from bullpen.model.states import Activity
from bullpen.testing.tmux import eventually
from tests.wrapper.rooms import read, room, tui

LONG = "\n".join(f"line {number} of it, with 日本語" for number in range(40))


async def test_a_message_is_pasted_submitted_and_answered(home: Path) -> None:
    async with room(home) as place, place.wrapped(tui()) as glass:
        daemon = place.daemon
        await daemon.until_ready()
        answer = await daemon.answer_to("hello")
        assert (answer.is_ok, answer.how, answer.text) == (True, "prompt_back", "You said: hello")
        assert daemon.steps_of("m1:1") == ["injected", "submitted", "seen"]
        assert b"You said: hello" in glass.shown
        quick = await daemon.answer_to("quick", "m2:1")
        assert quick.text == "You said: quick"
        read = await daemon.ask(ReadTerminal())
        assert "● You said: quick" in read.screen
        long = await daemon.answer_to("long 100", "m3:1")
        assert long.text.split("\n") == [f"line {number}" for number in range(100)]


async def test_a_slow_program_that_swallows_enters_gets_a_long_message_once(home: Path) -> None:
    log = home / "tui.log"
    profile = tui("--log", str(log), "--swallow", "2", "--slow-echo", "0.5", "--noise")
    async with room(home) as place, place.wrapped(profile):
        await place.daemon.until_ready()
        answer = await place.daemon.answer_to(LONG)
        assert answer.is_ok
        noted = await read(log)
        assert noted.count("200~") == 1
        assert f"asked {'[from bob]' + chr(10) + LONG!r}" in noted


async def test_a_dialog_is_not_typed_into_and_the_turn_goes_on_behind_it(home: Path) -> None:
    log = home / "tui.log"
    async with room(home) as place, place.wrapped(tui("--log", str(log))) as glass:
        daemon = place.daemon
        await daemon.until_ready()
        assert (await daemon.inject("ask", "m1:1")).outcome == "submitted"
        await daemon.until(lambda: daemon.states[-1].activity is Activity.WAITING_APPROVAL)
        for urgent in (False, True):
            reply = await daemon.inject("later", "m2:1", ready_seconds=0.2, interrupts=urgent)
            assert reply.outcome == "not_ready"
        assert not await daemon.ask(WrapperInterrupt())  # which would be to decide it
        assert "decided" not in await read(log)
        await glass.type("1")
        assert (await daemon.answer("m1:1")).text == "You said: ask"


@pytest.mark.requirement("a2a:approval")
@pytest.mark.parametrize(
    ("said", "taken", "end"),
    [
        ("yes", "Yes", "prompt_back"),
        ("Always", "Yes, and don't ask again for make", "prompt_back"),
        ("3", "No", "interrupted"),
    ],
    ids=["yes", "always", "number"],
)
async def test_a_dialog_is_answered_by_choosing_what_is_meant(
    home: Path, said: str, taken: str, end: str
) -> None:
    log = home / "tui.log"
    async with room(home) as place, place.wrapped(tui("--log", str(log))):
        daemon = place.daemon
        await daemon.until_ready()
        assert (await daemon.inject("ask", "m1:1")).outcome == "submitted"
        await daemon.until(lambda: daemon.states[-1].dialog is not None)
        asked = daemon.states[-1].dialog
        assert asked is not None
        assert asked.text.split("\n")[:3] == ["Bash command", "make", "Do you want to proceed?"]
        assert asked.answers[:3] == ("yes", "always", "no")
        for dialog_id, text, outcome in (
            ("another", said, "not_asked"),
            (asked.id, "yes please, and rm -rf", "not_understood"),
            (asked.id, "4", "not_understood"),
        ):
            reply = await daemon.ask(AnswerDialog(dialog_id, text))
            assert reply.outcome == outcome
        assert "\\x1b[B" not in await read(log)
        reply = await daemon.ask(AnswerDialog(asked.id, said))
        assert (reply.outcome, reply.answered) == ("answered", taken)
        assert f"decided '\\r' at {taken}\n" in await read(log)
        assert (await daemon.answer("m1:1")).how == end
        assert daemon.states[-1].dialog is None
        again = await daemon.ask(AnswerDialog(asked.id, said))
        assert again.outcome == "not_asked"


async def test_an_interrupted_turn_and_one_refused_for_usage_have_no_answer(home: Path) -> None:
    async with room(home) as place, place.wrapped(tui()):
        daemon = place.daemon
        await daemon.until_ready()
        assert (await daemon.inject("slow", "m1:1")).outcome == "submitted"
        await daemon.until(lambda: "seen" in daemon.steps_of("m1:1"))
        assert await daemon.ask(WrapperInterrupt())
        interrupted = await daemon.answer("m1:1")
        assert (interrupted.is_ok, interrupted.how) == (False, "interrupted")
        assert (await daemon.inject("slow", "m2:1")).outcome == "submitted"
        await daemon.until(lambda: "seen" in daemon.steps_of("m2:1"))
        urgent = await daemon.answer_to("limit", "m3:1", interrupts=True)
        assert (await daemon.answer("m2:1")).how == "interrupted"
        assert (urgent.is_ok, urgent.how) == (False, "rate_limit")
        assert "429" in urgent.text


async def test_an_interrupted_message_that_is_put_back_is_in_nobodys_way(home: Path) -> None:
    log = home / "tui.log"
    async with room(home) as place, place.wrapped(tui("--log", str(log), "--put-back")):
        daemon = place.daemon
        await daemon.until_ready()
        assert (await daemon.inject("slow", "m1:1")).outcome == "submitted"
        await daemon.until(lambda: "seen" in daemon.steps_of("m1:1"))
        await daemon.until(lambda: not daemon.states[-1].is_ready)
        assert await daemon.ask(WrapperInterrupt())
        assert (await daemon.answer("m1:1")).how == "interrupted"
        await daemon.until_ready()
        assert daemon.states[-1].prompt == "draft"
        assert (await daemon.answer_to("hello", "m2:1")).text == "You said: hello"
        assert "asked '[from bob] hello'" in await read(log)


async def test_a_draft_is_left_alone(home: Path) -> None:
    async with room(home) as place, place.wrapped(tui()) as glass:
        daemon = place.daemon
        await daemon.until_ready()
        await glass.type("my draft")
        await daemon.until(lambda: daemon.states[-1].prompt == "draft")
        reply = await daemon.inject("hello", ready_seconds=0.2)
        assert (reply.outcome, reply.reason) == ("not_ready", "a draft is in the prompt box")
        assert await daemon.ask(PressKeys(data=b"\x15"))
        await daemon.until_ready()
        assert (await daemon.answer_to("hello")).text == "You said: hello"


async def test_a_program_that_dies_of_a_message_is_told(home: Path) -> None:
    async with room(home) as place, place.wrapped(tui()) as glass:
        daemon = place.daemon
        await daemon.until_ready()
        await daemon.inject("die")
        assert await glass.wait() == 3
        assert daemon.ended == [3]


async def test_a_box_that_is_drawn_before_the_program_listens_is_not_pasted_into(
    home: Path,
) -> None:
    async with room(home) as place, place.wrapped(tui("--late")):
        await place.daemon.until_ready()
        assert (await place.daemon.answer_to("hello")).text == "You said: hello"


@pytest.mark.requirement("talk:draft")
async def test_what_somebody_writes_is_not_joined_before_it_is_shown(home: Path) -> None:
    log = home / "keys"
    log.touch()
    async with room(home) as place:
        program = tui("--slow-echo", "0.7", "--log", str(log))
        async with place.wrapped(program) as glass:
            daemon = place.daemon
            await daemon.until_ready()
            await glass.type("\x1b[200~my draft\x1b[201~")

            async def has_come() -> bool:
                return "my draft" in await read(log)

            await eventually(has_come)  # and is not painted yet
            reply = await daemon.inject("hello", ready_seconds=2.0)
            assert reply.outcome == "not_ready", reply
            assert "from bob" not in await read(log)
