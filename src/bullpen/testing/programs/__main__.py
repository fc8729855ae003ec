"""Fetch the real agent programs our tests run against, and say where they are."""

import argparse
import json
import sys
from collections.abc import Sequence

from bullpen.testing.programs.errors import NodeMissing, ProgramError, UnknownProgram
from bullpen.testing.programs.install import ensure, installed
from bullpen.testing.programs.recipes import modes
from bullpen.testing.programs.table import PROGRAMS, Program, find

__all__ = ["main"]

OK = 0
FAILED = 1
NODE_MISSING = 3  # 2 is argparse's, for a wrong command line
NOT_INSTALLED = 4

EPILOG = """\
examples:
  python -m bullpen.testing.programs install              every program, about 1.9 GB
  python -m bullpen.testing.programs install codex claude
  python -m bullpen.testing.programs list --json
  "$(python -m bullpen.testing.programs path codex)" --version

exit codes:
  0  done
  1  a program could not be installed
  2  wrong command line
  3  Node cannot be had; the caller may skip what needs the programs
  4  path: the program is not installed
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        match options.command:
            case "install":
                return _install(options.names or list(PROGRAMS))
            case "list":
                return _list(as_json=options.json)
            case _:
                return _path(options.name)
    except ProgramError as error:
        sys.stderr.write(f"bullpen: {error}\n")
        return NODE_MISSING if isinstance(error, NodeMissing) else FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bullpen.testing.programs",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    install = commands.add_parser("install", help="install the named programs, by default all")
    install.add_argument("names", nargs="*", metavar="NAME", type=_known, help="see list")
    listing = commands.add_parser("list", help="list the programs, their modes and their state")
    listing.add_argument("--json", action="store_true", help="one JSON array instead of a table")
    path = commands.add_parser("path", help="print the executable's path; installs nothing")
    path.add_argument("name", metavar="NAME", type=_known, help="see list")
    return parser


def _known(name: str) -> str:
    try:
        return find(name).name
    except UnknownProgram as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _install(names: Sequence[str]) -> int:
    for name in names:
        sys.stdout.write(f"{name}\t{ensure(name)}\n")
    return OK


def _list(*, as_json: bool) -> int:
    if as_json:
        rows = [_row(program) for program in PROGRAMS.values()]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return OK
    for program in PROGRAMS.values():
        state = "installed" if installed(program.name) else "-"
        start = f"{program.name:<17}{program.version:<10}{state:<11}"
        sys.stdout.write(f"{start}{', '.join(modes(program.name))}\n")
    return OK


def _row(program: Program) -> dict[str, object]:
    path = installed(program.name)
    return {
        "name": program.name,
        "package": program.package,
        "version": program.version,
        "modes": modes(program.name),
        "path": str(path) if path else None,
    }


def _path(name: str) -> int:
    if (path := installed(name)) is None:
        sys.stderr.write(f"bullpen: {name} is not installed\n")
        return NOT_INSTALLED
    sys.stdout.write(f"{path}\n")
    return OK


if __name__ == "__main__":
    sys.exit(main())
