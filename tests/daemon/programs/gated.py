"""An agent that stops where a test wants it to, and notes every line it was given.

Its directory is its first argument. A line may say `quiet=GATE`, to wait for a file of that name
before anything is written, `work=GATE`, to write something and then wait, `flood`, to write without
an end, and `die`, to end by a signal behind its answer. Further arguments: `noecho`, its terminal
echoes nothing; `raw`, nor does it edit lines; `deaf`, it never reads; `echo`, it sends all that it
is sent to whoever else there is of the kind.
"""

import json
import os
import re
import signal
import socket
import sys
import termios
import time
import tty
from pathlib import Path

PROMPT = "> "


def main() -> None:
    directory = Path(sys.argv[1])
    if "noecho" in sys.argv[2:]:
        settings = termios.tcgetattr(0)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(0, termios.TCSANOW, settings)
    if "raw" in sys.argv[2:]:
        tty.setraw(0)
    say(PROMPT)
    if "deaf" in sys.argv[2:]:
        while True:
            time.sleep(3600)
    for line in sys.stdin:
        said = line.strip()
        if not said:
            say(PROMPT)
            continue
        note(directory / "lines", said)
        if "echo" in sys.argv[2:]:
            send_on(said)
        while said.endswith("flood"):
            os.write(1, b"flood " * 10_000)
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


def send_on(said: str) -> None:
    """Send what was said to the other one, as an agent does."""
    me = os.environ["BULLPEN_AGENT"]
    other = "echo-2" if me == "echo-1" else "echo-1"
    params = {"to": other, "content": said, "secret": os.environ["BULLPEN_SECRET"]}
    path = f"{os.environ['XDG_RUNTIME_DIR']}/bullpen/bullpend.sock"
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.connect(path)
        request = {"id": 1, "method": "mail.send", "params": params}
        daemon.sendall(json.dumps(request).encode() + b"\n")
        daemon.recv(65_536)


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
