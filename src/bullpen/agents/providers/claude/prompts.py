"""What Claude Code makes of a text that reaches it through a hook, and how to get it back.

The stderr of a waiter that wakes the session (`asyncRewake`, exit code 2) becomes a prompt with a
notification before it and a reminder around it; what a hook answers at the end of a turn
(`decision: block`) becomes one below a line of its own. The text itself is not changed.
"""

import re
from typing import Final

__all__ = ["WAKE_MESSAGE", "WAKE_SUMMARY", "plain_prompt"]

WAKE_MESSAGE: Final = "A message for you came in through bullpen; it begins with who sent it:"
"""What the model is told before the text; the program's own words would call it an error."""
WAKE_SUMMARY: Final = "a message came in through bullpen"
"""What the program shows in the terminal for it."""

_FEEDBACK: Final = "Stop hook feedback:\n"
_WOKEN: Final = re.compile(
    r"<task-notification>\n<summary>[^<]*</summary>\n</task-notification>\n"
    r"<system-reminder>\n(?P<text>.*)\n</system-reminder>",
    re.DOTALL,
)
_INTRODUCTION: Final = re.compile(
    rf'\A(?:{re.escape(WAKE_MESSAGE)}|Stop hook blocking error from command "[^"\n]*":) '
)


def plain_prompt(prompt: str) -> str:
    """Return a prompt without what the program has put around it."""
    if prompt.startswith(_FEEDBACK):
        return prompt.removeprefix(_FEEDBACK)
    woken = _WOKEN.fullmatch(prompt)
    return _INTRODUCTION.sub("", woken["text"]) if woken else prompt
