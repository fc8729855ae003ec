"""Finding messages to other agents in what a user types: `@name [--response] text`, then Enter.

Everything typed goes on to the program at once and unchanged, so that it echoes as ever. Only the
Enter behind an address is held back; the caller then clears the line and sends the message. An
address is a line of its own, typed at a fresh prompt: what is pasted, recalled, completed or typed
into something else is none, and goes to the program like any other line. However the bytes are cut,
the decisions are the same.
"""

import re
from collections.abc import Callable

import msgspec

__all__ = [
    "Address",
    "Keyboard",
    "Passed",
    "is_report",
    "not_found_notice",
    "parse_address",
    "reply_notice",
    "sent_notice",
]

CLEAR_LINE = b"\x15"  # Ctrl-U, for terminals in line mode, readline and agent programs alike
MAX_LINE = 10_000  # characters; nobody types so many
MAX_SEQUENCE = 64  # bytes of a key; what is longer is no key

_ADDRESS = re.compile(
    r"@(?P<name>\w[\w-]*)(?:@(?P<host>\w[\w.-]*))?"
    r"(?P<response>\s+--response(?=\s|$))?\s+(?P<message>\S.*)",
    re.DOTALL,
)
_QUOTES = "\"'"

_ESC, _DEL = 0x1B, 0x7F
_ENTERS = b"\r\n"
_ABANDON = b"\x03\x04\x1a"  # Ctrl-C, Ctrl-D, Ctrl-Z: the line is gone, a new one begins
_PASTE_BEGIN, _PASTE_END = b"[200~", b"[201~"
_MOVES = {
    **dict.fromkeys((b"[D", b"OD"), "left"),
    **dict.fromkeys((b"[C", b"OC"), "right"),
    **dict.fromkeys((b"[H", b"OH", b"[1~", b"[7~"), "home"),
    **dict.fromkeys((b"[F", b"OF", b"[4~", b"[8~"), "end"),
    b"[3~": "delete",
}
_KEYS = {0x01: "home", 0x02: "left", 0x05: "end", 0x06: "right", 0x0B: "cut", 0x0C: ""}
_IN_PASTE = re.compile(rb"[^\x1b]+")
_IN_LINE = re.compile(rb"[\x20-\x7e\x80-\xff]+")
_REPORT = re.compile(rb"\[(?:[IO]|<[\d;]*[Mm]|M...|\?*[\d;]*[Rnc]|\?[\d;]*[uy$]+)", re.DOTALL)


class Address(msgspec.Struct, frozen=True):
    """A message to another agent. The Enter behind it has not been passed on."""

    name: str
    message: str
    host: str | None = None
    wants_response: bool = False
    clear: bytes = CLEAR_LINE
    """What to type to the program so that the line is gone."""


class Passed(msgspec.Struct, frozen=True):
    """Bytes for the program, exactly as they were typed."""

    data: bytes


def parse_address(line: str) -> Address | None:
    """Read a line as an address; None if it is none. Quotes around the message are dropped."""
    match = _ADDRESS.fullmatch(line.strip())
    if match is None:
        return None
    message = match["message"].strip()
    if not match["response"] and message == "--response":
        return None  # nothing to say
    if len(message) > 1 and message[0] == message[-1] and message[0] in _QUOTES:
        message = message[1:-1]
    if not message.strip():
        return None
    host = match["host"]
    return Address(
        name=match["name"].lower(),
        message=message,
        host=host.lower() if host else None,
        wants_response=bool(match["response"]),
    )


class Keyboard:
    """Follows what is typed on one line, as far as that can be known.

    `knows` tells whether there is an agent of a name; if it says no, the line is the program's.
    """

    def __init__(self, knows: Callable[[Address], bool] = lambda _: True) -> None:
        self._knows = knows
        self.reset()

    def reset(self) -> None:
        """Forget the line."""
        self._line: list[str] | None = []  # None while it is not known, or no address
        self._cursor = 0
        self._character = bytearray()  # the beginning of one in UTF-8
        self._sequence: bytearray | None = None  # of an escape, behind the ESC
        self._is_pasting = False
        self._is_by_line = False

    @property
    def line(self) -> str | None:
        """What stands on the line, if it may become an address."""
        return None if self._line is None else "".join(self._line)

    def forget_line(self) -> None:
        """Learn that nothing is left on a line that is not known: a new one may begin."""
        if self._line is None and not self._is_pasting and self._sequence is None:
            self._begin()

    def feed(
        self, data: bytes, *, is_fresh: bool = True, is_by_line: bool = False
    ) -> list[Passed | Address]:
        """Take what was typed; return what to do with it, in order.

        `is_fresh` tells whether the program now waits at an empty prompt, where a line may begin;
        `is_by_line` that the terminal collects the line for it, in which arrows move nothing.
        """
        self._is_by_line = is_by_line
        done: list[Passed | Address] = []
        start = at = 0
        while (at := self._skip(data, at)) < len(data):
            if (address := self._take(data[at], is_fresh)) is not None:
                if at > start:
                    done.append(Passed(data[start:at]))
                done.append(address)
                start = at + 1
            at += 1
        if start < len(data):
            done.append(Passed(data[start:]))
        return done

    def settle(self) -> None:
        """Learn that nothing followed for a while: a lone ESC was the key of that name."""
        if self._sequence is not None and not self._sequence and not self._is_pasting:
            self._sequence = None
            if self._line:
                self._lose()  # what it does to a line, programs disagree about

    def _skip(self, data: bytes, at: int) -> int:
        """Go past bytes that decide nothing: a paste may have megabytes of them."""
        if self._sequence is None and (self._is_pasting or self._line is None):
            match = (_IN_PASTE if self._is_pasting else _IN_LINE).match(data, at)
            return match.end() if match else at
        return at

    def _take(self, byte: int, is_fresh: bool) -> Address | None:
        if self._sequence is not None:
            self._escape(byte)
        elif byte == _ESC:
            self._sequence = bytearray()
            self._character.clear()
        elif byte in _ENTERS:
            return self._enter()
        elif byte in _ABANDON or byte == CLEAR_LINE[0]:
            self._begin()
        elif byte in (_DEL, 0x08):
            self._erase()
        elif byte == 0x17:
            self._erase_word()
        elif byte < 0x20:
            self._press(_KEYS.get(byte))
        else:
            self._type(byte, is_fresh)
        return None

    def _enter(self) -> Address | None:
        line = None if self._character else self.line
        self._begin()
        address = parse_address(line) if line else None
        return address if address is not None and self._knows(address) else None

    def _begin(self) -> None:
        self._line = []
        self._cursor = 0
        self._character.clear()

    def _lose(self) -> None:
        """Know no longer what stands on the line; until it ends, it is the program's."""
        self._line = None
        self._character.clear()

    def _type(self, byte: int, is_fresh: bool) -> None:
        if self._line is None:
            return
        self._character.append(byte)
        try:
            char = self._character.decode()
        except UnicodeDecodeError as error:
            if len(self._character) > 3 or error.reason != "unexpected end of data":
                self._lose()
            return
        self._character.clear()
        if not self._line and not (char == "@" and is_fresh):
            self._lose()
        elif self._line[:1] == ["@"] and self._cursor == 0:
            self._lose()  # something before the address
        elif len(self._line) >= MAX_LINE:
            self._lose()
        else:
            self._line.insert(self._cursor, char)
            self._cursor += 1

    def _erase(self) -> None:
        if self._line and self._cursor:
            self._cursor -= 1
            del self._line[self._cursor]

    def _erase_word(self) -> None:
        if not self._line:
            return
        while self._cursor and self._line[self._cursor - 1].isspace():
            self._erase()
        while self._cursor and not self._line[self._cursor - 1].isspace():
            self._erase()

    def _press(self, key: str | None) -> None:
        """Move or delete as a key says; what is not known makes the line unknown."""
        if self._line is None:
            return
        if key is None:
            self._lose()
        elif key == "left":
            self._cursor = max(self._cursor - 1, 0)
        elif key == "right":
            self._cursor = min(self._cursor + 1, len(self._line))
        elif key == "home":
            self._cursor = 0
        elif key == "end":
            self._cursor = len(self._line)
        elif key == "delete":
            del self._line[self._cursor : self._cursor + 1]
        elif key == "cut":
            del self._line[self._cursor :]

    def _escape(self, byte: int) -> None:
        assert self._sequence is not None
        if byte == _ESC:  # the one before was a key of its own, or was broken off
            if not self._is_pasting:
                self._lose()
            self._sequence.clear()
            return
        self._sequence.append(byte)
        sequence = bytes(self._sequence)
        if not _is_whole(sequence):
            return
        self._sequence = None
        if self._is_pasting:
            self._is_pasting = sequence != _PASTE_END
        elif sequence == _PASTE_BEGIN:
            self._is_pasting = True
            self._lose()
        elif self._is_by_line:
            return
        elif _REPORT.fullmatch(sequence) is None or sequence in _MOVES:
            self._press(_MOVES.get(sequence))


def _is_whole(sequence: bytes) -> bool:
    """Whether a sequence behind an ESC has its end."""
    if len(sequence) >= MAX_SEQUENCE:
        return True
    if sequence[:1] == b"[":
        if sequence[1:2] == b"M":  # an old mouse: three bytes follow, whatever they are
            return len(sequence) == 5
        return len(sequence) > 1 and not 0x20 <= sequence[-1] <= 0x3F
    if sequence[:1] == b"O":
        return len(sequence) > 1
    return True


def is_report(data: bytes) -> bool:
    """Whether the terminal says this by itself, or the mouse, and nobody has typed anything."""
    return all(_REPORT.fullmatch(each) for each in data.split(b"\x1b")[1:]) and data[:1] == b"\x1b"


def sent_notice(name: str, *, is_local: bool) -> str:
    """What the user is shown when a message is on its way."""
    return f"\x1b[32m[→ {name} ({'local' if is_local else 'ext'})]\x1b[0m"


def reply_notice(name: str) -> str:
    """What stands above a reply."""
    return f"\x1b[36m[← {name}]\x1b[0m"


def not_found_notice(name: str) -> str:
    """What the user is shown when there is nobody of that name."""
    return f"\x1b[31m[✗ {name} not found]\x1b[0m"
