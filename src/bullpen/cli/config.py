"""`bullpen config`: the settings that are in effect, and where each comes from."""

import os
from collections.abc import Iterable

import click
import msgspec

from bullpen.api.settings import SettingValue, describe, resolve
from bullpen.cli.calls import daemon_paths
from bullpen.cli.options import json_option
from bullpen.cli.output import Cell, columns, home_relative, print_json, text

__all__ = ["command", "listing"]


@click.command(name="config")
@click.option("--show-sources", is_flag=True, help="Say where each setting comes from.")
@json_option
def command(*, show_sources: bool, as_json: bool) -> None:
    """Print every setting as a daemon started now would have it.

    A default gives way to config.toml, that to the environment, and that to an option.

    \b
    Examples:
      bullpen config
      bullpen config --show-sources
      BULLPEN_OBSERVE_POLL_INTERVAL_MS=500 bullpen config --json | jq .settings

    \b
    Exit codes:
      0  printed
      1  a setting is wrong; the message says which, and where it was set
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    paths = daemon_paths()
    resolved = resolve(paths.config, os.environ)
    if as_json:
        print_json(
            config_path=str(paths.config),
            socket_path=str(paths.socket),
            settings={each.key: each.value for each in resolved.values},
            sources={each.key: each.origin for each in resolved.values},
        )
        return
    click.echo("\n".join(listing(resolved.values, show_sources=show_sources)))


def listing(values: Iterable[SettingValue], *, show_sources: bool) -> list[str]:
    """Return the lines that show the settings; they are lines of `config.toml`, but for sources."""
    if show_sources:
        return columns(
            [
                [Cell(each.key), text(_toml(each.value)), text(home_relative(each.origin))]
                for each in values
            ]
        )
    descriptions = {each.key: each.description for each in describe()}
    lines: list[str] = []
    section = ""
    for each in values:
        of, _, name = each.key.partition(".")
        if of != section:
            lines += [*([""] if lines else []), f"[{of}]"]
            section = of
        lines += [f"# {descriptions[each.key]}", f"{name} = {_toml(each.value)}"]
    return lines


def _toml(value: object) -> str:
    """Return a value as TOML has it, which for these is as JSON has it."""
    return msgspec.json.encode(value).decode()
