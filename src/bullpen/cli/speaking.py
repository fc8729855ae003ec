"""What the commands that speak share: who speaks, what is said, and what a refusal is to a script.

An agent is known by the secret it was launched with; whoever has none is the user.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click

from bullpen.api.errors import reason_of
from bullpen.cli.output import print_json
from bullpen.connection import RemoteError
from bullpen.errors import BullpenError
from bullpen.model.appearance import one_line
from bullpen.model.messages import Priority
from bullpen.model.reasons import Reason

__all__ = [
    "ENDED",
    "NOBODY",
    "REFUSED",
    "TIMEOUT",
    "UnreadableTextError",
    "exit_code",
    "priority_option",
    "read_text",
    "refusals",
    "secret",
    "text_option",
]

F = TypeVar("F")

TIMEOUT = 3
NOBODY = 4
REFUSED = 5
ENDED = 6

SECRET_VARIABLE = "BULLPEN_SECRET"  # noqa: S105 - its name
_NOT_THERE = {
    each.word for each in (Reason.AGENT_NOT_FOUND, Reason.NOBODY_LISTENS, Reason.MESSAGE_NOT_FOUND)
}
_TROUBLE = {each.word for each in (Reason.AGENT_AMBIGUOUS, Reason.STORE_UNAVAILABLE)}


class UnreadableTextError(BullpenError):
    """A text to send cannot be read. Nothing has been sent."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def secret() -> str:
    """Return what proves who we are; empty for the user."""
    return os.environ.get(SECRET_VARIABLE, "")


def text_option(command: F) -> F:
    """Let a command take its text from a file."""
    option = click.option(
        "--file", "path", metavar="PATH", help="Read the text from a file; - is standard input."
    )
    return option(command)  # type: ignore[type-var]  # click wants a callable, which it is


def priority_option(command: F) -> F:
    """Let a command be told how much its message matters."""
    option = click.option(
        "-p",
        "--priority",
        default=Priority.NORMAL.value,
        show_default=True,
        metavar="PRIORITY",
        callback=_priority,
        shell_complete=lambda _, __, begun: [each for each in Priority if each.startswith(begun)],
        help="low, normal, high or urgent, or 1 to 5; urgent interrupts what the agent is doing.",
    )
    return option(command)  # type: ignore[type-var]  # click wants a callable, which it is


def _priority(_: click.Context, __: click.Parameter, value: str) -> Priority:
    if value in ("1", "2", "3", "4", "5"):
        return Priority.of_rank(int(value))
    words = [each.value for each in Priority]
    if value not in words:
        raise click.BadParameter(f"{value!r} is not one of {', '.join(words)}, or 1 to 5")
    return Priority(value)


def read_text(text: str | None, path: str | None, *, may_be_empty: bool = False) -> str:
    """Return the text that was given: as an argument, by `-` on standard input, or in a file.

    One newline at the end of a file or of standard input is not part of it.

    Raises:
        UnreadableTextError: it cannot be read, or is no text.
        click.UsageError: there is none, or there are two.
    """
    if text is not None and path is not None:
        raise click.UsageError("give a text or --file, not both")
    if text == "-":
        text, path = None, "-"
    if path is not None:
        text = _read(path).removesuffix("\n")
    if not (text and text.strip()) and not may_be_empty:
        raise click.UsageError(
            "there is nothing to say: give a text, - for standard input or --file"
        )
    return text or ""


def _read(path: str) -> str:
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return content.decode()
    except OSError as error:
        raise UnreadableTextError(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise UnreadableTextError(path, "it is not UTF-8 text") from error


@contextmanager
def refusals(context: click.Context, *, as_json: bool = False) -> Iterator[None]:
    """End a command that the daemon refused with the code a script expects."""
    try:
        yield
    except RemoteError as error:
        code = exit_code(error)
        if as_json:
            said = {"reason": reason_of(error), "message": error.message, "data": error.data}
            print_json(error=said)
        else:
            click.echo(f"bullpen: {one_line(error.message)}", err=True)
        context.exit(code)


def exit_code(error: RemoteError) -> int:
    """Return the exit code for a refusal."""
    reason = reason_of(error)
    if reason in _NOT_THERE:
        return NOBODY
    return 1 if not reason or reason in _TROUBLE else REFUSED
