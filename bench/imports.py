"""What importing the library costs, beside asyncio and msgspec, on which it stands.

Each import runs in a fresh interpreter, which reports the processor time of the import statement
alone: starting Python is no part of it. Bytecode is compiled beforehand, as after any first run.
"""

import subprocess
import sys

from bench.figure import Figure

__all__ = ["run"]

OURS = "bullpen.connection"
THEIRS = "asyncio, msgspec"
TARGET = 1.3

PROGRAM = """
import sys, time
before = set(sys.modules)
began = time.process_time()
import {modules}
print(time.process_time() - began)
print(*{{name.partition(".")[0] for name in set(sys.modules) - before}})
"""


async def run(quick: bool) -> list[Figure]:
    runs = 2 if quick else 60
    ours = theirs = float("inf")
    import_seconds(OURS)
    import_seconds(THEIRS)
    loaded: set[str] = set()
    for _ in range(runs):
        seconds, loaded = import_seconds(OURS)
        ours = min(ours, seconds)
        theirs = min(theirs, import_seconds(THEIRS)[0])
    others = loaded - sys.stdlib_module_names - {"bullpen"}
    _, needed = import_seconds("msgspec")
    return [
        Figure(
            row="import",
            what=f"import {OURS}",
            ours=ours * 1000,
            theirs=theirs * 1000,
            unit="ms",
            against=f"import {THEIRS}",
            at_most=TARGET,
        ),
        Figure(
            row="import",
            what="third-party packages it loads",
            ours=len(others),
            theirs=len(needed - sys.stdlib_module_names),
            unit="",
            against="import msgspec",
            at_most=1.0,
        ),
    ]


def import_seconds(modules: str) -> tuple[float, set[str]]:
    """Return the time of an import in a fresh interpreter, and the packages it loaded."""
    command = [sys.executable, "-I", "-c", PROGRAM.format(modules=modules)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, names = output.splitlines()
    return float(seconds), set(names.split())
