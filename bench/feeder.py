"""The second process: a session server that answers at once and streams what it has prepared.

It speaks as Copilot CLI does, in newline frames: `session.create`, `session.send` and
`session.destroy` are answered, `bench.prepare` makes the events of one stream, and `bench.stream`
sends them all before its response. So whoever has the response has had every event.
"""

import contextlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["ANSWER", "feeder"]

READ_BYTES = 2**18
WORDS = ("the", " parser", " keeps", " a", " cursor", " into", " the", " buffer,", " so", " that")
ANSWER = "".join(WORDS)  # to every prompt

DELTA = (
    '{{"jsonrpc":"2.0","method":"session.event","params":{{"sessionId":"{session_id}","event":'
    '{{"type":"assistant.message_delta","data":{{"messageId":"5a9f1f0e-5d0b-4b58-9df3-{turn:012x}",'
    '"deltaContent":"{text}"}},"id":"c3a1b2d4-0000-4000-8000-{number:012x}",'
    '"timestamp":"2026-03-14T09:26:53.589Z","parentId":null,"ephemeral":true}}}}}}\n'
)
IDLE = (
    '{{"jsonrpc":"2.0","method":"session.event","params":{{"sessionId":"{session_id}","event":'
    '{{"type":"session.idle","data":{{"mode":"interactive"}},'
    '"id":"c3a1b2d4-0000-4000-8000-{number:012x}","timestamp":"2026-03-14T09:26:53.589Z",'
    '"parentId":null,"ephemeral":true}}}}}}\n'
)


@contextlib.contextmanager
def feeder() -> Iterator[str]:
    """Run the second process; yield the path of its socket."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        path = str(Path(directory) / "feeder.sock")
        command = [sys.executable, "-m", "bench.feeder", path]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()  # it listens
                yield path
            finally:
                process.terminate()


def stream(session_ids: Sequence[str], events: int) -> bytes:
    """Return so many deltas, one session after the other in turn, and the end of every turn."""
    frames = [
        DELTA.format(
            session_id=session_ids[number % len(session_ids)],
            turn=number % len(session_ids),
            text=WORDS[number // len(session_ids) % len(WORDS)],
            number=number,
        )
        for number in range(events)
    ]
    frames += [IDLE.format(session_id=each, number=events) for each in session_ids]
    return "".join(frames).encode()


def serve(connection: socket.socket) -> None:
    """Answer one connection until it ends."""
    prepared = b""
    received = b""
    while data := connection.recv(READ_BYTES):
        *lines, received = (received + data).split(b"\n")
        for line in lines:
            request = msgspec.json.decode(line)
            params: dict[str, Any] = request.get("params", {})
            out, result = b"", {}
            match request["method"]:
                case "session.create":
                    result = {"sessionId": params["sessionId"]}
                case "session.send":
                    out = stream([params["sessionId"]], len(WORDS))
                case "bench.prepare":
                    prepared = stream(params["sessions"], params["events"])
                case "bench.stream":
                    out = prepared
            connection.sendall(out)
            response = {"jsonrpc": "2.0", "id": request["id"], "result": result}
            connection.sendall(msgspec.json.encode(response) + b"\n")


def main() -> None:
    """Serve one connection after the other."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(sys.argv[1])
        listening.listen()
        print("listening", flush=True)
        while True:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(ConnectionError):
                serve(connection)


if __name__ == "__main__":
    main()
