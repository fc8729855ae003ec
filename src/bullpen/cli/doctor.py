"""`bullpen doctor`: what is wrong, and the command that mends it."""

import asyncio
import contextlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import msgspec

from bullpen.api.client import Client
from bullpen.api.errors import ProtocolMismatchError, SettingsError
from bullpen.api.methods import DaemonInfo, ListAlerts, ListSourceHealth
from bullpen.api.runtime import Paths
from bullpen.api.settings import resolve
from bullpen.cli.calls import daemon_paths
from bullpen.cli.options import json_option
from bullpen.cli.output import Cell, columns, home_relative, print_json, text, word_cell
from bullpen.errors import BullpenError
from bullpen.model.alerts import Alert
from bullpen.model.appearance import HEALTH, one_line
from bullpen.model.sources import SourceHealth
from bullpen.model.states import HealthStatus, Provider, SourceKind
from bullpen.model.version import VERSION

__all__ = ["Check", "command", "daemon_checks", "listing"]

OK, WARN, BAD = "ok", "warn", "bad"
LOOKS = {
    OK: HEALTH[HealthStatus.HEALTHY],
    WARN: HEALTH[HealthStatus.DEGRADED],
    BAD: HEALTH[HealthStatus.DOWN],
}
SICK = 1
RESTART = "bullpen down && bullpen up"

ANSWER_SECONDS = 5.0
VERSION_SECONDS = 10.0  # some of the programs are slow to start, and not only the first time
OLDEST_PYTHON = (3, 11)
OLDEST_TMUX = (3, 2)
PRIVATE_DIRECTORY = 0o700
PRIVATE_FILE = 0o600
MOST_ALERTS = 3  # of which the words are told here


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    level: str
    """`ok`, `warn` (it works, but for something) or `bad`."""
    said: str
    fix: str = ""
    """A command, or what to do; empty if there is nothing to mend."""


@click.command(name="doctor")
@click.option("--clean", is_flag=True, help="Take away what agents that were killed have left.")
@json_option
@click.pass_context
def command(context: click.Context, *, clean: bool, as_json: bool) -> None:
    """Look at everything bullpen needs, and say what is wrong and how to mend it.

    It starts nothing but each agent program it finds, to ask for its version, and changes nothing,
    but for what --clean takes away.

    \b
    Examples:
      bullpen doctor
      bullpen doctor --clean
      bullpen doctor --json | jq -r '.checks[] | select(.level != "ok") | .fix'

    \b
    Exit codes:
      0  nothing is bad; there may be warnings
      1  something is bad
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    checks = list(_all_checks(clean=clean))
    is_ok = all(check.level != BAD for check in checks)
    if as_json:
        print_json(is_ok=is_ok, checks=checks)
    else:
        click.echo("\n".join(listing(checks)))
    if not is_ok:
        context.exit(SICK)


def listing(checks: Iterable[Check]) -> list[str]:
    """Return a line for each check, and what mends it below."""
    checks = list(checks)
    rows = [
        [word_cell(LOOKS[each.level], each.level), Cell(each.name), text(each.said)]
        for each in checks
    ]
    lines: list[str] = []
    for check, line in zip(checks, columns(rows), strict=True):
        lines.append(line)
        if check.fix:
            lines.append(f"        fix: {one_line(check.fix)}")
    return lines


def _all_checks(*, clean: bool) -> Iterator[Check]:
    paths = daemon_paths()
    yield _python()
    yield _tmux()
    yield _settings(paths)
    yield _runtime_directory(paths)
    yield _socket(paths)
    info, health, alerts, trouble = asyncio.run(_look_at_daemon(paths))
    yield from daemon_checks(info, health, alerts, trouble)
    yield _log(info.log_path if info else str(paths.log))
    yield _leftovers(paths, clean=clean)
    yield from _hooks()
    yield from _programs()


# What is on the machine


def _python() -> Check:
    said = f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}"
    if sys.version_info < OLDEST_PYTHON:
        return Check("python", BAD, said, "install Python 3.11 or newer")
    return Check("python", OK, said)


def _tmux() -> Check:
    from bullpen.terminal.tmux import TmuxNotInstalled
    from bullpen.terminal.tmux.program import find_tmux

    try:
        path = find_tmux(os.environ)  # as the daemon does, which may have no PATH to speak of
    except TmuxNotInstalled:
        said = "there is none: agents in panes cannot be seen"
        return Check("tmux", WARN, said, "install tmux 3.2 or newer")
    try:
        done = subprocess.run(
            [path, "-V"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Check("tmux", BAD, f"{path} -V: {error}", "install tmux 3.2 or newer")
    version = done.stdout.strip()
    if _is_old_tmux(version):
        return Check("tmux", BAD, f"{version} at {path}", "install tmux 3.2 or newer")
    return Check("tmux", OK, f"{version} at {path}")


def _is_old_tmux(version: str) -> bool:
    found = re.search(r"(\d+)\.(\d+)", version)  # one built from its branch has no number
    return found is not None and (int(found[1]), int(found[2])) < OLDEST_TMUX


def _settings(paths: Paths) -> Check:
    shown = home_relative(str(paths.config))
    try:
        resolve(paths.config, os.environ)
    except SettingsError as error:
        return Check("settings", BAD, "; ".join(error.problems), f"edit {shown}")
    there = "" if paths.config.exists() else " (not there, so all is at its default)"
    return Check("settings", OK, f"{shown}{there}")


def _runtime_directory(paths: Paths) -> Check:
    directory = paths.socket.parent
    if paths.is_socket_given:
        return _mode("runtime", directory, None)
    return _mode("runtime", directory, PRIVATE_DIRECTORY)


def _socket(paths: Paths) -> Check:
    return _mode("socket", paths.socket, PRIVATE_FILE)


def _mode(name: str, path: Path, wanted: int | None) -> Check:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return Check(name, OK, f"{path} (not there yet)")
    except OSError as error:
        return Check(name, BAD, f"{path}: {error.strerror}", f"ls -ld {path}")
    mode = stat.S_IMODE(found.st_mode)
    said = f"{path} (mode {mode:04o})"
    if found.st_uid != os.getuid():
        return Check(name, BAD, f"{said} belongs to user {found.st_uid}", f"ls -ld {path}")
    if wanted is not None and mode & ~wanted:
        return Check(name, BAD, f"{said} is open to others", f"chmod {wanted:o} {path}")
    return Check(name, OK, said)


def _log(path: str) -> Check:
    log = Path(path)
    try:
        found = log.stat()
    except FileNotFoundError:
        return Check("log", OK, f"{home_relative(path)} (nothing yet)")
    except OSError as error:
        return Check("log", WARN, f"{path}: {error.strerror}", f"ls -l {path}")
    if stat.S_ISDIR(found.st_mode) or not os.access(log, os.W_OK):
        return Check("log", WARN, f"{path} cannot be written", f"ls -ld {path}")
    return Check("log", OK, f"{home_relative(path)} ({found.st_size:,} bytes)")


def _leftovers(paths: Paths, *, clean: bool) -> Check:
    """Look for what wrappers and agents that were killed have left, and take it away if wanted."""
    from bullpen.wrapper import reach

    try:
        found = reach.clean(paths) if clean else reach.leftovers(paths)
    except BullpenError as error:
        return Check("leftovers", WARN, str(error), "bullpen doctor --clean")
    if not found:
        return Check("leftovers", OK, "none: every wrapper there is runs")
    if clean:
        return Check("leftovers", OK, f"{len(found)} taken away: {'; '.join(found)}")
    return Check("leftovers", WARN, "; ".join(found), "bullpen doctor --clean")


# What the daemon says

Answers = tuple[
    DaemonInfo | None,
    tuple[tuple[SourceKind, SourceHealth], ...],
    tuple[Alert, ...],
    BullpenError | None,
]


async def _look_at_daemon(paths: Paths) -> Answers:
    try:
        async with Client.connect(paths, start=False, timeout_seconds=ANSWER_SECONDS) as client:
            health = await client.request(ListSourceHealth(), timeout=ANSWER_SECONDS)
            alerts = await client.request(ListAlerts(), timeout=ANSWER_SECONDS)
            return client.info, health, alerts, None
    except BullpenError as error:
        return None, (), (), error


def daemon_checks(
    info: DaemonInfo | None,
    health: Iterable[tuple[SourceKind, SourceHealth]],
    alerts: tuple[Alert, ...],
    trouble: BullpenError | None,
) -> Iterator[Check]:
    """Return what to make of the daemon's answers, or of there being none."""
    if isinstance(trouble, ProtocolMismatchError):
        yield Check("daemon", BAD, str(trouble), RESTART)
        return
    if info is None:
        yield Check("daemon", WARN, str(trouble), "bullpen up")
        return
    said = f"pid {info.pid}, version {info.version}"
    if info.version != VERSION:
        yield Check("daemon", WARN, f"{said}, but this is {VERSION}", RESTART)
    else:
        yield Check("daemon", OK, said)
    if info.is_persistent:
        yield Check("store", OK, home_relative(info.state_path))
    else:
        said = f"{home_relative(info.state_path)} cannot be used: a restart will forget everything"
        yield Check("store", BAD, said, "bullpen alerts")
    for kind, each in sorted(health):
        if each.status is HealthStatus.HEALTHY:
            yield Check(f"source {kind}", OK, each.version or each.status)
        elif each.is_absent:
            yield Check(f"source {kind}", OK, f"absent: {each.reason}")
        else:
            level = BAD if kind is SourceKind.POLLER and each.status is HealthStatus.DOWN else WARN
            said = f"{each.status}: {each.reason or 'it does not say why'}"
            yield Check(f"source {kind}", level, said, f"tail {info.log_path}")
    if alerts:
        said = "; ".join(each.message for each in alerts[:MOST_ALERTS])
        yield Check("alerts", WARN, f"{len(alerts)} open: {said}", "bullpen alerts")
    else:
        yield Check("alerts", OK, "none")


# The agent programs


def _programs() -> Iterator[Check]:
    found = {each: shutil.which(each.value) for each in Provider if each is not Provider.OTHER}
    with ThreadPoolExecutor() as threads:  # each takes its time
        versions = threads.map(_version, found.values())
        for (provider, path), version in zip(found.items(), versions, strict=True):
            said = f"{version} at {path}" if path else "not on the PATH"
            yield Check(provider.value, OK, said)


def _version(path: str | None) -> str:
    if path is None:
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_SECONDS,
            check=False,
        )
        if lines := done.stdout.strip().splitlines():
            return lines[0]
    return "a version it does not tell"


# The hooks of agent programs


def _hooks() -> Iterator[Check]:
    from bullpen.agents import hooks

    for provider in hooks.PROGRAMS:
        if not hooks.is_present(provider):
            continue
        name, fix = f"hooks {provider}", f"bullpen hooks install {provider}"
        try:
            outcome = hooks.check(provider)
        except hooks.HooksError as error:
            yield Check(name, WARN, str(error), f"bullpen hooks check {provider}")
            continue
        where = home_relative(str(outcome.path))
        states = set(outcome.events.values())
        if outcome.is_complete:
            yield Check(name, OK, f"installed in {where}")
        elif states == {hooks.EventState.MISSING}:
            yield Check(name, OK, "not installed: what it does is read off its screen", fix)
        else:
            yield Check(name, WARN, f"not as they should be in {where}", fix)
