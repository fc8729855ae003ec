"""The fake as a process, started like the real one.

    python -m bullpen.testing.codex_server --script FILE --journal FILE app-server

Each process appends a line of JSON to the journal for each thing that happens to it:
`{"pid": 1, "what": "started", "arguments": ["app-server"]}`, `{"what": "received", "message": …}`,
and "ended". SIGUSR1 makes it do what was added to its script.
"""

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from bullpen.testing.codex_server.server import CodexServer, Exit

__all__ = ["main"]

STDIN = 0
OUTLIVES_SECONDS = 60  # how long it, or its child, may outlive a test that failed to end it


class _Process:
    def __init__(self, script: Path, journal: Path) -> None:
        self._script = script
        self._journal = journal
        self._done = 0  # lines of the script
        self._server = CodexServer(self._write)

    def run(self, arguments: list[str]) -> int:
        # A byte in a pipe for each signal: one that comes right before we wait is not lost.
        self._woken, waking = os.pipe()
        os.set_blocking(waking, False)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGUSR1, lambda *_: None)
        self._note("started", arguments=arguments)
        self._read_script()
        if self._server.has_child:
            sleep = f"import time; time.sleep({OUTLIVES_SECONDS})"
            child = subprocess.Popen([sys.executable, "-c", sleep], stdin=subprocess.DEVNULL)
            self._note("child", child=child.pid)
        if self._server.is_stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if arguments[:1] == ["app-server"]:
            self._serve()
        self._note("ended")
        return 0

    def _serve(self) -> None:
        rest = b""
        while True:
            ready, _, _ = select.select([STDIN, self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._read_script()
            if STDIN not in ready:
                continue
            data = os.read(STDIN, 65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self._note("received", message=message)
                self._read_script()
                self._server.receive(message)
        signal.alarm(OUTLIVES_SECONDS)
        while self._server.is_stubborn:
            signal.pause()

    def _read_script(self) -> None:
        """Do what was added."""
        lines = self._script.read_text("utf-8").splitlines() if self._script.exists() else []
        for line in lines[self._done :]:
            self._done += 1
            self._server.do(line)

    def _note(self, what: str, **facts: object) -> None:
        line = json.dumps({"pid": os.getpid(), "what": what, **facts}) + "\n"
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(line)

    @staticmethod
    def _write(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the server until its stdin ends."""
    parser = argparse.ArgumentParser(prog="codex_server", description=__doc__.split("\n")[0])
    parser.add_argument("--script", type=Path, required=True, help="what to do")
    parser.add_argument("--journal", type=Path, required=True, help="where to note what happens")
    options, rest = parser.parse_known_args(arguments)
    process = _Process(options.script, options.journal)
    try:
        return process.run(rest)
    except Exit as exit_:
        return exit_.status
    except BrokenPipeError:
        with contextlib.suppress(OSError):  # so that Python does not complain at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
