"""Printing what an agent says as it says it, and then what is left of its answer."""

import re

import click

from bullpen.api.outputs import Output
from bullpen.cli.receipts import echo_text

__all__ = ["Voice", "rest_of"]

_FENCE = re.compile(r"\s*(?:```|~~~)")
_MARKS = "*_`~"  # which end what was shown in another way


class Voice:
    """Prints what an agent says as it says it."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, output: Output) -> None:
        if output.is_new:
            self._end()
        self._said += output.text
        echo_text(output.text, ends=False)

    def rest(self, answer: str) -> str:
        """Return what is still to be printed of an answer."""
        rest = rest_of(answer, self._said)
        if rest is None:
            self._end()
            return answer
        return rest

    def _end(self) -> None:
        """Leave a line free below what was said on the way."""
        if self._said:
            click.echo("\n" if self._said.endswith("\n") else "\n\n", nl=False)
        self._said = ""


def rest_of(answer: str, said: str) -> str | None:
    """Return what follows in an answer on what was said; None if something else was said.

    What was read off a terminal is the same but for its Markdown: so only letters and digits count.
    """
    if answer.startswith(said):
        return answer.removeprefix(said)
    wanted = [each for each in reversed(said) if each.isalnum()]
    at = 0
    for line in answer.splitlines(keepends=True):
        for place, sign in enumerate(line if not _FENCE.match(line) else "", start=at + 1):
            if not sign.isalnum():
                continue
            if not wanted or sign != wanted.pop():
                return None
            if not wanted:
                return answer[place:].lstrip(_MARKS)
        at += len(line)
    return None
