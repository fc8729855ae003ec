"""Bare `bullpen`, in a terminal: the live board."""

import os
import sys

import click

from bullpen.cli.options import socket_path

__all__ = ["show", "show_demo"]


def show() -> None:
    """Show the board until it is left."""
    from bullpen.tui.app import run

    run(socket_path=socket_path())


def show_demo() -> None:
    """Become the demonstration, which has agents and a daemon of its own."""
    if socket_path() is not None:
        raise click.UsageError("--demo has a daemon of its own, and takes no socket")
    sys.stdout.flush()
    program = [sys.executable, "-P", "-m", "bullpen.testing.demo"]
    os.execv(program[0], program)  # noqa: S606 - there is no shell in it
