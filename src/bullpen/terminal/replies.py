"""What an agent answered to a message, read off its screen and the history above it.

This is the last resort, for programs that tell it in no better way, and a screen cannot tell all:

- Markdown is shown rendered, so emphasis, fences and some brackets are gone.
- Lines that a program wrapped are joined where the next word would not have fitted (`wraps`).
- A program on the alternate screen has no history. Of what does not fit on it the beginning is
  gone; then the text begins with a line `…`, or the message is not found at all.
- What was said before the agent used a tool is not the reply, if it said anything afterwards.
- An error is known by how it begins. A reply that begins just like one cannot be told from it
  without colours, which the rules of screens have.
"""

import re
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from bullpen.model.states import Provider
from bullpen.model.turns import TurnEnd
from bullpen.terminal.conversations import Block, BlockKind, Conversation, read_conversation
from bullpen.terminal.wraps import unwrapped

__all__ = [
    "CUT_MARK",
    "Failure",
    "FailureKind",
    "end_of_reply_on_screen",
    "failure_on_screen",
    "reply_on_screen",
]

CUT_MARK = "…"
"""The first line of a reply whose beginning cannot be seen any more."""

_LEAST_END = 24  # characters of the end of a message, if its beginning is gone
_HIDDEN = "lines hidden)"  # what Claude Code writes in the place of the middle of a long message
_SAID = (BlockKind.SAID,)
_SAID_OR_FAILED = (BlockKind.SAID, BlockKind.FAILED)
_LIMIT = re.compile(
    r"\b429\b|(?:rate|usage)[ _]limit|limit reached|hit your .*limit|too many requests|quota"
    r"|resource_exhausted",
    re.IGNORECASE,
)


class FailureKind(StrEnum):
    """Why a turn ended without a reply."""

    ERROR = "error"
    RATE_LIMIT = "rate_limit"
    INTERRUPTED = "interrupted"


class Failure(msgspec.Struct, frozen=True):
    """How the last turn failed, and the words on the screen that say so."""

    kind: FailureKind
    line: str

    @property
    def end(self) -> TurnEnd:
        """The same as the end of a turn."""
        return _ENDS[self.kind]


_ENDS = {
    FailureKind.ERROR: TurnEnd.FAILED,
    FailureKind.RATE_LIMIT: TurnEnd.RATE_LIMITED,
    FailureKind.INTERRUPTED: TurnEnd.INTERRUPTED,
}


def reply_on_screen(
    lines: Sequence[str],
    message: str,
    provider: Provider,
    *,
    width: int = 0,
    is_error_free: bool = False,
) -> str | None:
    """Return what the agent said last in the turn that a message began; None if that is not there.

    Args:
        lines: the history and the screen, oldest first, without escape sequences.
        message: as it was typed, with its sender.
        provider: whose program it is.
        width: of the terminal, in cells; by default as much as the widest line.
        is_error_free: it is known, by colours, that what reads like an error was said.
    """
    conversation = read_conversation(lines, provider, width)
    if conversation is None:
        return _plain_reply(lines, message)
    found = _find(conversation.blocks, _squeezed(message))
    if found is None:
        return None
    kinds = _SAID_OR_FAILED if is_error_free else _SAID
    return _last_words(conversation, *found, kinds)


def end_of_reply_on_screen(
    lines: Sequence[str], provider: Provider, *, width: int = 0
) -> str | None:
    """Return the end of a reply that has scrolled its own message away, after `CUT_MARK`.

    None if somebody's message is still there: then it may be the reply to that one.
    """
    conversation = read_conversation(lines, provider, width)
    if conversation is None:
        return None
    blocks = conversation.blocks
    if any(block.kind is BlockKind.ASKED for block in blocks):
        return None
    at = next((at for at, block in enumerate(blocks) if block.lines), len(blocks))
    first = blocks[at] if at < len(blocks) else None
    is_cut = first is not None and (
        first.kind is BlockKind.CUT
        or (first.kind is BlockKind.SAID and provider is Provider.OPENCODE)
    )
    return _last_words(conversation, at if is_cut else -1, first.lines if first and is_cut else [])


def failure_on_screen(
    lines: Sequence[str], provider: Provider, *, message: str = ""
) -> Failure | None:
    """Return how the last turn failed; None if it did not, or has not ended.

    opencode shows an error as it shows what was asked. To be sure it needs the message, if known.
    """
    conversation = read_conversation(lines, provider)
    if conversation is None:
        return None
    turn: list[Block] = []
    for block in reversed(conversation.blocks):
        if block.kind is BlockKind.ASKED:
            break
        if block.kind is BlockKind.FAILED and message and _is_message(block, _squeezed(message)):
            return Failure(FailureKind.INTERRUPTED, turn[0].text if turn else "")
        turn.insert(0, block)
    return _failure(turn)


def _failure(turn: Sequence[Block]) -> Failure | None:
    """A failure counts if nothing was said or done after it."""
    failed: list[Block] = []
    for block in turn:
        if block.kind is BlockKind.STOPPED:
            return Failure(FailureKind.INTERRUPTED, block.text)
        if block.kind is BlockKind.FAILED:
            failed.append(block)
        elif block.kind in (BlockKind.SAID, BlockKind.DID):
            failed.clear()
    if not failed:
        return None
    words = " ".join(block.text for block in failed)
    kind = FailureKind.RATE_LIMIT if _LIMIT.search(words) else FailureKind.ERROR
    return Failure(kind, words)


# ----------------------------------------------------------------------------------- the message


def _find(blocks: Sequence[Block], wanted: str) -> tuple[int, list[str]] | None:
    """The place of a message, the last if there are more, and what is below it in its block."""
    for at in reversed(range(len(blocks))):
        block = blocks[at]
        if block.kind is not BlockKind.ASKED:
            continue
        if _is_message(block, wanted):
            return at, []
        if block.row == 0 and _is_headline(block.lines[0], wanted):
            return at, block.lines[1:]
    return _find_end(blocks, wanted)


def _is_message(block: Block, wanted: str) -> bool:
    head: list[str] = []
    for number, line in enumerate(block.lines):
        if _HIDDEN in line:
            tail = _squeezed("".join(block.lines[number + 1 :]))
            return wanted.startswith(_squeezed("".join(head))) and wanted.endswith(tail)
        head.append(line)
    return _squeezed("".join(head)) == wanted


def _is_headline(line: str, wanted: str) -> bool:
    """Codex keeps the beginning of a prompt at the top while the answer is scrolled below it."""
    shown = _squeezed(line)
    return shown == wanted or (
        shown.endswith(CUT_MARK) and wanted.startswith(shown.removesuffix(CUT_MARK))
    )


def _find_end(blocks: Sequence[Block], wanted: str) -> tuple[int, list[str]] | None:
    """A message of which only the end can still be seen, at the very top."""
    for at, block in enumerate(blocks):
        shown = _squeezed("".join(block.lines))
        if not shown:
            continue
        if len(shown) >= _LEAST_END and wanted.endswith(shown):
            return at, []
        if block.kind is not BlockKind.OTHER:
            return None
    return None


def _squeezed(text: str) -> str:
    return "".join(text.split())


# ------------------------------------------------------------------------------------- the reply


def _last_words(
    conversation: Conversation, at: int, cut: list[str], kinds: tuple[BlockKind, ...] = _SAID
) -> str:
    """What was said last before the next message. What is `cut` has its beginning above."""
    groups = [[Block(BlockKind.CUT, 0, [CUT_MARK, *cut])] if any(cut) else []]
    for block in conversation.blocks[at + 1 :]:
        if block.kind is BlockKind.ASKED:
            break
        if block.kind is BlockKind.DID:
            groups.append([])
        elif block.kind in kinds:
            groups[-1].append(block)
    last = next((group for group in reversed(groups) if group), [])
    return "\n\n".join(unwrapped(block.lines, conversation.width) for block in last)


def _plain_reply(lines: Sequence[str], message: str) -> str | None:
    """What follows a message in the output of a program of which nothing is known."""
    wanted = message.strip().split("\n")
    for row in reversed(range(len(lines) - len(wanted) + 1)):
        shown = [line.strip() for line in lines[row : row + len(wanted)]]
        if not shown[0].endswith(wanted[0].strip()) or shown[1:] != [
            line.strip() for line in wanted[1:]
        ]:
            continue
        prompt = shown[0].removesuffix(wanted[0].strip()).strip()
        said = [line.rstrip() for line in lines[row + len(wanted) :]]
        end = next((at for at, line in enumerate(said) if prompt and line.startswith(prompt)), None)
        return "\n".join(said[:end]).strip("\n")
    return None
