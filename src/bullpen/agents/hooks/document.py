"""A JSON document as text that somebody cares about, changed in places.

Nothing is parsed and written anew: whatever is not changed keeps its every byte, with its
formatting, the order of its keys, and its comments if the program that reads it knows them. Each
change is the inverse of another: to remove what was appended gives back the text as it was.
"""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bullpen.agents.hooks.errors import MalformedDocumentError

__all__ = ["Document", "ListValue", "Member", "ObjectValue", "Part", "Scalar", "Value"]

MAX_DEPTH = 200
DEFAULT_INDENT = "  "

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SAME_LINE = re.compile(r"[ \t]*")

Part = tuple[str | None, Any]
"""What to add: a key (None in a list) and a value."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, a number or a word, and where it stands."""

    start: int
    end: int
    value: object


@dataclass(frozen=True, slots=True)
class ListValue:
    """A list, and where it stands."""

    start: int
    end: int
    children: tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A key with its value. It starts at the key and ends with the value."""

    start: int
    end: int
    key: str
    value: "Value"


@dataclass(frozen=True, slots=True)
class ObjectValue:
    """An object, and where it stands."""

    start: int
    end: int
    children: tuple[Member, ...]

    def get(self, key: str) -> "Value | None":
        """Return what a key says. Of two that are the same, the last counts, as for everybody."""
        for member in reversed(self.children):
            if member.key == key:
                return member.value
        return None

    def text(self, key: str) -> str:
        """Return the text of a key; empty if it has none."""
        value = self.get(key)
        return value.value if isinstance(value, Scalar) and isinstance(value.value, str) else ""


Value = Scalar | ListValue | ObjectValue
_Child = Scalar | ListValue | ObjectValue | Member


class Document:
    """A text that is one JSON object. It does not change; each change returns another text."""

    def __init__(self, text: str, *, comments: bool = False) -> None:
        """Read a text.

        Args:
            text: the document, without a byte order mark.
            comments: whether `//` and `/* */` are comments, or mistakes.

        Raises:
            MalformedDocumentError: it is not JSON, or not an object.
        """
        self._text = text
        root = _Reader(text, comments=comments).read()
        if not isinstance(root, ObjectValue):
            raise MalformedDocumentError(1, 1, "it is not an object")
        self.root = root
        self._newline = "\r\n" if text.find("\r\n") + 1 == text.find("\n") > 0 else "\n"
        self._indent = self._find_indent()

    @property
    def text(self) -> str:
        """The text, as it was read."""
        return self._text

    def place(self, value: Value) -> tuple[int, int]:
        """Return the line and the column of a value."""
        return _line_and_column(self._text, value.start)

    def load(self, value: Value) -> Any:
        """Return a value as Python has it."""
        if isinstance(value, Scalar):
            return value.value
        if isinstance(value, ListValue):
            return [self.load(each) for each in value.children]
        return {each.key: self.load(each.value) for each in value.children}

    # ------------------------------------------------------------------------------------ changes

    def append(self, container: ObjectValue | ListValue, part: Part) -> str:
        """Return the text with something more at the end of an object or a list."""
        if not container.children:
            return self._put_into_empty(container, part)
        last = container.children[-1]
        space = self._space_before(container, last)
        if len(container.children) == 1 and "\n" not in space:
            space = " " if self._has_spaces() else ""
        comma, place = last.end, self._after_line(last.end)
        if place > comma and "\n" not in space:
            space = self._newline + self._indent_at(last.start)  # not into somebody's comment
        added = space + self._render(part, space)
        return f"{self._text[:comma]},{self._text[comma:place]}{added}{self._text[place:]}"

    def replace(self, value: Value, new: Any) -> str:
        """Return the text with another value in the place of one, written as that one was."""
        old = self._text[value.start : value.end]
        space = self._newline + self._indent_at(value.start) if "\n" in old else ""
        return self._text[: value.start] + self._render((None, new), space) + self._after(value.end)

    def remove(self, places: Iterable[tuple[ObjectValue | ListValue, Collection[int]]]) -> str:
        """Return the text without some children of some containers, given by their indexes."""
        cuts: list[tuple[int, int]] = []
        for container, indexes in places:
            cuts += self._cuts(container, sorted(indexes))
        text = self._text
        for start, end in sorted(cuts, reverse=True):
            text = text[:start] + text[end:]
        return text

    # ------------------------------------------------------------------------------------- adding

    def _put_into_empty(self, container: ObjectValue | ListValue, part: Part) -> str:
        place = container.start + 1
        if container is self.root or "\n" in self._text:
            outside = self._newline + self._indent_at(container.start)
            inside = outside + self._indent
        else:
            outside = inside = ""
        added = inside + self._render(part, inside) + outside
        return self._text[:place] + added + self._after(place)

    def _render(self, part: Part, space: str) -> str:
        """Return the text for something that comes after a space: on lines of its own, or not."""
        key, value = part
        lines = "\n" in space
        colon = ": " if lines or self._has_spaces() else ":"
        written = json.dumps(
            value,
            indent=self._indent if lines else None,
            separators=("," if lines or colon == ":" else ", ", colon),
        )
        written = written.replace("\n", self._newline + space.rpartition("\n")[2])
        return written if key is None else f"{json.dumps(key)}{colon}{written}"

    def _has_spaces(self) -> bool:
        """Tell whether there is a space after the colon."""
        if not self.root.children:
            return True
        first = self.root.children[0]
        return self._text[first.value.start - 1] != ":"

    def _find_indent(self) -> str:
        """Return by how much the members of the document are indented."""
        if not self.root.children:
            return DEFAULT_INDENT
        space = self._space_before(self.root, self.root.children[0])
        return self._indent_at(self.root.children[0].start) if "\n" in space else DEFAULT_INDENT

    def _indent_at(self, place: int) -> str:
        """Return the space at the beginning of the line of a place."""
        line = self._text.rfind("\n", 0, place) + 1
        match = _SAME_LINE.match(self._text, line, place)
        return match.group() if match else ""

    def _space_before(self, container: ObjectValue | ListValue, child: _Child) -> str:
        before = self._text[container.start + 1 : child.start]
        return before[len(before.rstrip(" \t\r\n")) :]

    def _after_line(self, place: int) -> int:
        """Return the end of the comments that stand on the same line after a place, or the place.

        Where there are no comments, none can be found: what is there is a comma or a bracket.
        """
        end = place
        while (space := _SAME_LINE.match(self._text, end)) is not None:
            comment = _COMMENT.match(self._text, space.end())
            if comment is None:
                break
            end = comment.end()
            if self._text[end - 1] == "\r":
                end -= 1  # the half of a newline
            if "\n" in comment.group():
                break
        return end

    def _after(self, place: int) -> str:
        return self._text[place:]

    # ----------------------------------------------------------------------------------- removing

    def _cuts(
        self, container: ObjectValue | ListValue, indexes: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Return the stretches of text to take out."""
        children = container.children
        if not indexes:
            return []
        if len(indexes) == len(children):
            return self._cuts_of_all(container)
        cuts: list[tuple[int, int]] = []
        leading = 0  # how many at the beginning go, with the commas after them
        while leading in indexes:
            cuts.append((children[leading].start, children[leading].end))
            cuts += self._gap(children[leading].end, children[leading + 1].start, keep_before=True)
            leading += 1
        for index in indexes:
            if index >= leading:
                cuts += self._gap(children[index - 1].end, children[index].start)
                cuts.append((children[index].start, children[index].end))
        return cuts

    def _cuts_of_all(self, container: ObjectValue | ListValue) -> list[tuple[int, int]]:
        """Return what to take out so that a container is as empty as before something came in."""
        first, last = container.children[0], container.children[-1]
        space = self._space_before(container, first)
        cuts = [(first.start - len(space), first.start)]
        for index, child in enumerate(container.children):
            if index:
                cuts += self._gap(container.children[index - 1].end, child.start)
            cuts.append((child.start, child.end))
        outside = self._newline + self._indent_at(container.start)
        if "\n" in space and self._text.startswith(outside, last.end):
            cuts.append((last.end, last.end + len(outside)))
        return cuts

    def _gap(self, start: int, end: int, *, keep_before: bool = False) -> list[tuple[int, int]]:
        """Return what to take out between two children: the comma, and the space beside ours.

        Comments stay. The space that belongs to the second one is at its end, unless the second
        one is to take the place of the first.
        """
        between = self._text[start:end]
        comma = _comma_in(between)
        cuts = [(start + comma, start + comma + 1)]
        if keep_before:
            rest = between[comma + 1 :]
            length = len(rest) - len(rest.lstrip(" \t\r\n"))
            cuts.append((start + comma + 1, start + comma + 1 + length))
        else:
            length = len(between[comma + 1 :]) - len(between[comma + 1 :].rstrip(" \t\r\n"))
            cuts.append((end - length, end))
        return cuts


def _comma_in(between: str) -> int:
    """Return where the comma is among spaces and comments."""
    place = 0
    while between[place] != ",":
        comment = _COMMENT.match(between, place)
        place = comment.end() if comment else place + 1
    return place


class _Reader:
    """Finds where everything stands."""

    def __init__(self, text: str, *, comments: bool) -> None:
        self._text = text
        self._comments = comments
        self._scalars = json.JSONDecoder(parse_constant=_refuse, parse_int=_number)

    def read(self) -> Value:
        value = self._value(self._skip(0), 0)
        end = self._skip(value.end)
        if end < len(self._text):
            raise self._mistake(end, "there is more after its end")
        return value

    def _value(self, place: int, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise self._mistake(place, "it is nested too deeply")
        match self._text[place : place + 1]:
            case "{":
                return self._object(place, depth)
            case "[":
                return self._list(place, depth)
            case "":
                raise self._mistake(place, "it ends too early")
        return self._scalar(place)

    def _scalar(self, place: int) -> Scalar:
        try:
            value, end = self._scalars.raw_decode(self._text, place)
        except ValueError:
            raise self._mistake(place, "a value was expected") from None
        return Scalar(place, end, value)

    def _object(self, start: int, depth: int) -> ObjectValue:
        members: list[Member] = []
        place = self._skip(start + 1)
        while self._text[place : place + 1] != "}":
            if members:
                place = self._expect(place, ",")
            if self._text[place : place + 1] != '"':
                is_over = place >= len(self._text)
                raise self._mistake(place, "it ends too early" if is_over else "a key was expected")
            key = self._scalar(place)
            value = self._value(self._expect(self._skip(key.end), ":"), depth + 1)
            members.append(Member(place, value.end, str(key.value), value))
            place = self._skip(value.end)
        return ObjectValue(start, place + 1, tuple(members))

    def _list(self, start: int, depth: int) -> ListValue:
        items: list[Value] = []
        place = self._skip(start + 1)
        while self._text[place : place + 1] != "]":
            if items:
                place = self._expect(place, ",")
            items.append(self._value(place, depth + 1))
            place = self._skip(items[-1].end)
        return ListValue(start, place + 1, tuple(items))

    def _expect(self, place: int, sign: str) -> int:
        if self._text[place : place + 1] != sign:
            what = "it ends too early" if place >= len(self._text) else f"a {sign} was expected"
            raise self._mistake(place, what)
        return self._skip(place + 1)

    def _skip(self, place: int) -> int:
        """Return where the next thing stands, after space and comments."""
        while True:
            space = _SPACE.match(self._text, place)
            place = space.end() if space else place
            comment = _COMMENT.match(self._text, place)
            if comment is None:
                return place
            if not self._comments:
                raise self._mistake(place, "the program takes no comments")
            place = comment.end()

    def _mistake(self, place: int, what: str) -> MalformedDocumentError:
        return MalformedDocumentError(*_line_and_column(self._text, place), what)


def _line_and_column(text: str, place: int) -> tuple[int, int]:
    return text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)


def _refuse(name: str) -> None:
    raise ValueError(name)


def _number(digits: str) -> int | str:
    return int(digits) if len(digits) < 20 else digits  # nobody's timeout
