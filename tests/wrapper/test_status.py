"""The status of who prints lines, and the reply cut out of what it printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.states import Activity
from bullpen.terminal.context import OutputContext
from bullpen.wrapper.echoes import echo_end, reply_of
from bullpen.wrapper.status import LineStatus, Status, compile_idle, last_line, status_of

IDLE = compile_idle("> $")


@pytest.mark.requirement("S-28", "S-29")
def test_it_goes_from_starting_to_busy_and_is_idle_at_its_prompt() -> None:
    machine, context = LineStatus(IDLE), OutputContext()
    assert machine.see(context) is Status.NOT_STARTED
    machine.start()
    assert machine.see(context) is Status.STARTING
    machine.begin()
    assert machine.see(context) is Status.BUSY
    context.feed(b"hello\r\n")
    assert machine.see(context) is Status.BUSY
    context.feed(b"ann> ")
    assert machine.see(context) is Status.IDLE
    assert machine.prompt == "ann> "
    machine.type_line(context.end)
    assert machine.see(context) is Status.BUSY  # the prompt is still the last that was written
    context.feed(b"work\r\nworking")
    assert machine.see(context) is Status.BUSY
    context.feed(b"\r\nann> ")
    assert machine.see(context) is Status.IDLE
    machine.end()
    assert machine.see(context) is Status.NOT_STARTED


@pytest.mark.requirement("S-171")
def test_a_prompt_is_looked_for_in_the_last_thousand_bytes() -> None:
    machine, context = LineStatus(compile_idle("prompt>")), OutputContext()
    machine.begin()
    context.feed(b"prompt>" + b"x" * 993)
    assert machine.see(context) is Status.IDLE
    context.feed(b"x" * 500)
    assert machine.see(context) is Status.BUSY


@pytest.mark.parametrize(
    ("tail", "line"),
    [
        (b"a\r\n> ", "> "),
        (b"> draft\b \b\b \b\b \b\b \b\b \b", "> "),
        (b"\x1b[?2004h\x1b[32m$\x1b[0m \x1b[K", "$ "),
        (b"loading 10%\rloading 99%", "loading 99%"),
        ("あ> ".encode(), "あ> "),
        (b"", ""),
    ],
    ids=["plain", "rubbed-out", "painted", "over-written", "wide", "nothing"],
)
def test_the_last_line_is_what_is_shown_of_it(tail: bytes, line: str) -> None:
    assert last_line(tail) == line


def test_every_activity_has_a_word_of_the_seeds() -> None:
    assert {each: str(status_of(each)) for each in Activity} == {
        Activity.STARTING: "STARTING",
        Activity.RUNNING: "BUSY",
        Activity.IDLE: "IDLE",
        Activity.WAITING_INPUT: "BUSY",
        Activity.WAITING_APPROVAL: "BUSY",
        Activity.RATE_LIMITED: "IDLE",
        Activity.ERROR: "IDLE",
        Activity.EXITED: "NOT_STARTED",
        Activity.UNKNOWN: "BUSY",
    }


@pytest.mark.parametrize(
    ("data", "reply"),
    [
        (b"say it\r\nyes\r\n> ", "yes"),
        (b"say it\r\n> ", ""),
        (b"say it\r\nyes> ", "yes"),
        (b"say it\r\n  two\r\n\r\n  lines\r\n> ", "  two\n\n  lines"),
        (b"say \r\nit\r\nyes\r\n> ", "yes"),  # wrapped by the terminal
        (b"\x1b[1msay\x1b[0m it\x1b[K\r\nyes\r\n\x1b[32m> \x1b[0m", "yes"),
        (b"yes\r\n> ", "yes"),  # not echoed
        (b"a word from behind\r\nsay it\r\nyes\r\n> ", "yes"),
        (b"say it\r\n> a quotation\r\nyes\r\n> ", "> a quotation\nyes"),
        (b"say it\r\nstill at it", "still at it"),
        (b"say it\r\nyes\r\nother> ", "yes\nother"),  # nothing is lost, if the prompt is another
    ],
    ids=[
        *("plain", "empty", "no-newline", "lines", "wrapped", "painted", "no-echo", "late-echo"),
        *("quotation", "no-prompt", "other-prompt"),
    ],
)
def test_a_reply_is_between_the_echo_and_the_prompt(data: bytes, reply: str) -> None:
    assert reply_of(data, "say it", "> ", IDLE) == reply


words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1)


@given(line=words, said=st.lists(words, min_size=1))
def test_every_reply_comes_out_as_it_was_said(line: str, said: list[str]) -> None:
    echo = line.encode() + b"\r\n"
    data = echo + "".join(f"{each}\r\n" for each in said).encode() + b"ann> "
    assert echo_end(data, line) == len(echo)
    assert reply_of(data, line, "ann> ", IDLE) == "\n".join(said)
