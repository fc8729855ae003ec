"""Bare `bullpen`, in a terminal: the live board."""

from importlib import import_module

from bullpen.cli.options import socket_path

__all__ = ["show"]


def show() -> None:
    """Show the board until it is left."""
    import_module("bullpen.tui.app").run(socket_path=socket_path())
