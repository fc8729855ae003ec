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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bullpen.testing.models.record import Request
from bullpen.testing.models.server import ModelServer

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        with (
            _interruption() as interrupted,  # first: who reads that we listen may interrupt us
            _log(options.log) as on_change,
            ModelServer(port=options.port, on_change=on_change) as server,
        ):
            sys.stdout.write(f"listening on {server.url}\n")
            sys.stdout.flush()
            interrupted.wait()
    except OSError as error:
        what = error.filename or f"port {options.port}"
        sys.stderr.write(f"bullpen: cannot use {what}: {error.strerror}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bullpen.testing.models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=_port, default=0, help="0, the default, takes a free one")
    parser.add_argument("--log", type=Path, help="append what arrives to this file, as JSON lines")
    return parser


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, not {text!r}")
    return int(text)


@contextlib.contextmanager
def _interruption() -> Iterator[threading.Event]:
    interrupted = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: interrupted.set()) for number in numbers]
    try:
        yield interrupted
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def _log(path: Path | None) -> Iterator[Callable[[Request], None] | None]:
    if path is None:
        yield None
        return
    with path.open("a", encoding="utf-8", buffering=1) as file:

        def write(request: Request) -> None:
            file.write(json.dumps(_line(request)) + "\n")

        yield write


def _line(request: Request) -> dict[str, object]:
    return {
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


if __name__ == "__main__":
    sys.exit(main())
