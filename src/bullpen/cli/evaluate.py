"""`bullpen evaluate`: how well the screen rules do on screens whose truth is known."""

from pathlib import Path

import click
import msgspec

from bullpen.errors import BullpenError
from bullpen.observe.evaluate import Label, Report, facts_of, score, screen_of
from bullpen.observe.pane import PaneVerdict, judge_pane
from bullpen.terminal.rules.load import Rules, load_rules, shipped_rules

__all__ = ["UnreadableScreensError", "command", "evaluate_directory"]


class UnreadableScreensError(BullpenError):
    """A folder of labelled screens cannot be read. The message says which line or file."""


@click.command(name="evaluate")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--shipped", is_flag=True, help="Leave your own rule files out: measure the shipped rules."
)
def command(directory: Path, *, as_json: bool, shipped: bool) -> None:
    """Measure the screen rules on the labelled screens of DIRECTORY.

    DIRECTORY holds an index.jsonl with one object per screen: file, ansi_file, provider, activity,
    ready and, if known, pane_title, current_cmd, argv, procs, cursor, width and height. Rows whose
    activity is menu count only for whether the screen was ready.

    \b
    Examples:
      bullpen evaluate tests/recordings/screens
      bullpen evaluate captures --json | jq .weighted_f1

    \b
    Exit codes:
      0  measured, whatever the figures are
      1  the folder or a rule file cannot be read
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    report = evaluate_directory(directory, shipped_rules() if shipped else load_rules())
    if as_json:
        encoded = msgspec.json.encode({"schema": 1, **msgspec.to_builtins(report)})
        click.echo(msgspec.json.format(encoded).decode())
    else:
        click.echo(_table(report))


def evaluate_directory(directory: Path, rules: Rules) -> Report:
    """Judge every screen that the folder's index lists, and compare.

    Raises:
        UnreadableScreensError: the index or a screen cannot be read.
    """
    return score([_judge(directory, label, rules) for label in _labels(directory)])


def _labels(directory: Path) -> list[Label]:
    index = directory / "index.jsonl"
    try:
        lines = index.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UnreadableScreensError(f"{index}: {error.strerror}") from error
    labels = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            labels.append(msgspec.json.decode(line, type=Label))
        except msgspec.DecodeError as error:
            raise UnreadableScreensError(f"{index}:{number}: {error}") from error
    return labels


def _judge(directory: Path, label: Label, rules: Rules) -> tuple[Label, PaneVerdict]:
    path = directory / (label.ansi_file or label.file)
    if not path.exists():
        path = directory / label.file
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UnreadableScreensError(f"{path}: {error.strerror}") from error
    screen = screen_of(label, content)
    version = label.version or ""
    return label, judge_pane(facts_of(label, screen), screen, rules, version=version)


def _table(report: Report) -> str:
    lines = [f"{'class':18}{'screens':>8}{'precision':>11}{'recall':>8}{'F1':>8}"]
    lines += [
        f"{each.label:18}{each.support:8}{each.precision:11.3f}{each.recall:8.3f}{each.f1:8.3f}"
        for each in report.classes
    ]
    lines += [
        "",
        f"screens                {report.rows:8}",
        f"weighted F1            {report.weighted_f1:8.3f}",
        f"waiting recall         {report.waiting_recall:8.3f}",
        f"false agents           {report.false_agents:8}",
        f"approvals called idle  {report.approvals_called_idle:8}",
        f"ready errors           {report.ready_errors:8}",
        f"provider errors        {report.provider_errors:8}",
    ]
    for miss in report.misses:
        lines += [
            "",
            f"{miss.file}: {', '.join(miss.what)}",
            f"  expected {miss.expected}; found {miss.found}",
            f"  {miss.explanation}",
        ]
    return "\n".join(lines)
