r"""Run the fake model server by hand.

Point an agent program at it, then let your prompts tell the model what to do:

  hello                            it echoes
  <<say Hello>>                    it says so
  <<think hm | stream 50 0.2>>     it thinks, then talks for ten seconds
  <<bash ls -l ;; results>>        it runs a command, then says what came out
  <<bash ls | bash pwd ;; say ok>> it runs two at once
  <<tool Read {"file_path": "a"}>> it calls a tool
  <<sleep 5 | say done>>           it takes its time
  <<wait lunch | say done>>        it waits for: curl -X POST URL/gates/lunch
  <<err 529>>  <<sseerr>>          it fails, before or in the middle of its answer
  <<say so far | cut>>  <<hang>>   it drops the connection, it says nothing at all

Claude Code   ANTHROPIC_BASE_URL=URL
Codex         base_url = "URL/v1" and wire_api = "responses" of a model provider
Copilot       COPILOT_PROVIDER_BASE_URL=URL/v1
Gemini        GOOGLE_GEMINI_BASE_URL=URL
opencode      "baseURL": "URL/v1" of a provider with @ai-sdk/openai-compatible
"""

import argparse
import contextlib
import json
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from bullpen.testing.models.record import Request
from bullpen.testing.models.server import ModelServer

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted; return the exit status."""
    options = _parser().parse_args(arguments)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(options.log.open("a", encoding="utf-8")) if options.log else None
        server = ModelServer(port=options.port, on_change=_logger(log) if log else None)
        try:
            stack.enter_context(server)
        except OSError as error:
            sys.stderr.write(f"bullpen: cannot listen on port {options.port}: {error.strerror}\n")
            return 1
        sys.stdout.write(f"listening on {server.url}\n")
        sys.stdout.flush()
        _wait_for_interrupt()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bullpen.testing.models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--log", type=Path, help="append what arrives to this file, as JSON lines")
    return parser


def _logger(log: TextIO) -> Callable[[Request], None]:
    def write(request: Request) -> None:
        line = {
            "number": request.number,
            "outcome": request.outcome.value,
            "gate": request.gate,
            "note": request.note,
            "method": request.method,
            "path": request.path,
            "dialect": request.dialect,
            "model": request.model,
            "is_prompt": request.is_prompt,
            "prompt": request.prompt,
            "tools": request.tools,
        }
        log.write(json.dumps(line) + "\n")
        log.flush()

    return write


def _wait_for_interrupt() -> None:
    interrupted = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: interrupted.set())
    interrupted.wait()


if __name__ == "__main__":
    sys.exit(main())
