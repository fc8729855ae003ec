"""Options that many commands share, so that they mean the same everywhere."""

import math
import os
from typing import Any, TypeVar

import click

__all__ = [
    "SECONDS",
    "complete_agents",
    "json_option",
    "may_start",
    "no_start_option",
    "socket_path",
    "with_socket_path",
]

F = TypeVar("F")

SOCKET_PATH = "bullpen.socket_path"
NO_START = "bullpen.no_start"


class _Seconds(click.FloatRange):
    """A length of time, from none at all to any that ends."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return seconds


SECONDS = _Seconds(min=0)


def with_socket_path(command: click.Command) -> click.Command:
    """Give a command, and all below it, `--socket-path`.

    Every command has it, also those that need no daemon: a script may say it always.
    """
    if not any(parameter.name == "socket_path" for parameter in command.params):
        command.params.append(
            click.Option(
                ["-s", "--socket-path"],
                metavar="PATH",
                expose_value=False,
                callback=_remember(SOCKET_PATH),
                help="Where the daemon listens, if not at its usual place.",
            )
        )
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_socket_path(each)
    return command


def no_start_option(command: F) -> F:
    """Let a command be told to start no daemon."""
    option = click.option(
        "--no-start",
        is_flag=True,
        expose_value=False,
        callback=_remember(NO_START),
        help="Fail if there is no daemon, instead of starting one.",
    )
    return option(command)  # type: ignore[type-var]  # click wants a callable, which it is


def json_option(command: F) -> F:
    """Let a command print for programs."""
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON, with its schema.")
    return option(command)  # type: ignore[type-var]  # click wants a callable, which it is


def socket_path() -> str | None:
    """Return the socket that was named on the command line."""
    found: str | None = click.get_current_context().meta.get(SOCKET_PATH)
    return found


def may_start() -> bool:
    """Whether a daemon may be started if there is none."""
    return not click.get_current_context().meta.get(NO_START)


def _remember(key: str) -> Any:
    def remember(context: click.Context, _: click.Parameter, value: object) -> object:
        if value:  # said to a group, it holds for what is below, unless that says otherwise
            context.meta[key] = value
        return value

    return remember


def complete_agents(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the agents whose names begin so. No daemon is started for that."""
    from bullpen.api.locations import socket_path as default_socket_path
    from bullpen.cli import hot

    path = context.meta.get(SOCKET_PATH) or default_socket_path(os.environ, os.getuid())
    agents = hot.ask(path, "list_agents")
    if not isinstance(agents, list):
        return []
    names = [each.get("name") for each in agents if isinstance(each, dict)]
    return [name for name in names if isinstance(name, str) and name.startswith(incomplete)]
