"""A wrapped program that prints lines: it is typed to at its prompt, and its words are its own."""

import asyncio
import sys
from pathlib import Path

import pytest

from bullpen.api.wrapping import PressKeys, ReadTerminal, WrapperInterrupt
from bullpen.wrapper.pace import Pace
from tests.wrapper.rooms import dummy, line_profile, python, read, room

CHATTY = """
import sys, time
def say(text): sys.stdout.write(text); sys.stdout.flush()
say("> ")
for line in sys.stdin:
    word = line.strip().rpartition(" ")[2]
    if word == "much": say("".join(f"{n} of it\\n" for n in range(20000)))
    elif word == "quoting":
        for text in ("they wrote\\n> ", "a quotation\\n1 > "): say(text)
        time.sleep(0.2)
        say("0\\n")
    elif word == "nothing": pass
    elif word == "painted": say("\\x1b[31mred\\x1b[0m and bare\\n")
    say("> ")
"""

SIGNALLED = """
import signal, sys
log = open(sys.argv[1], "a", buffering=1)
def stop(*_):
    log.write("SIGINT\\n")
    print("stopped\\n> ", end="", flush=True)
signal.signal(signal.SIGINT, stop)
print("> ", end="", flush=True)
while line := sys.stdin.readline():
    log.write(line)
    if "wait" in line: signal.pause()
    else: print("done\\n> ", end="", flush=True)
"""


@pytest.mark.requirement("S-01", "S-23", "S-28")
async def test_a_message_is_typed_at_the_prompt_and_its_reply_is_cut_out(home: Path) -> None:
    async with room(home) as place, place.wrapped(dummy()) as glass:
        daemon = place.daemon
        await daemon.until_ready()
        answer = await daemon.answer_to("hello")
        assert (answer.is_ok, answer.how) == (True, "prompt_back")
        assert answer.text == "[DUMMY] You said: [from bob] hello"
        assert daemon.steps_of("m1:1") == ["injected", "submitted", "seen"]
        first, second = await asyncio.gather(
            daemon.answer_to("one\nand two", "m2:1"), daemon.answer_to("three", "m3:1")
        )
        assert first.text == "[DUMMY] You said: [from bob] one and two"
        assert second.text == "[DUMMY] You said: [from bob] three"
        assert {each.status for each in daemon.states} >= {"BUSY", "IDLE"}
        await glass.type("exit\r")
        assert await glass.wait() == 0
        assert daemon.ended == [0]


@pytest.mark.requirement("S-25", "S-170", "A1.12-e")
async def test_replies_are_exact_however_long_and_whatever_they_look_like(home: Path) -> None:
    async with room(home) as place, place.wrapped(python(CHATTY)):
        daemon = place.daemon
        await daemon.until_ready()
        much = await daemon.answer_to("much", "m1:1")
        assert much.text.split("\n") == [f"{number} of it" for number in range(20000)]
        quoting = await daemon.answer_to("quoting", "m2:1")
        assert quoting.text == "they wrote\n> a quotation\n1 > 0"
        assert (await daemon.answer_to("nothing", "m3:1")).text == ""
        assert (await daemon.answer_to("painted", "m4:1")).text == "red and bare"
        read = await daemon.ask(ReadTerminal(limit=60))
        assert read.text.endswith("bare\r\n> ")
        assert read.screen.endswith("red and bare\n> ")
        assert len((await daemon.ask(ReadTerminal())).text) == 10_000


@pytest.mark.requirement("S-24", "S-153")
async def test_an_urgent_message_comes_after_the_interrupt(home: Path) -> None:
    log = home / "log"
    profile = line_profile(sys.executable, "-I", "-S", "-u", "-c", SIGNALLED, str(log))
    async with room(home) as place, place.wrapped(profile):
        daemon = place.daemon
        await daemon.until_ready()
        waiting = await daemon.inject("wait", "m1:1")
        assert waiting.outcome == "submitted"
        not_ready = await daemon.inject("later", "m2:1", ready_seconds=0.1)
        assert not_ready.outcome == "not_ready"
        assert not_ready.reason == "it is at work on another message"
        urgent = await daemon.answer_to("now", "m3:1", interrupts=True)
        interrupted = await daemon.answer("m1:1")
        assert (interrupted.is_ok, interrupted.how) == (False, "interrupted")
        assert urgent.text == "done"
        assert (await read(log)).split("\n")[:3] == ["[from bob] wait", "SIGINT", "[from bob] now"]
        assert await daemon.ask(WrapperInterrupt())
        await daemon.until_ready()


@pytest.mark.requirement("S-90", "S-95", "S-153")
@pytest.mark.parametrize("prompt", ["stopped\\n> ", "stopped\\n", ""], ids=["again", "not", "no"])
async def test_a_program_that_reads_lines_is_interrupted_once_also_at_its_prompt(
    home: Path, prompt: str
) -> None:
    log = home / "log"
    program = SIGNALLED.replace("stopped\\n> ", prompt)
    profile = line_profile(sys.executable, "-I", "-S", "-u", "-c", program, str(log))
    async with room(home) as place, place.wrapped(profile):
        daemon = place.daemon
        await daemon.until_ready()
        for number in (1, 2):
            urgent = await daemon.answer_to(f"now {number}", f"m{number}:1", interrupts=True)
            assert (urgent.is_ok, urgent.text) == (True, "done")
        assert await daemon.ask(WrapperInterrupt())
        if prompt.endswith("> "):
            await daemon.until_ready()
            assert (await daemon.answer_to("now 3", "m3:1", interrupts=True)).is_ok
        expected = ["SIGINT", "[from bob] now 1", "SIGINT", "[from bob] now 2"]
        if prompt.endswith("> "):
            expected += ["SIGINT", "[from bob] now 3", ""]
        assert (await read(log)).split("\n")[: len(expected)] == expected


@pytest.mark.requirement("S-161")
async def test_what_somebody_has_begun_to_write_is_not_joined(home: Path) -> None:
    async with room(home) as place, place.wrapped(dummy()) as glass:
        daemon = place.daemon
        await daemon.until_ready()
        await glass.type("a draft")
        await daemon.until(lambda: not daemon.states[-1].is_ready, "a draft")
        reply = await daemon.inject("hello", ready_seconds=0.2)
        assert (reply.outcome, reply.reason) == ("not_ready", "somebody has begun to write")
        await glass.type("\x7f" * len("a draft"))
        await daemon.until_ready()
        # Nothing was typed, so the same attempt may be made again.
        answer = await daemon.answer_to("hello")
        assert answer.text == "[DUMMY] You said: [from bob] hello"


async def test_asked_again_for_an_attempt_it_types_nothing(home: Path) -> None:
    async with room(home) as place, place.wrapped(dummy()) as glass:
        daemon = place.daemon
        await daemon.until_ready()
        first = await daemon.answer_to("hello")
        again = await daemon.inject("hello")
        assert again.outcome == "submitted"
        assert (await daemon.answer_to("other", "m2:1")).is_ok
        assert glass.shown.count(b"You said: [from bob] hello") == 1
        assert len([each for each in daemon.answers if each == first]) == 1


async def test_a_line_that_no_terminal_holds_is_refused(home: Path) -> None:
    async with room(home) as place, place.wrapped(dummy()) as glass:
        await place.daemon.until_ready()
        reply = await place.daemon.inject("x" * 5000)
        assert reply.outcome == "refused"
        assert "a line of its terminal holds" in reply.reason
        assert b"xxx" not in glass.shown


async def test_a_program_that_ends_ends_its_turn(home: Path) -> None:
    code = "import os, sys\nprint('> ', end='', flush=True)\nsys.stdin.readline(); os._exit(7)"
    async with room(home) as place, place.wrapped(python(code)) as glass:
        daemon = place.daemon
        await daemon.until_ready()
        assert (await daemon.inject("hello")).outcome == "submitted"
        answer = await daemon.answer("m1:1")
        assert (answer.is_ok, answer.how) == (False, "exited")
        assert await glass.wait() == 7
        assert daemon.ended == [7]


@pytest.mark.parametrize("by", ["user", "daemon"])
async def test_a_turn_that_is_interrupted_by_a_key_is_no_answer(home: Path, by: str) -> None:
    async with room(home) as place, place.wrapped(dummy(60)) as glass:
        daemon = place.daemon
        await daemon.until_ready()
        assert (await daemon.inject("hello")).outcome == "submitted"
        if by == "user":
            await glass.type("\x03")
        else:
            assert await daemon.ask(PressKeys(data=b"\x03"))
        answer = await daemon.answer("m1:1")
        assert (answer.is_ok, answer.how) == (False, "interrupted")
        await glass.type("\x03")
        assert await glass.wait() == 130
        assert daemon.ended == [130]


async def test_silence_ends_a_turn_without_a_prompt(home: Path) -> None:
    code = "import sys\nprint('> ', end='', flush=True)\nfor line in sys.stdin: print('so it is')"
    profile = python(code)
    async with room(home) as place, place.wrapped(profile, pace=Pace(silence=0.3)):
        await place.daemon.until_ready()
        answer = await place.daemon.answer_to("hello")
        assert (answer.is_ok, answer.how, answer.text) == (True, "silence", "so it is")
