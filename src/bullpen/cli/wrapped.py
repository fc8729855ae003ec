"""What the commands about wrapped agents share: the names there are, and their options.

Names of profiles are read off the directories alone, without what reads the profiles themselves:
`bullpen --help` lists them.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import click

__all__ = [
    "arguments_argument",
    "complete_profiles",
    "complete_wrapped",
    "name_option",
    "port_option",
    "profile_descriptions",
    "profile_names",
]

F = TypeVar("F")

_NAME = re.compile(r"\w[\w-]{0,62}")  # what `@name` can be said of
_SHIPPED = Path(__file__).parents[1] / "agents" / "profiles"


def name_option(command: F) -> F:
    """Let a command name the agent it starts."""
    option = click.option(
        "--name",
        metavar="NAME",
        default="",
        callback=_check_name,
        help="What the agent is called, if not as its profile; a number is added if it is taken.",
    )
    return option(command)  # type: ignore[type-var]  # click wants a callable, which it is


def port_option(command: F) -> F:
    """Let a command choose the port of the agent it starts."""
    option = click.option(
        "--port",
        type=click.IntRange(1, 65535),
        metavar="PORT",
        help="The port the agent is announced at, if not its profile's or a free one.",
    )
    return option(command)  # type: ignore[type-var]  # click wants a callable, which it is


def arguments_argument(command: F) -> F:
    """Let a command take what the program is given."""
    argument = click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS…]")
    return argument(command)  # type: ignore[type-var]  # click wants a callable, which it is


def _check_name(_: click.Context, __: click.Parameter, value: str) -> str:
    if value and not _NAME.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no name: up to 63 letters, digits, _ and -")
    if value.lower() == "user":
        raise click.BadParameter("the user is called so")
    return value.lower()


def profile_names(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of all profiles."""
    return sorted({path.stem for each in _directories(environment) for path in _files(each)})


def profile_descriptions() -> dict[str, str]:
    """Return what each profile says of itself; nothing where that cannot be read."""
    import tomllib

    found = dict.fromkeys(profile_names(), "")
    for directory in _directories():
        for path in _files(directory):
            try:
                description = tomllib.loads(path.read_text(encoding="utf-8")).get("description")
            except (OSError, ValueError, RecursionError):  # running it says what is wrong
                continue
            if isinstance(description, str):
                found[path.stem] = description
    return found


def _directories(environment: Mapping[str, str] | None = None) -> tuple[Path, Path]:
    from bullpen.api.locations import config_directory

    environment = os.environ if environment is None else environment
    return _SHIPPED, Path(config_directory(environment, os.getuid())) / "profiles"


def _files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.toml")) if directory.is_dir() else []


def complete_profiles(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the profiles whose names begin so."""
    return [name for name in profile_names() if name.startswith(incomplete)]


def complete_wrapped(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the wrapped agents whose names begin so."""
    from bullpen.api.runtime import Paths
    from bullpen.cli.options import SOCKET_PATH
    from bullpen.wrapper import reach

    paths = Paths.resolve(socket=context.meta.get(SOCKET_PATH))
    return [each.name for each in reach.running(paths) if each.name.startswith(incomplete)]
