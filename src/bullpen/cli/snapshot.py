"""`bullpen snapshot`: copies of what is known, and the way back to one."""

from collections.abc import Iterable
from datetime import UTC, datetime

import click

from bullpen.api.errors import reason_of
from bullpen.api.methods import ListSnapshots, RestoreReport, RestoreSnapshot, SaveSnapshot
from bullpen.cli.calls import ask
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import Cell, columns, print_json, text
from bullpen.connection import RemoteError
from bullpen.errors import BullpenError
from bullpen.model.appearance import age_words, one_line
from bullpen.model.reasons import Reason
from bullpen.model.records import SnapshotInfo

__all__ = ["DryRunFirstError", "command", "listing", "report_lines"]

INVALID = 1


class DryRunFirstError(BullpenError):
    """A snapshot is restored only after it was tried. Nothing has been changed."""

    def __init__(self, snapshot_id: str) -> None:
        super().__init__(
            f"try it first: bullpen snapshot restore {snapshot_id} --dry-run; then say it again"
        )
        self.snapshot_id = snapshot_id


@click.group(name="snapshot")
def command() -> None:
    """Save, list and restore copies of what the daemon knows.

    \b
    Examples:
      bullpen snapshot save
      bullpen snapshot list
      bullpen snapshot restore ID --dry-run && bullpen snapshot restore ID

    \b
    Exit codes:
      0  done
      1  there is no daemon, or no such snapshot, or it cannot be restored
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name


@command.command(name="save")
@json_option
@no_start_option
def save(*, as_json: bool) -> None:
    """Keep a copy of what is known now, and print its ID.

    \b
    Examples:
      bullpen snapshot save

    \b
    Exit codes:
      0  saved
      1  there is no daemon, or it cannot write
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    saved = ask(SaveSnapshot())
    if as_json:
        print_json(snapshot=saved)
    else:
        click.echo(one_line(saved.snapshot_id))


@command.command(name="list")
@json_option
@no_start_option
def list_(*, as_json: bool) -> None:
    """List the copies there are, newest first.

    \b
    Examples:
      bullpen snapshot list
      bullpen snapshot list --json | jq -r '.snapshots[0].snapshot_id'

    \b
    Exit codes:
      0  listed, also if there is none
      1  there is no daemon
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    snapshots = ask(ListSnapshots())
    if as_json:
        print_json(snapshots=snapshots)
    else:
        click.echo("\n".join(listing(snapshots, datetime.now(UTC))))


@command.command(name="restore")
@click.argument("snapshot_id", metavar="ID")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@json_option
@no_start_option
@click.pass_context
def restore(context: click.Context, *, snapshot_id: str, dry_run: bool, as_json: bool) -> None:
    """Go back to a copy. It is refused unless the same was tried with --dry-run just before.

    What belongs to tmux servers that no longer run is left out, and whatever is observed afterwards
    corrects what was restored.

    \b
    Examples:
      bullpen snapshot restore ID --dry-run
      bullpen snapshot restore ID

    \b
    Exit codes:
      0  restored; with --dry-run: it could be
      1  it was not tried with --dry-run before, or cannot be restored, or there is no such snapshot
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    try:
        report = ask(RestoreSnapshot(snapshot_id, dry_run=dry_run))
    except RemoteError as error:
        if reason_of(error) == Reason.DRY_RUN_REQUIRED.word:
            raise DryRunFirstError(snapshot_id) from error
        raise
    if as_json:
        print_json(report=report)
    else:
        click.echo("\n".join(report_lines(report)))
    if not report.is_valid:
        context.exit(INVALID)


def listing(snapshots: Iterable[SnapshotInfo], now: datetime) -> list[str]:
    """Return the lines that show some snapshots."""
    rows = [
        [
            text(each.snapshot_id),
            Cell(f"{age_words((now - each.created_at).total_seconds())} ago"),
            text(each.reason),
            Cell(f"{each.panes} panes"),
            Cell(f"{each.sessions} sessions"),
            Cell(f"{each.size_bytes:,} bytes"),
        ]
        for each in snapshots
    ]
    return columns(rows) or ["no snapshots"]


def report_lines(report: RestoreReport) -> list[str]:
    """Return what going back does, or would do."""
    name = one_line(report.snapshot.snapshot_id)
    if not report.is_valid:
        return [f"{name} cannot be restored", *(f"  {one_line(each)}" for each in report.problems)]
    verb = "would restore" if report.dry_run else "restored"
    return [
        f"{verb} {report.panes_restored} panes and {report.sessions_restored} sessions of {name}",
        *([f"left out {report.panes_dropped} panes"] if report.panes_dropped else []),
        *(f"  {one_line(each)}" for each in report.problems),
    ]
