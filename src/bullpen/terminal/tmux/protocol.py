r"""Tmux's control mode, without I/O.

The caller feeds what tmux wrote and takes blocks and notifications; however the stream is cut, they
are the same. A block is the answer to one command:

    %begin 1363006971 2 1
    0: ksh* (1 panes) [80x24]
    %end 1363006971 2 1

What is between the guards is printed as it is, also the text of a screen, which may look like a
guard. So only the guard with the very numbers of the block ends it; and since a program on a screen
might guess those, the true guard that comes after a forged one is an error. Whoever needs to be
sure of an answer before acting on it asks something behind it that no program can guess.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from bullpen.terminal.tmux.errors import TmuxProtocolError

__all__ = [
    "Block",
    "ControlParser",
    "Event",
    "Notification",
    "Stray",
    "argument_words",
    "command_line",
    "escape_format",
    "pane_output",
    "quote",
    "unescape",
]

MAX_BLOCK_BYTES = 64 * 2**20  # the whole history of a pane that keeps half a million lines
MAX_LINE_BYTES = 2**20  # outside of blocks; %output of one read is far below

CONTROL_FLAG = 1  # set in the guards of commands that came from us, not from the command line


class Block(msgspec.Struct, frozen=True):
    """What one command printed, or why it failed."""

    time: int  # the server's clock, in whole seconds, when the command began
    number: int
    flags: int
    is_error: bool
    output: bytes

    @property
    def is_ours(self) -> bool:
        """Whether it answers a command sent over the connection."""
        return bool(self.flags & CONTROL_FLAG)


class Notification(msgspec.Struct, frozen=True):
    """Something that happened: `%sessions-changed`, with what follows the name."""

    name: str
    arguments: bytes


class Stray(msgspec.Struct, frozen=True):
    """A line that is neither: a word of the tmux program itself, before it could connect."""

    line: bytes


Event = Block | Notification | Stray

_BEGIN = re.compile(rb"%begin (\d{1,20}) (\d{1,20}) (\d{1,10})")
_END = re.compile(rb"%(?:end|error) \d{1,20} \d{1,20} \d{1,10}")


class ControlParser:
    """Turns the bytes that tmux wrote into events."""

    def __init__(self, *, block_limit: int = MAX_BLOCK_BYTES) -> None:
        self._block_limit = block_limit
        self._buffer = bytearray()
        self._searched = 0  # no end of what is looked for begins before this
        self._open: tuple[bytes, bytes, bytes] | None = None  # time, number, flags of the block
        self._tail = b""  # the end of the guard that ends it
        self._last_tail = b""  # the end of the guard that ended the last block

    def feed(self, data: bytes) -> None:
        """Add bytes that were read."""
        self._buffer += data

    def events(self) -> Iterator[Event]:
        """Yield each complete event, in order.

        Raises:
            TmuxProtocolError: this is not, or no longer, what tmux says. It is fatal.
        """
        while True:
            event = self._next_block() if self._open else self._next_line()
            if event is None:
                return
            if isinstance(event, Block | Notification | Stray):
                yield event

    def _next_line(self) -> Event | bool | None:
        """Return what the next line says; True if it opened a block, None if it is incomplete."""
        end = self._buffer.find(b"\n", self._searched)
        if (end if end >= 0 else len(self._buffer)) > MAX_LINE_BYTES:
            raise TmuxProtocolError(f"a line is longer than {MAX_LINE_BYTES} bytes")
        if end < 0:
            self._searched = len(self._buffer)
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        if not line.startswith(b"%"):
            return Stray(line)
        if begin := _BEGIN.fullmatch(line):
            time, number, flags = begin.groups()
            self._open = (time, number, flags)
            self._tail = b" %b %b %b\n" % self._open
            return True
        if _END.fullmatch(line):
            raise TmuxProtocolError(f"a block ended that had not begun: {line!r}")
        name, _, arguments = line[1:].partition(b" ")
        return Notification(name.decode(errors="replace"), arguments)

    def _next_block(self) -> Block | None:
        assert self._open is not None
        buffer, tail = self._buffer, self._tail
        while (at := buffer.find(tail, self._searched)) >= 0:
            self._searched = at + 1
            is_error = buffer.endswith(b"%error", 0, at)
            start = at - (6 if is_error else 4)
            is_guard = is_error or buffer.endswith(b"%end", 0, at)
            if is_guard and (start == 0 or buffer[start - 1] == 10):
                return self._close(start, at + len(tail), is_error=is_error)
        self._searched = max(self._searched, len(buffer) - len(tail) + 1)
        if len(buffer) > self._block_limit:
            raise TmuxProtocolError(f"an answer is longer than {self._block_limit} bytes")
        return None

    def _close(self, start: int, end: int, *, is_error: bool) -> Block:
        assert self._open is not None
        output = bytes(self._buffer[:start])
        if self._last_tail and _has_guard(output, self._last_tail):
            raise TmuxProtocolError("a block ended twice: something on a screen posed as tmux")
        time, number, flags = map(int, self._open)
        del self._buffer[:end]
        self._searched = 0
        self._open, self._last_tail = None, self._tail
        return Block(time, number, flags, is_error, output)


def _has_guard(output: bytes, tail: bytes) -> bool:
    return any(
        output.startswith(guard) or b"\n" + guard in output
        for guard in (b"%end" + tail, b"%error" + tail)
    )


# ----------------------------------------------------------------------------- what a pane printed

_OCTAL = re.compile(rb"\\([0-7]{3})")


def unescape(value: bytes) -> bytes:
    r"""Return the bytes that tmux wrote as `\ooo`."""
    return _OCTAL.sub(lambda match: bytes((int(match[1], 8) & 0xFF,)), value)


def pane_output(notification: Notification) -> tuple[str, bytes] | None:
    """Return pane and bytes of an `%output` or `%extended-output`; None for any other."""
    pane, _, rest = notification.arguments.partition(b" ")
    if notification.name == "extended-output":
        _, _, rest = rest.partition(b" : ")
    elif notification.name != "output":
        return None
    return pane.decode(errors="replace"), unescape(rest)


# ------------------------------------------------------------------------------------- quoting

# Within double quotes tmux expands `$`, `\` and a leading `~`; a control character would end the
# line or be lost. Everything else, also `;`, `#` and `{`, is itself.
_SPECIAL = re.compile(r'[\x01-\x1f\x7f"\\$~]')


def quote(word: str) -> str:
    """Return a word so that tmux reads it as that one word, whatever is in it.

    Formats are another matter: whether `#{pane_id}` in a word means something is up to the command.
    `escape_format` is for words that must not.

    Raises:
        ValueError: there is a null character in it, which tmux cannot be told.
    """
    if "\0" in word:
        raise ValueError("a word of a tmux command cannot contain a null character")
    return f'"{_SPECIAL.sub(_octal, word)}"'


def _octal(match: re.Match[str]) -> str:
    return f"\\{ord(match[0]):03o}"


def escape_format(text: str) -> str:
    """Return a text that stays as it is where tmux expands formats."""
    return text.replace("#", "##")


def command_line(words: Sequence[str]) -> bytes:
    """Return the line that runs one command over a control-mode connection.

    Raises:
        ValueError: there is no word, or a null character in one. An empty line would end the
            connection.
    """
    if not words or not words[0]:
        raise ValueError("a tmux command has a name")
    # What cannot be encoded came in by surrogateescape, and goes out as the byte it was.
    return " ".join(map(quote, words)).encode(errors="surrogateescape") + b"\n"


def argument_words(words: Sequence[str]) -> list[str]:
    """Return the words of one command as arguments of the tmux program.

    There a final `;` ends the command, unless it is escaped.

    Raises:
        ValueError: there is no word, or a null character in one.
    """
    if not words or not words[0]:
        raise ValueError("a tmux command has a name")
    if any("\0" in word for word in words):
        raise ValueError("a word of a tmux command cannot contain a null character")
    return [f"{word[:-1]}\\;" if word.endswith(";") else word for word in words]
