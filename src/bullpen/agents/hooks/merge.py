"""Putting our hooks into a settings document, and taking them out again.

Each of our commands ends with a mark, by which it is known wherever it was moved to. Beside the
mark it notes what was there before it and would look the same without it: an empty list, an empty
object, no file at all. So that what is taken out leaves the text as it was, to the byte.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bullpen.agents.hooks.document import Document, ListValue, ObjectValue, Value
from bullpen.agents.hooks.errors import MalformedDocumentError
from bullpen.agents.hooks.programs import HookedProgram, Runner, flags_of

__all__ = ["EventState", "inspect", "put_in", "take_out"]

HOOKS = "hooks"

EMPTY_LIST = "empty-list"
EMPTY_HOOKS = "empty-hooks"
NEW_FILE = "new-file"
NEW_DIRECTORY = "new-directory"


class EventState(StrEnum):
    """How it stands with our hook for one event."""

    INSTALLED = "installed"
    OUTDATED = "outdated"
    """It is there, but not as it would be put there now."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class _Ours:
    """A hook of ours, and all that holds it."""

    event: str
    list: ListValue
    index: int  # of the entry in the list
    entry: Value
    hook: ObjectValue
    flags: frozenset[str]


def inspect(text: str | None, program: HookedProgram, runner: Runner) -> dict[str, EventState]:
    """Return how it stands with each event, and with those that are ours and not wanted.

    Raises:
        MalformedDocumentError: the text is not what it should be.
    """
    states = dict.fromkeys(program.events, EventState.MISSING)
    if text is None:
        return states
    document = Document(text, comments=program.takes_comments)
    _check(document, program)
    for ours in _find(document, program):
        is_first = states.get(ours.event, EventState.OUTDATED) is EventState.MISSING
        is_current = is_first and not _replacement(document, ours, program, runner)
        states[ours.event] = EventState.INSTALLED if is_current else EventState.OUTDATED
    return states


def put_in(
    text: str | None,
    program: HookedProgram,
    runner: Runner,
    *,
    new_flags: frozenset[str] = frozenset(),
) -> str:
    """Return the text with all of our hooks in it, each once and as it should be.

    `new_flags` are noted by those that were not there before.

    Raises:
        MalformedDocumentError: the text is not what it should be.
    """
    if text is None:
        text = "{}\n"
    document = Document(text, comments=program.takes_comments)
    _check(document, program)
    hooks = document.root.get(HOOKS)
    if isinstance(hooks, ObjectValue) and not hooks.children:
        new_flags |= {EMPTY_HOOKS}
    text = _without_surplus(text, program)
    for event in program.events:
        text = _put_event(text, event, program, runner, new_flags)
    return text


def take_out(text: str, program: HookedProgram) -> tuple[str | None, frozenset[str]]:
    """Return the text without any hook of ours, and what they had noted.

    It is None if there was no file before, and there is nothing else in it now.

    Raises:
        MalformedDocumentError: the text is not JSON.
    """
    document = Document(text, comments=program.takes_comments)
    flags = frozenset(flag for ours in _find(document, program) for flag in ours.flags)
    text = _remove(document, program)
    if NEW_FILE in flags and not Document(text, comments=program.takes_comments).root.children:
        return None, flags
    return text, flags


# ------------------------------------------------------------------------------------- looking


def _check(document: Document, program: HookedProgram) -> None:
    """See that there is a place for our hooks."""
    hooks = document.root.get(HOOKS)
    if hooks is None:
        return
    if not isinstance(hooks, ObjectValue):
        raise MalformedDocumentError(*document.place(hooks), "`hooks` is not an object")
    for event in program.events:
        value = hooks.get(event)
        if value is not None and not isinstance(value, ListValue):
            where = document.place(value)
            raise MalformedDocumentError(*where, f"the hooks of {event} are not a list")


def _find(document: Document, program: HookedProgram) -> Iterator[_Ours]:
    """Find every hook of ours, of whatever event."""
    hooks = document.root.get(HOOKS)
    if not isinstance(hooks, ObjectValue):
        return
    for member in hooks.children:
        if not isinstance(member.value, ListValue):
            continue
        for index, entry in enumerate(member.value.children):
            for hook in _hooks_in(entry, program):
                flags = flags_of(hook.text(program.command_key))
                if flags is not None:
                    yield _Ours(member.key, member.value, index, entry, hook, flags)


def _hooks_in(entry: Value, program: HookedProgram) -> list[ObjectValue]:
    if not isinstance(entry, ObjectValue):
        return []
    if not program.is_grouped:
        return [entry]
    inner = entry.get(HOOKS)
    children = inner.children if isinstance(inner, ListValue) else ()
    return [each for each in children if isinstance(each, ObjectValue)]


def _replacement(
    document: Document, ours: _Ours, program: HookedProgram, runner: Runner
) -> tuple[Value, dict[str, Any]] | None:
    """Return what of a hook of ours is not as it should be, and how it should; None if all is."""
    entry = _wanted(ours.event, ours.flags, program, runner)
    if len(_hooks_in(ours.entry, program)) == 1:
        return None if document.load(ours.entry) == entry else (ours.entry, entry)
    hook = entry[HOOKS][0]  # among others, in a group that somebody has made
    return None if document.load(ours.hook) == hook else (ours.hook, hook)


def _wanted(
    event: str, flags: frozenset[str], program: HookedProgram, runner: Runner
) -> dict[str, Any]:
    asks = event in program.asking
    return program.entry(event, runner.command(program.provider, event, flags, asks=asks))


# -------------------------------------------------------------------------------------- putting in


def _put_event(
    text: str, event: str, program: HookedProgram, runner: Runner, new_flags: frozenset[str]
) -> str:
    document = Document(text, comments=program.takes_comments)
    for ours in _find(document, program):
        if ours.event == event:
            change = _replacement(document, ours, program, runner)
            return document.replace(*change) if change else text
    hooks = document.root.get(HOOKS)
    present = hooks.get(event) if isinstance(hooks, ObjectValue) else None
    if isinstance(present, ListValue):
        if not present.children:
            new_flags |= {EMPTY_LIST}
        return document.append(present, (None, _wanted(event, new_flags, program, runner)))
    entries = [_wanted(event, new_flags, program, runner)]
    if isinstance(hooks, ObjectValue):
        return document.append(hooks, (event, entries))
    return document.append(document.root, (HOOKS, {event: entries}))


def _without_surplus(text: str, program: HookedProgram) -> str:
    """Take out what an older version has put in for other events, and what is there twice."""
    document = Document(text, comments=program.takes_comments)
    seen: set[str] = set()
    surplus: list[_Ours] = []
    for ours in _find(document, program):
        if ours.event in seen or ours.event not in program.events:
            surplus.append(ours)
        seen.add(ours.event)
    return _remove(document, program, surplus) if surplus else text


# --------------------------------------------------------------------------------------- taking out


def _remove(document: Document, program: HookedProgram, surplus: list[_Ours] | None = None) -> str:
    """Take out the hooks that are to go, and with them what was made to hold them."""
    gone = {ours.hook.start: ours for ours in surplus or _find(document, program)}
    hooks = document.root.get(HOOKS)
    if not gone or not isinstance(hooks, ObjectValue):
        return document.text
    noted = frozenset(flag for ours in gone.values() for flag in ours.flags)
    places: list[tuple[ObjectValue | ListValue, list[int]]] = []
    members: list[int] = []
    for index, member in enumerate(hooks.children):
        if not isinstance(member.value, ListValue):
            continue
        entries = _entries_to_remove(member.value, program, gone, places)
        flags = {flag for each in gone.values() if each.list is member.value for flag in each.flags}
        if entries and len(entries) == len(member.value.children) and EMPTY_LIST not in flags:
            members.append(index)
        elif entries:
            places.append((member.value, entries))
    if members and len(members) == len(hooks.children) and EMPTY_HOOKS not in noted:
        index = max(i for i, each in enumerate(document.root.children) if each.value is hooks)
        return document.remove([(document.root, [index])])
    return document.remove([*places, (hooks, members)])


def _entries_to_remove(
    entries: ListValue,
    program: HookedProgram,
    gone: dict[int, _Ours],
    places: list[tuple[ObjectValue | ListValue, list[int]]],
) -> list[int]:
    """Return which entries go as a whole; note the hooks that go out of a group that stays."""
    whole: list[int] = []
    for index, entry in enumerate(entries.children):
        inside = _hooks_in(entry, program)
        leaving = [each for each in inside if each.start in gone]
        if not leaving:
            continue
        group = entry.get(HOOKS) if program.is_grouped and isinstance(entry, ObjectValue) else None
        if not isinstance(group, ListValue) or len(leaving) == len(group.children):
            whole.append(index)
        else:
            chosen = [i for i, each in enumerate(group.children) if each in leaving]
            places.append((group, chosen))
    return whole
