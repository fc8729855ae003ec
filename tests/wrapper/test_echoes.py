"""The echo of a line is what its terminal wrote, and not what the program quotes of it."""

import re

import pytest

from bullpen.wrapper.echoes import reply_of

IDLE = re.compile(rb"> $")


@pytest.mark.requirement("reply:lines")
@pytest.mark.parametrize(
    ("data", "reply"),
    [
        (b"do it\r\ndone\r\n> ", "done"),
        (b"\r\x1b[K> do it\r\ndone\r\n> ", "done"),
        (b"a tick\r\ndo it\r\ndone\r\n> ", "done"),
        (b"you said: do it\r\n> ", "you said: do it"),
        (b"do it\r\nyou said: do it\r\n> ", "you said: do it"),
    ],
    ids=["plain", "prompt-painted-again", "behind-another-line", "not-echoed", "echoed-and-quoted"],
)
def test_a_line_that_is_quoted_is_no_echo(data: bytes, reply: str) -> None:
    assert reply_of(data, "do it", "> ", IDLE) == reply
