"""Running the examples as their reader does: as programs, from the top of the repository."""

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "environment", "run_example"]

ROOT = Path(__file__).parents[2]
SECONDS = 30  # a hang, on however busy a machine


def environment() -> dict[str, str]:
    """Return the environment in which `python` is ours, with warnings as errors."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONWARNINGS": "error"}


def run_example(
    name: str, *arguments: str, stdin: str = "", **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run an example to its end."""
    return subprocess.run(
        [sys.executable, f"examples/{name}", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment() | variables,
        timeout=SECONDS,
        check=False,
    )
