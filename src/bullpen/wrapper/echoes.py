"""Cutting a reply out of what a program that prints lines wrote after it was given one. Pure.

What it wrote is: the echo of the line, the reply, the prompt. Echo and prompt are recognized, not
guessed by their length: a terminal wraps what it echoes, and programs paint their prompts.
"""

import re

from bullpen.terminal.context import plain_text
from bullpen.wrapper.status import TAIL_BYTES, last_line

__all__ = ["echo_end", "reply_of", "said_so_far"]

_MOST_BEFORE = 65_536  # bytes that something else may have written before the echo
_SKIPPED = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x20\x7f]"
)
# The beginning of a sequence or of a character, at the end of what was read.
_UNFINISHED = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?"
    rb"|[\xc2-\xf4]|[\xe0-\xf4][\x80-\xbf]|[\xf0-\xf4][\x80-\xbf]{2}|\r+)\Z"
)


def echo_end(data: bytes, line: str, prompt: str = "") -> int | None:
    """Where the echo of a line ends, behind its newline; None if it is not there, or not yet.

    It stands at the beginning of a line, or behind the prompt: elsewhere the program quotes it.
    """
    typed = line.encode()
    begin = data.find(typed, 0, _MOST_BEFORE + len(typed))
    if begin >= 0 and last_line(data[:begin]).strip() not in ("", prompt.strip()):
        return None
    end = begin + len(typed) if begin >= 0 else _wrapped_end(data, b"".join(typed.split()))
    if end is None:
        return None
    while end < len(data):
        if data[end] == 0x0A:
            return end + 1
        match = _SKIPPED.match(data, end)
        if match is None:
            return end  # the reply follows without a line of its own
        end = match.end()
    return None


def _wrapped_end(data: bytes, wanted: bytes) -> int | None:
    """Where a line ends that was broken by its terminal, or by the program that edits it."""
    at = 0
    for byte in wanted:
        while (match := _SKIPPED.match(data, at)) is not None:
            at = match.end()
        if at >= len(data) or data[at] != byte:
            return None
        at += 1
    return at


def reply_of(data: bytes, line: str, prompt: str, idle: re.Pattern[bytes]) -> str:
    """What was said between the echo of a line and the prompt, if they are there."""
    said = plain_text(data[echo_end(data, line, prompt) or 0 :])
    tail = said[-TAIL_BYTES:]
    if prompt and (said == prompt or said.endswith(f"\n{prompt}")):
        said = said[: len(said) - len(prompt)]
    elif matches := list(idle.finditer(tail.encode())):
        kept = tail.encode()[: matches[-1].start()].decode(errors="ignore")
        said = said[: len(said) - len(tail)] + kept
    elif idle.search(last_line(tail.encode()).encode()):
        said = said[: said.rfind("\n") + 1]  # a prompt that is painted over
    return said.strip("\n").rstrip()


def said_so_far(data: bytes, line: str, prompt: str, idle: re.Pattern[bytes]) -> str:
    """What was said behind the echo of a line, as far as `reply_of` will begin like this.

    A last line that may become the prompt is left out.
    """
    begin = echo_end(data, line, prompt)
    if begin is None:
        return ""
    said = plain_text(_UNFINISHED.sub(b"", data[begin:]))
    before, _, last = said.rpartition("\n")
    if prompt.startswith(last) or idle.search(last.encode()):
        said = before
    return said.strip("\n").rstrip()
