"""Reading profiles: ours, shipped as data, and those of the user, which go on top.

A user's file of a new name is a new profile; one of a name of ours changes the keys it has and
leaves the others, and its `env` goes over ours.
"""

import os
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from bullpen.agents.profile import InterruptBy, Profile
from bullpen.agents.profiles.errors import ProfileFileError, UnknownProfileError
from bullpen.api import locations
from bullpen.model.states import Provider

__all__ = ["Listed", "listed", "load", "names", "parse", "user_directory"]

SHIPPED = Path(__file__).parent
MAX_BYTES = 2**18  # a file is a few lines
NAME = re.compile(r"[a-z0-9_][a-z0-9_-]{0,62}")  # so that `@name` can be said of its agents

_Words = str | list[str]

_KEYS: dict[str, Any] = {
    "command": _Words,
    "idle_regex": str,
    "args": _Words,
    "submit_sequence": Annotated[str, Meta(min_length=1)],
    "env": dict[str, str],
    "provider": Provider,
    "port": Annotated[int, Meta(ge=1, le=65535)],
    "has_screen": bool,
    "interrupt": InterruptBy,
    "addresses": bool,
    "description": str,
}
_REQUIRED = ("command", "idle_regex")

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.?)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "e": "\x1b", "0": "\0", "\\": "\\"}


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A profile, and where it comes from."""

    profile: Profile
    file: Path
    """The last file that has a say in it."""
    is_shipped: bool = True
    """Whether that is one of ours."""


def user_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Where the user's profiles are: `profiles` beside `config.toml`."""
    environment = os.environ if environment is None else environment
    return Path(locations.config_directory(environment, os.getuid())) / "profiles"


def names(directory: Path | None = None) -> tuple[str, ...]:
    """Return the names of all profiles, without reading any."""
    directory = user_directory() if directory is None else directory
    return tuple(sorted({path.stem for each in (SHIPPED, directory) for path in _files(each)}))


def load(name: str, directory: Path | None = None) -> Profile:
    """Return a profile.

    Raises:
        UnknownProfileError: there is none of that name.
        ProfileFileError: its file cannot be read or is no profile.
    """
    return find(name, directory).profile


def find(name: str, directory: Path | None = None) -> Listed:
    """Return a profile and where it comes from.

    Raises:
        UnknownProfileError: there is none of that name.
        ProfileFileError: its file cannot be read or is no profile.
    """
    directory = user_directory() if directory is None else directory
    known = names(directory)
    if name not in known:
        raise UnknownProfileError(name, known, locations.home_relative(str(directory)))
    found: Listed | None = None
    for each in (SHIPPED, directory):
        path = each / f"{name}.toml"
        if path in _files(each):
            base = found.profile if found is not None else None
            profile = parse(_read(path), file=path, onto=base)
            found = Listed(profile=profile, file=path, is_shipped=each is SHIPPED)
    assert found is not None
    return found


def listed(
    directory: Path | None = None, *, on_trouble: Callable[[ProfileFileError], None] | None = None
) -> tuple[Listed, ...]:
    """Return every profile. With `on_trouble`, a file that is none is told and left out.

    Raises:
        ProfileFileError: a file cannot be read or is no profile.
    """
    return tuple(_listed(directory, on_trouble))


def _listed(
    directory: Path | None, on_trouble: Callable[[ProfileFileError], None] | None
) -> Iterator[Listed]:
    for name in names(directory):
        try:
            yield find(name, directory)
        except ProfileFileError as error:
            if on_trouble is None:
                raise
            on_trouble(error)


def parse(content: str, *, file: Path, onto: Profile | None = None) -> Profile:
    """Read one profile, on top of one of the same name.

    In the words of `command` and `args`, `{python}` is the interpreter that runs us and
    `{directory}` is where the file is.

    Raises:
        ProfileFileError: it is no profile; the error names the key.
    """
    if not NAME.fullmatch(file.stem):
        raise ProfileFileError(
            str(file), "its name is none for a profile: small letters, digits, _ and -"
        )
    try:
        table = tomllib.loads(content)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ProfileFileError(str(file), f"is no TOML: {error}") from error
    for key in table:
        if key not in _KEYS:
            raise ProfileFileError(str(file), f"there is no such key{_meant(key)}", key=key)
    for key in _REQUIRED if onto is None else ():
        if key not in table:
            raise ProfileFileError(str(file), "is missing", key=key)
    given = {key: _value(key, value, file) for key, value in table.items()}
    if onto is None:
        return Profile(name=file.stem, **given)
    if "env" in given:
        given["env"] = onto.env | given["env"]
    return msgspec.structs.replace(onto, **given)


def _meant(key: str) -> str:
    if key == "name":
        return "; the file's name is the profile's"
    close = get_close_matches(key, _KEYS, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(_KEYS)}"


def _value(key: str, value: object, file: Path) -> Any:
    """Return what a key says, as a profile has it."""
    try:
        converted = msgspec.convert(value, _KEYS[key])
        match key:
            case "command" | "args":
                return _words(converted, file.parent, is_needed=key == "command")
            case "submit_sequence":
                return _decoded(converted)
            case "idle_regex":
                re.compile(converted.encode())  # output is bytes, and so it is searched
            case "env":
                _check_environment(converted)
    except re.error as error:
        raise ProfileFileError(str(file), f"is no pattern: {error}", key=key) from error
    except (msgspec.ValidationError, ValueError) as error:
        problem, _, place = str(error).partition(" - at `$")
        raise ProfileFileError(str(file), problem, key=key + place.rstrip("`")) from error
    return converted


def _words(given: str | list[str], directory: Path, *, is_needed: bool) -> tuple[str, ...]:
    words = shlex.split(given) if isinstance(given, str) else given
    if is_needed and not (words and words[0]):
        raise ValueError("is empty; name the program to start")
    if any("\0" in word for word in words):
        raise ValueError("has a null character in it, which no argument may have")
    places = {"{python}": sys.executable, "{directory}": str(directory)}
    for mark, place in places.items():
        words = [word.replace(mark, place) for word in words]
    return tuple(words)


def _decoded(text: str) -> str:
    """Return a text with those escapes decoded that TOML has left, as in 'single quotes'."""

    def decode(found: re.Match[str]) -> str:
        escape = found[1]
        if escape[:1] in ("x", "u") and len(escape) > 1:
            return chr(int(escape[1:], 16))
        if escape not in _ESCAPES:
            known = ", ".join(f"\\{each}" for each in (*_ESCAPES, "xHH", "uHHHH"))
            raise ValueError(f"there is no escape \\{escape}; there are {known}")
        return _ESCAPES[escape]

    return _ESCAPE.sub(decode, text)


def _check_environment(environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r} is no variable that a program could be given")


def _files(directory: Path) -> tuple[Path, ...]:
    return tuple(sorted(directory.glob("*.toml"))) if directory.is_dir() else ()


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ProfileFileError(str(path), f"is longer than {MAX_BYTES} bytes")
        return data.decode()
    except UnicodeDecodeError as error:
        raise ProfileFileError(str(path), f"byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise ProfileFileError(str(path), f"cannot be read: {error.strerror}") from error
