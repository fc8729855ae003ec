"""An agent on stdio that does what it is told, good and bad. It knows nothing of bullpen."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHILD = """
import os, signal, sys, time
def tidy_up(*_):
    open(os.environ["WITNESS"], "w").close()
    sys.exit()
if sys.argv[1] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1] == "tidy":
    signal.signal(signal.SIGTERM, tidy_up)
os.write(int(sys.argv[2]), b"ready")
time.sleep(60)
"""


class Agent:
    """Its methods are the methods of its requests."""

    def __init__(self) -> None:
        self.last_words = ""
        self.stays = False

    def echo(self, value: Any) -> Any:
        return value

    def never_answer(self) -> None:
        time.sleep(60)

    def place(self) -> dict[str, Any]:
        return {"cwd": str(Path.cwd()), "env": dict(os.environ), "group": os.getpgrp()}

    def exit(self, status: int, saying: str) -> None:
        sys.stderr.write(saying)
        sys.stderr.flush()
        os._exit(status)

    def write_stderr(self, size: int) -> None:
        sys.stderr.write("x" * size + "\nthe last line\n")
        sys.stderr.flush()

    def write_stdout(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def close_stdout(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def speak_at_the_end(self, size: int) -> None:
        """Have much to say when stdin ends."""
        self.last_words = "x" * size

    def stay(self, *, ignoring_sigterm: bool) -> None:
        """Ignore the end of stdin."""
        self.stays = True
        if ignoring_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def start_child(self, temper: str) -> int:
        """Start a process that inherits stdout and stderr, and stays."""
        ready, told = os.pipe()
        command = [sys.executable, "-Ic", CHILD, temper, str(told)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[told])
        os.read(ready, 5)
        return child.pid


def main() -> None:
    agent = Agent()
    for line in sys.stdin:
        request = json.loads(line)
        if "method" in request:
            result = getattr(agent, request["method"])(**request.get("params", {}))
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
            agent.write_stdout(json.dumps(answer) + "\n")
    agent.write_stdout(agent.last_words)
    if agent.stays:
        time.sleep(60)


if __name__ == "__main__":
    main()
