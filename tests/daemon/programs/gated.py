"""An agent that stops where a test wants it to, and notes every line it was given.

Its directory is its first argument. A line may say `quiet=GATE`, to wait for a file of that name
before anything is written, `work=GATE`, to write something and then wait, and `die`, to end by a
signal behind its answer. With `noecho` as its second argument its terminal echoes nothing.
"""

import os
import re
import signal
import sys
import termios
import time
from pathlib import Path

PROMPT = "> "


def main() -> None:
    directory = Path(sys.argv[1])
    if "noecho" in sys.argv[2:]:
        settings = termios.tcgetattr(0)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(0, termios.TCSANOW, settings)
    say(PROMPT)
    for line in sys.stdin:
        said = line.strip()
        if not said:
            say(PROMPT)
            continue
        note(directory / "lines", said)
        for gate in re.findall(r"quiet=(\w+)", said):
            wait(directory / gate)
        for gate in re.findall(r"work=(\w+)", said):
            say("working\n")
            wait(directory / gate)
        say(f"done: {said}\n")
        if said.endswith("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        say(PROMPT)
        note(directory / "answered", said)


def say(text: str) -> None:
    os.write(1, text.encode())


def note(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def wait(gate: Path) -> None:
    while not gate.exists():
        time.sleep(0.01)


if __name__ == "__main__":
    main()
