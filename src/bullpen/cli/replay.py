"""`bullpen replay`: live through a recorded log again, or record one."""

import asyncio
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import dropwhile
from pathlib import Path

import click
import msgspec

from bullpen.api.client import Client
from bullpen.api.files import write_private
from bullpen.api.methods import AckDelivery, GatewayPull
from bullpen.cli.calls import daemon_paths
from bullpen.cli.options import json_option
from bullpen.cli.output import print_json
from bullpen.errors import BullpenError
from bullpen.model.appearance import one_line
from bullpen.model.observations import Observation
from bullpen.model.states import EvidenceTier
from bullpen.observe.replay import ReplayReport, Row, of_tier, read_rows, replay

__all__ = ["UnusableFileError", "command"]

LONGEST_SECONDS = 600.0  # so long the daemon keeps its log at hand
MOST_OBSERVATIONS = 20_000  # twice what it keeps: while we read, more may come
BATCH = 500


class UnusableFileError(BullpenError):
    """A recording cannot be opened or made. The message says why."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path}: {error.strerror}")
        self.path = path


@click.command(name="replay")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--tier",
    type=click.Choice([each.value for each in EvidenceTier]),
    help="Hear only sources of one tier.",
)
@click.option("--record", is_flag=True, help="Write the daemon's log to FILE instead.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, LONGEST_SECONDS),
    default=LONGEST_SECONDS,
    show_default=True,
    help="With --record: how far back to begin.",
)
@json_option
def command(*, file: Path, tier: str | None, record: bool, seconds: float, as_json: bool) -> None:
    """Live through the recorded log in FILE again, and say what became of every agent.

    Each line is an object with a time and an observation, a link or a label. Where labels say what
    was true, what was said is measured by them, and every miss explained. With --record, FILE is
    written: what the daemon has observed of late, for whoever is to find out what went wrong. It
    holds titles, paths and parts of screens: look at it before you send it.

    \b
    Examples:
      bullpen replay --record what-went-wrong.jsonl --seconds 120
      bullpen replay what-went-wrong.jsonl
      bullpen replay tests/recordings/replay/codex-hooks.jsonl --tier deterministic --json

    \b
    Exit codes:
      0  replayed, whatever the figures are, or recorded
      1  the file cannot be read or written, or there is no daemon to record
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    if record:
        count = _record(file, seconds)
        if as_json:
            print_json(observations=count)
        else:
            click.echo(f"{count} observations of the last {seconds:g} s are in {file}")
        return
    rows: Iterator[Row] = _rows(file)
    report = replay(of_tier(rows, EvidenceTier(tier)) if tier else rows)
    if as_json:
        print_json(**msgspec.to_builtins(report))
    else:
        click.echo("\n".join(_lines(report)))


def _rows(path: Path) -> Iterator[Row]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from read_rows(file)
    except OSError as error:
        raise UnusableFileError(path, error) from error


# ------------------------------------------------------------------------------------- recording


def _record(path: Path, seconds: float) -> int:
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    observed = asyncio.run(_read_log())
    # What came after it belongs to it, also if it tells of older things: it was read late.
    kept = list(dropwhile(lambda each: each.observed_at < since, observed))
    try:
        write_private(
            path, b"".join(msgspec.json.encode(Row(observation=each)) + b"\n" for each in kept)
        )
    except OSError as error:
        raise UnusableFileError(path, error) from error
    return len(kept)


async def _read_log() -> list[Observation]:
    """Return what the daemon holds of its log: a consumer that is new begins with the oldest."""
    consumer = f"replay-{os.getpid()}"
    observed: list[Observation] = []
    async with Client.connect(daemon_paths(), start=False) as client:
        while len(observed) < MOST_OBSERVATIONS:
            batch = await client.request(GatewayPull(consumer=consumer, limit=BATCH))
            if batch.delivery_token is None:
                break
            observed += batch.events
            token = batch.delivery_token
            await client.request(AckDelivery(consumer=consumer, delivery_token=token))
    return observed


# --------------------------------------------------------------------------------------- telling


def _lines(report: ReplayReport) -> Iterator[str]:
    for each in report.transitions:
        yield one_line(
            f"{each.at:%H:%M:%S.%f}"[:-3]
            + f"  {each.agent:16}{each.before.value:>17} → {each.after.value:17}"
            f"{each.source.value}: {each.reason}"
        )
    yield ""
    yield f"observations           {report.accepted:8}"
    for word, count in report.dropped.items():
        yield f"  {word:21}{count:8}"
    if report.labels:
        yield from _figures(report)


def _figures(report: ReplayReport) -> Iterator[str]:
    yield f"labels                 {report.labels:8}"
    yield f"weighted F1            {report.weighted_f1:8.3f}"
    yield f"waiting recall         {report.waiting_recall:8.3f}"
    yield ""
    yield f"{'class':18}{'labels':>8}{'precision':>11}{'recall':>8}{'F1':>8}"
    for each in report.classes:
        yield (
            f"{each.label:18}{each.support:8}{each.precision:11.3f}{each.recall:8.3f}{each.f1:8.3f}"
        )
    for miss in report.misses:
        yield ""
        yield f"{miss.at:%H:%M:%S} {miss.subject}: expected {miss.expected}; found {miss.found}"
        for line in miss.explanation:
            yield f"  {one_line(line)}"
