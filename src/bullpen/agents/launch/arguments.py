"""Reading somebody's command line, of which we know a few options only."""

from collections.abc import Sequence

__all__ = ["has", "pairs_of", "values_of", "without"]


def values_of(arguments: Sequence[str], *names: str) -> list[str]:
    """Return what an option was given, each time, as `--name value` or `--name=value`."""
    return [value for _, value in pairs_of(arguments, *names)]


def pairs_of(arguments: Sequence[str], *names: str) -> list[tuple[str, str]]:
    """Return the options of these names with their values, in order."""
    found: list[tuple[str, str]] = []
    for index, word in enumerate(arguments):
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name not in names:
            continue
        if equals:
            found.append((name, value))
        elif index + 1 < len(arguments):
            found.append((name, arguments[index + 1]))
    return found


def without(arguments: Sequence[str], *names: str) -> tuple[str, ...]:
    """Return a command line without some options and their values."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            return (*kept, word, *words)
        if word in names:
            next(words, None)
        elif word.partition("=")[0] not in names:
            kept.append(word)
    return tuple(kept)


def has(arguments: Sequence[str], *names: str) -> bool:
    """Tell whether one of these options is there, with or without a value."""
    for word in arguments:
        if word == "--":
            return False
        if word.partition("=")[0] in names:
            return True
    return False
