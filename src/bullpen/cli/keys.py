"""Keys by their names, as bytes that a terminal sends for them. Pure."""

import difflib

from bullpen.errors import BullpenError

__all__ = ["NAMES", "UnknownKeyError", "encode"]

NAMES = {
    "Enter": "\r",
    "Escape": "\x1b",
    "Esc": "\x1b",
    "Tab": "\t",
    "BTab": "\x1b[Z",
    "Space": " ",
    "BSpace": "\x7f",
    "Backspace": "\x7f",
    "Up": "\x1b[A",
    "Down": "\x1b[B",
    "Right": "\x1b[C",
    "Left": "\x1b[D",
    "Home": "\x1b[H",
    "End": "\x1b[F",
    "Insert": "\x1b[2~",
    "Delete": "\x1b[3~",
    "PageUp": "\x1b[5~",
    "PageDown": "\x1b[6~",
    **{f"F{number}": f"\x1bO{letter}" for number, letter in enumerate("PQRS", 1)},
    **{f"F{n}": f"\x1b[{code}~" for n, code in enumerate((15, 17, 18, 19, 20, 21, 23, 24), 5)},
}
_BY_LOWER = {name.lower(): data for name, data in NAMES.items()}
_CONTROLS = {"?": "\x7f", "Space": "\0", **{chr(64 + code): chr(code) for code in range(32)}}


class UnknownKeyError(BullpenError):
    """A word looks like a key and is none. With -l it is typed as it stands."""

    def __init__(self, word: str) -> None:
        close = difflib.get_close_matches(word, NAMES, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        super().__init__(f"there is no key {word!r}{meant} (-l types it as it stands)")
        self.word = word


def encode(words: tuple[str, ...], *, is_literal: bool = False) -> bytes:
    """Return what a terminal sends for some keys: names, `C-c`, `M-x`, or text as it stands.

    Raises:
        UnknownKeyError: a word is a modifier with no key behind it that could have it.
    """
    text = "".join(words if is_literal else (_key(word) for word in words))
    return text.encode(errors="surrogateescape")


def _key(word: str) -> str:
    if word.lower() in _BY_LOWER:
        return _BY_LOWER[word.lower()]
    modifier, dash, rest = word[:1], word[1:2], word[2:]
    if dash != "-" or modifier not in ("C", "M") or not rest:
        return word
    if modifier == "M":
        return "\x1b" + _key(rest)
    control = _CONTROLS.get(rest if rest in _CONTROLS else rest.upper())
    if control is None:
        raise UnknownKeyError(word)
    return control
