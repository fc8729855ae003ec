"""This program's own stdin and stdout, for an agent or server that somebody else starts.

The wire is a private copy of both descriptors. While it is used, descriptor 1 leads to stderr and
descriptor 0 to nowhere: a stray `print`, a library's progress bar or a child process cannot put
anything between two frames or take anything from them. On close everything is as it was.
"""

import contextlib
import fcntl
import os
import sys
from typing import Any

from bullpen.connection.errors import AddressError
from bullpen.connection.transport import Receiver
from bullpen.connection.transports.descriptor import DescriptorTransport

__all__ = ["StdioTransport"]

STDIN, STDOUT, STDERR = 0, 1, 2


class StdioTransport(DescriptorTransport):
    """Frames on stdin and stdout. There can be one at a time in a process.

    Raises on opening:
        AddressError: another one is open, or stdin or stdout is closed.
    """

    _is_taken = False  # of the class: there is but one stdin

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._release = self._restore
        self._has_taken = False
        self._was_blocking = (True, True)

    async def open(self, receiver: Receiver) -> None:
        if StdioTransport._is_taken:
            raise AddressError("stdio:", "stdin and stdout are in use by another transport")
        self._divert()
        await super().open(receiver)

    def _divert(self) -> None:
        # Where they were closed from the start, their numbers are anybody's by now.
        if sys.__stdin__ is None or sys.__stdout__ is None:
            raise AddressError("stdio:", "stdin or stdout is closed")
        try:
            self._read_fd, self._write_fd = _copy(STDIN), _copy(STDOUT)
        except OSError as error:
            raise AddressError("stdio:", f"stdin or stdout: {error.strerror}") from error
        StdioTransport._is_taken = self._has_taken = True
        self._was_blocking = os.get_blocking(self._read_fd), os.get_blocking(self._write_fd)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, STDIN)
        os.dup2(nowhere if sys.__stderr__ is None else STDERR, STDOUT)
        os.close(nowhere)
        _flush_stdout()  # what was printed before is no frame either

    def _restore(self) -> None:
        if not self._has_taken:
            return
        StdioTransport._is_taken = self._has_taken = False
        _flush_stdout()  # while it still leads to stderr
        for private, fd, was_blocking in (
            (self._read_fd, STDIN, self._was_blocking[0]),
            (self._write_fd, STDOUT, self._was_blocking[1]),
        ):
            # The mark is on what both descriptors stand for, which others may share.
            os.set_blocking(private, was_blocking)
            os.dup2(private, fd)
            os.close(private)


def _copy(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, STDERR + 1)  # never in the place of one of them


def _flush_stdout() -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or replaced by None
        sys.stdout.flush()
