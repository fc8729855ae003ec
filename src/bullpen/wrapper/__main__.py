"""A wrapper without a terminal, as `detached` starts it: `python -m bullpen.wrapper PROFILE`.

It is the same as `bullpen start --foreground`, without all that makes a command line.
"""

import argparse
import sys

from bullpen.api.runtime import Paths
from bullpen.errors import BullpenError
from bullpen.wrapper.main import run
from bullpen.wrapper.preparing import prepare

__all__ = ["main"]


def main() -> int:
    """Run a wrapper until its program ends; return the exit code."""
    parser = argparse.ArgumentParser(prog="bullpen.wrapper", allow_abbrev=False)
    parser.add_argument("profile")
    parser.add_argument("--name", default="")
    parser.add_argument("--port", type=int)
    parser.add_argument("--socket-path")
    parser.add_argument("--no-start", action="store_true")
    parser.add_argument("arguments", nargs="*")
    given = parser.parse_args()
    try:
        options = prepare(
            Paths.resolve(socket=given.socket_path),
            given.profile,
            name=given.name,
            port=given.port,
            arguments=tuple(given.arguments),
            is_detached=True,
            starts_daemon=not given.no_start,
        )
    except BullpenError as error:
        sys.stderr.write(f"bullpen: {error}\n")
        return 1
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
