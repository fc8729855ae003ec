"""The dummy: an agent that says what it was told, for trying things out and for tests.

It is run as a file, starts in milliseconds and needs the standard library only. How long it works
on a line is its first argument or `DUMMY_AGENT_SECONDS`, in seconds. An interrupt ends its work on
a line; a second one, with no line answered between them, ends it.
"""

import os
import select
import signal
import sys

PROMPT = "> "
WORK_SECONDS = 0.5


class Dummy:
    """Reads lines and answers each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._interrupts = 0
        self._is_working = False
        # A handler that raises could lose a line that was just read; a byte in a pipe loses none.
        self._woken, wake = os.pipe()
        for end in (self._woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGINT, self._interrupted)

    def run(self) -> int:
        """Go on until the end of the input or `exit`; return the exit status."""
        say("[DUMMY] Ready\n" + PROMPT)
        while line := sys.stdin.readline():
            said = line.strip()
            if said == "exit":
                say("[DUMMY] Bye\n")
                return 0
            if said and self._work():
                self._interrupts = 0
                say(f"[DUMMY] You said: {said}\n")
            say(PROMPT)
        return 0

    def _work(self) -> bool:
        """Take some time; return whether nobody interrupted that."""
        self._is_working = True
        try:
            while select.select([self._woken], [], [], 0)[0]:
                os.read(self._woken, 1024)  # what came while there was nothing to interrupt
            return not select.select([self._woken], [], [], self._seconds)[0]
        finally:
            self._is_working = False

    def _interrupted(self, *_: object) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            say("\n[DUMMY] Interrupted again: bye\n")
            os._exit(128 + signal.SIGINT)
        say("\n[DUMMY] Interrupted; once more ends me\n" + ("" if self._is_working else PROMPT))


def say(text: str) -> None:
    """Write a text at once, also from within a signal handler."""
    data = text.encode(errors="replace")
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


def _seconds() -> float:
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("DUMMY_AGENT_SECONDS", "")
    try:
        return max(float(given), 0.0) if given else WORK_SECONDS
    except ValueError:
        sys.exit(f"dummy agent: {given!r} is no number of seconds")


if __name__ == "__main__":
    # Whatever the locale, which a program that only echoes has no use for.
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.exit(Dummy(_seconds()).run())
