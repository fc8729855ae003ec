"""Taking a screen with its history apart into what was asked, what was said and what was done.

Each program marks the beginning of such a block at its left margin and indents what follows. So a
text cannot pose as a block of its own, however much it quotes of a screen: it is indented as well.
opencode marks with bars and says at the end of a turn how it ended; elsewhere its texts are bare.
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from bullpen.model.states import Provider
from bullpen.terminal.rules.screen import width_of

__all__ = ["Block", "BlockKind", "Conversation", "read_conversation"]


class BlockKind(StrEnum):
    """What a part of a conversation is."""

    ASKED = "asked"
    SAID = "said"
    DID = "did"
    """A tool and what it printed."""
    FAILED = "failed"
    STOPPED = "stopped"
    """Somebody interrupted the turn."""
    OTHER = "other"
    """Status, notices, frames, and the prompt box with all below it."""
    CUT = "cut"
    """The end of something that began above."""


class Block(msgspec.Struct):
    """Some lines that belong together, without marks and without indent."""

    kind: BlockKind
    row: int
    lines: list[str]

    @property
    def text(self) -> str:
        """All of it, on one line."""
        return " ".join(" ".join(self.lines).split())


class Conversation(msgspec.Struct, frozen=True):
    """The blocks of a screen from top to bottom, and how wide its texts can be."""

    blocks: tuple[Block, ...]
    width: int
    """Of a text, in cells: wider ones are wrapped."""


class _Hand(msgspec.Struct, frozen=True, kw_only=True):
    """How a program writes. Patterns are matched at the beginning of a line."""

    indent: int
    asked: str
    said: str
    did: str = r"(?!)"
    did_below: str = r"(?!)"
    """The second line of what was done, where the first looks as if it was said."""
    failed: str = r"(?!)"
    stopped: str = r"(?!)"
    other: str = r"(?!)"
    """What is neither, though it is indented or marked as something else."""
    prompt: str = r"(?!)"
    """A frame of the prompt box, or its line: the conversation ends above."""
    inside: str = ""
    """What is in the box below its upper frame; a dialog has something else there."""
    runs_on: bool = False
    """The rest of an error is not indented."""
    margin: int = 0
    """Cells at the right edge without text."""


_CLAUDE = _Hand(
    indent=2,
    asked=r"[❯>!#&] (?!\d+\. )|you: ",
    said=r"[●⏺] |claude: ",
    did=r"[●⏺] .*\(ctrl\+o to expand\)$|tool: ",
    did_below=r"  ⎿",
    failed=r"[●⏺] (?:.* · )?API Error\b|[●⏺] .*\b(?:Unable to connect|Request timed out"
    r"|Credit balance is too low|Invalid API key)\b|[●⏺] .*\b(?:hit your .*limit|limit reached)\b",
    stopped=r"  ⎿ +Interrupted\b",
    other=r"  .*\(ctrl\+o to expand\)$",
    prompt=r"(?:─{8,}|╭─+╮$|╰─+╯$)",  # the last two are of versions before 2
    inside=r"(?:│ )?[❯>!#&]",
)
_CODEX = _Hand(
    indent=2,
    asked=r"[›❯] ",
    said=r"• ",
    did=r"• (?:Added|Edited|Deleted) .*\(\+\d+ -\d+\)$|• (?:Working|Waiting|Thinking) \(\d|[✔✗✘⚠] "
    r"|• (?:Explored|Exploring|Running .*|Updated Plan|Proposed Plan|Questions \d+/\d+ answered)$"
    r"|• (?:Called|Calling) \w+\.\w+|• Exited \(status \d+\) |• Model changed to ",
    did_below=r"  [└│] (?!Tip: )",
    failed=r"■ ",
    stopped=r"■ Conversation interrupted\b",
    other=r"  └ Tip: |  Worked for .*• \d+:\d\d$|─ ",
    prompt=r"[›!](?: (?!\d+\. )|$)",
    runs_on=True,
)
_COPILOT = _Hand(
    indent=3,
    asked=r" ❯ (?!Thought for )",
    said=r" ● ",
    did=r" [$○◉◎◌✓✔] | ● Asked user ",
    did_below=r" +[└│] ",
    failed=r" ✗ (?!.*\b(?:aborted|cancelled|rejected|denied)\b)",
    stopped=r" ● Operation cancelled by user$",
    other=r" ❯ Thought for | ● Request failed due to a transient API error\. Retrying"
    r"| ✗ ",
    prompt=r"─{8,}$",
    inside=r"[❯>!]",
    margin=2,
)
_GEMINI = _Hand(
    indent=2,
    asked=r" ?[>!*] \S",
    said=r"✦ ?",
    did=r" ?[╭│╰]",
    failed=r"✕ ",
    stopped=r"\u2139 Request cancelled",
    other=r" ?[⠁-⣿] | {12,}\S.*(?:for shortcuts|to exit)$|  -  \S.* → | ?▀{8,}",
    prompt=r" ?(?:─|▄){8,}$",
)
_OPENCODE = _Hand(
    indent=5,
    asked=r"(?!)",  # everything beside a bar is read by itself
    said=r" {5}\S",
    did=r" {5}[$←→✱%⚙◇] \S",
    stopped=r" {5}▣ .* · interrupted$",
    other=r" {5}\+ Thought|(?: {5}| {2})▣ ",
    margin=1,
)
_HANDS = {
    Provider.CLAUDE: _CLAUDE,
    Provider.CODEX: _CODEX,
    Provider.COPILOT: _COPILOT,
    Provider.GEMINI: _GEMINI,
    Provider.OPENCODE: _OPENCODE,
}

_BAR = re.compile(r"^ {0,4}┃ ?( .*)?$")
_BOX_END = re.compile(r"^ *╹▀{8,}")
_TOAST = re.compile(r"(?<=\S) {2,}┃.*$|^ {8,}┃.*$|^ {40,}\S.*$")
_UNFINISHED = re.compile(r"^▣ +[^·]+ · [^·]+$")  # a turn that was finished says how long it took
_INTERRUPTIBLE = re.compile(r"\besc (?:again to )?interrupt\b")
_TOOL_BESIDE_BAR = re.compile(r"^(?:[$#←→✱%⚙△] )")
_COPILOT_CHROME = re.compile(r" +[┃│█]$|^ \[Current\] .*$")
_CLOCK = re.compile(r" {2,}\d{1,2}:\d\d$")


def read_conversation(
    lines: Sequence[str], provider: Provider, width: int = 0
) -> Conversation | None:
    """Take the lines of a screen apart, oldest first; None if nothing is known of the program."""
    hand = _HANDS.get(provider)
    if hand is None:
        return None
    width = width or max(map(width_of, lines), default=0)
    lines = [line.replace("\xa0", " ").rstrip() for line in lines]
    if provider is Provider.OPENCODE:
        lines, width = _without_sidebar(lines, width)
        blocks = _read_bars(lines, hand)
    else:
        if provider is Provider.COPILOT:
            lines = [_COPILOT_CHROME.sub("", line).rstrip() for line in lines]
        blocks = list(_read(lines, hand))
    return Conversation(tuple(map(_trimmed, blocks)), width - hand.margin - hand.indent)


def _read(lines: Sequence[str], hand: _Hand) -> Iterator[Block]:
    end = _prompt_row(lines, hand)
    block = Block(BlockKind.CUT, 0, [])
    for row, line in enumerate(lines[:end]):
        kind = _kind_of(line, hand)
        if kind is None:
            if _is_below(block, line, hand):
                block.kind = BlockKind.DID
            block.lines.append(line[hand.indent :])
            continue
        if hand.runs_on and kind is BlockKind.OTHER and block.kind is BlockKind.FAILED:
            block.lines.append(line)
            continue
        yield block
        text = line if kind is BlockKind.OTHER else line[hand.indent :]
        block = Block(kind, row, [_CLOCK.sub("", text) if kind is BlockKind.ASKED else text])
    yield block
    yield Block(BlockKind.OTHER, end, [])


def _prompt_row(lines: Sequence[str], hand: _Hand) -> int:
    """The row at which the prompt box begins, or a dialog in its place.

    Boxes that were drawn before may be in the history, too.
    """
    rows = [row for row, line in enumerate(lines) if re.match(hand.prompt, line)]
    if not hand.inside:
        return rows[-1] if rows else len(lines)
    boxes = [at for at, row in enumerate(rows) if _is_inside(lines, row + 1, hand)]
    if boxes and boxes[-1] + 2 >= len(rows):  # a box has two frames
        return rows[boxes[-1]]
    marks = f"{hand.asked}|{hand.said}"
    said = (row for row, line in enumerate(lines) if re.match(marks, line) and row - 1 not in rows)
    last = max(said, default=-1)
    return next((row for row in rows if row > last), len(lines))


def _is_inside(lines: Sequence[str], row: int, hand: _Hand) -> bool:
    return row < len(lines) and re.match(hand.inside, lines[row]) is not None


def _kind_of(line: str, hand: _Hand) -> BlockKind | None:
    """What begins with a line; None if it goes on with what is above."""
    if not line:
        return None
    for kind, pattern in (
        (BlockKind.STOPPED, hand.stopped),
        (BlockKind.FAILED, hand.failed),
        (BlockKind.OTHER, hand.other),
        (BlockKind.DID, hand.did),
        (BlockKind.SAID, hand.said),
        (BlockKind.ASKED, hand.asked),
    ):
        if re.match(pattern, line):
            return kind
    return BlockKind.OTHER if len(line) - len(line.lstrip()) < hand.indent else None


def _is_below(block: Block, line: str, hand: _Hand) -> bool:
    """Whether a line says that what looked like a text was a tool."""
    is_first_paragraph = block.kind is BlockKind.SAID and all(block.lines)
    return is_first_paragraph and re.match(hand.did_below, line) is not None


def _trimmed(block: Block) -> Block:
    while block.lines and not block.lines[-1].strip():
        block.lines.pop()
    while block.lines and not block.lines[0].strip():
        block.lines.pop(0)
    return block


# ------------------------------------------------------------------------------------- opencode


def _without_sidebar(lines: Sequence[str], width: int) -> tuple[list[str], int]:
    """Leave out what lies over the text or beside it."""
    frames = [width_of(match[0]) for line in lines if (match := _BOX_END.match(line))]
    width = frames[-1] if frames else width
    return [_TOAST.sub("", _clip(line, width)).rstrip() for line in lines], width


def _clip(line: str, cells: int) -> str:
    while width_of(line) > cells:
        line = line[: len(line) - max(1, (width_of(line) - cells) // 2)]
    return line


def _read_bars(lines: Sequence[str], hand: _Hand) -> list[Block]:
    blocks = [Block(BlockKind.CUT, 0, [])]
    was_bar = False
    for row, line in enumerate(lines):
        if _BOX_END.match(line):
            is_over = not any(map(_INTERRUPTIBLE.search, lines[row:]))
            return _settled(blocks[:-1], is_over=is_over)
        bar = _BAR.match(line)
        kind = BlockKind.ASKED if bar else _kind_of(line, hand)
        text = (bar[1] or "")[1:] if bar else line[hand.indent :]
        if was_bar if bar else kind is None or kind is blocks[-1].kind is BlockKind.SAID:
            blocks[-1].lines.append(text)
        else:
            blocks.append(Block(kind or BlockKind.OTHER, row, [text]))
        was_bar = bar is not None
    return _settled(blocks, is_over=False)


def _settled(blocks: list[Block], *, is_over: bool) -> list[Block]:
    """Say of what stands beside a bar what it is: asked, done, or an error, if the turn is over."""
    for block in blocks:
        if block.kind is BlockKind.ASKED and _TOOL_BESIDE_BAR.match(block.text):
            block.kind = BlockKind.DID
    if is_over and len(blocks) > 2 and _UNFINISHED.match(blocks[-1].text):
        if blocks[-2].kind is BlockKind.ASKED and blocks[-3].kind is not BlockKind.OTHER:
            blocks[-2].kind = BlockKind.FAILED
        elif blocks[-2].kind is BlockKind.DID:
            blocks[-1].kind = BlockKind.STOPPED  # it was not allowed to
    return blocks
