"""Become another program, with standard input as the controlling terminal, if it is one.

Run as a file by `pty.py` and others, in a session of its own: only the process itself can take a
controlling terminal, and Python does no work between fork and exec safely. `argv` is the descriptor
on which a failure is told, the process id of who started us, and the command. It imports next to
nothing, for it stands before every program that is started.
"""

import errno
import fcntl
import os
import signal
import sys
import termios

_SET_DEATH_SIGNAL = 1  # of prctl
# Python ignores the first two; the others nohup(1), or a shell that put us into the background.
_DEFAULTS = (
    *(signal.SIGPIPE, signal.SIGXFSZ),
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
)


def main() -> None:
    """Take the terminal, then become the command; or tell the error's number."""
    report, parent, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    try:
        os.set_inheritable(report, False)  # that it closes says that the command runs
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        _die_with(parent)
        for number in _DEFAULTS:
            signal.signal(number, signal.SIG_DFL)
        if os.environ.pop("BULLPEN_LC_CTYPE", "") == "unset":
            os.environ.pop("LC_CTYPE", None)  # what Python sets for itself in a C locale
        os.execvp(command[0], command)  # noqa: S606 - what the caller wants started
    except OSError as error:
        os.write(report, str(error.errno or errno.ENOEXEC).encode())
        os._exit(127)


def _die_with(parent: int) -> None:
    """Have Linux kill the command when its parent dies without a word; elsewhere it hangs up."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        os._exit(127)


if __name__ == "__main__":
    main()
