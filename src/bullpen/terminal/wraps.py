"""Undoing the line breaks that a program made because its terminal ends.

A program that wraps its text itself leaves no mark of it. What can be known is this: it breaks a
line only where the next word would not have fitted. So a break is undone where that is so and both
lines look like one paragraph, and kept everywhere else. A line of code that ends just at the edge
of the terminal is taken for a wrapped one; that much cannot be seen.
"""

import re
import unicodedata
from collections.abc import Sequence

from bullpen.terminal.rules.screen import width_of

__all__ = ["unwrapped"]

_ITEM = re.compile(r"(?:[-*•◦▪] |\d{1,3}[.)] )")
_NO_PROSE = re.compile(r"[│┃▎┌├└┬┴┼╭╰─━═|>#`+]")  # what begins a table, a quote, a heading, a fence


def unwrapped(lines: Sequence[str], width: int) -> str:
    """Join the lines of one text that fits into `width` cells."""
    joined: list[str] = []
    last = ""  # the line as it stood, of which the last of `joined` may be the end of more
    hanging = 0
    for line in lines:
        glue = _glue(last, line, hanging, width) if joined else None
        if glue is None:
            joined.append(line.rstrip())
            hanging = _hanging(line)
        else:
            joined[-1] += glue + line.strip()
        last = line.rstrip()
    return "\n".join(joined)


def _hanging(line: str) -> int:
    """The column at which the text of a line begins, behind the mark of a list if it has one."""
    text = line.lstrip()
    mark = _ITEM.match(text)
    return len(line) - len(text) + (mark.end() if mark else 0)


def _glue(last: str, line: str, hanging: int, width: int) -> str | None:
    """What stood between two lines that were one; None if they were two."""
    text = line.strip()
    if not last.strip() or not text or _ITEM.match(text) or _NO_PROSE.match(text):
        return None
    indent = len(line) - len(line.lstrip())
    if indent not in (hanging, len(last) - len(last.lstrip())) or _NO_PROSE.match(last.strip()):
        return None
    room = width - width_of(last)
    word, before = text.split()[0], last.rsplit(maxsplit=1)[-1]
    if _is_wide(last[-1]) and _is_wide(text[0]):
        if room > width_of(_clause(word)):
            return None
        return "" if room < 4 or _is_closing(last[-1]) else " "
    if room > width_of(word):
        return None
    if width_of(before) + width_of(word) > width - indent:
        return ""  # a word longer than a line, such as an address
    if before[-1] in "/-" and "/" in before + word:
        return None  # an address, broken where it may be, or two words
    return " "


def _clause(word: str) -> str:
    """What is kept on one line where words have no spaces between them."""
    end = next((at + 1 for at, char in enumerate(word) if _is_closing(char)), len(word))
    return word[:end]


def _is_closing(char: str) -> bool:
    return unicodedata.category(char) in ("Po", "Pe")


def _is_wide(char: str) -> bool:
    return width_of(char) == 2
