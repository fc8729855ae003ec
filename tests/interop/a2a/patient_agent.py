"""An agent that works on every line until it is interrupted, and then on the next.

It is run as a file, and needs the standard library only.
"""

import contextlib
import os
import select
import signal
import sys

PROMPT = "> "


def main() -> None:
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGINT, lambda *_: os.write(wake, b"\n"))
    say("ready\n" + PROMPT)
    while line := sys.stdin.readline():
        if line.strip():
            say("on it\n")
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 1024)  # what came while there was nothing to interrupt
            select.select([woken], [], [])
            say("stopped\n")
        say(PROMPT)


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
