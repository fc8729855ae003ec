"""The command line: `python -m bench [--only ROW]… [--quick] [--json FILE]`."""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from bench.figure import Figure, as_json, as_table, from_json

ROWS = {
    "round-trips": "bench.round_trips",
    "demultiplexing": "bench.demultiplexing",
    "flat": "bench.flat",
    "channel": "bench.channel",
    "import": "bench.imports",
    "soak": "bench.soak",
    "tmux": "bench.tmux",
    "cli-startup": "bench.cli_startup",
    "hook-shim": "bench.hooks",
    "hook-latency": "bench.observe_hooks",
    "screen-latency": "bench.observe_screens",
    "idle-cost": "bench.observe_idle",
    "observations-soak": "bench.observe_soak",
    "emulation": "bench.emulation",
    "mail-accept": "bench.mail_accept",
    "mail-end-to-end": "bench.mail_end_to_end",
    "wrapped-tasks": "bench.wrapped_tasks",
    "wrapper-cost": "bench.wrapper_cost",
    "talk-startup": "bench.talk_startup",
    "a2a-send": "bench.a2a_send",
    "a2a-handler": "bench.a2a_handler",
    "a2a-priority": "bench.a2a_priority",
    "a2a-subscribers": "bench.a2a_subscribers",
    "a2a-memory": "bench.a2a_memory",
    "others": "bench.others",
}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="bench", description="Measure bullpen beside others.")
    parser.add_argument(
        *("--only", "-o"),
        metavar="ROW",
        action="append",
        choices=ROWS,
        help=f"one of {', '.join(ROWS)}; can be given several times",
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: see that it runs")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the same figures there")
    options = parser.parse_args()
    rows = options.only or list(ROWS)
    if len(rows) == 1:
        work = import_module(ROWS[rows[0]]).run(options.quick)
        figures: list[Figure] = asyncio.run(work, debug=False)  # whatever the environment says
    else:
        figures = [figure for row in rows for figure in in_its_own_process(row, options.quick)]
    print(as_table(figures))
    if options.json is not None:
        options.json.write_bytes(as_json(figures))


def in_its_own_process(row: str, quick: bool) -> list[Figure]:
    """Measure one row where no other has left anything: imported SDKs, a grown heap."""
    print(f"measuring {row} …", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "bench", "--only", row, *(["--quick"] if quick else [])]
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        output = Path(directory) / "figures.json"
        subprocess.run([*command, "--json", output], check=True, stdout=subprocess.DEVNULL)
        return from_json(output.read_bytes())


if __name__ == "__main__":
    main()
