"""A daemon as far as the shim can tell: a socket that takes one line and answers it."""

import contextlib
import json
import socketserver
import threading
from pathlib import Path
from typing import Any, Self

__all__ = ["Listener"]


class Listener:
    """Listens where the daemon would, and keeps every request it gets."""

    def __init__(self, path: Path, *, answers: bool = True) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.lines: list[bytes] = []
        self._arrived = threading.Condition(threading.RLock())
        self._stopped = threading.Event()
        listener = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                line = self.rfile.readline()
                listener._take(line)
                if answers:
                    with contextlib.suppress(OSError):
                        self.wfile.write(b'{"jsonrpc":"2.0","id":1,"result":true}\n')
                else:
                    listener._stopped.wait(10)

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True
            request_queue_size = 64

        self._server = Server(str(path), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The params of the requests, in the order they came."""
        with self._arrived:
            return [json.loads(line)["params"] for line in self.lines]

    @property
    def events(self) -> list[str]:
        """The names of the hooks, in the order they came."""
        return [report["payload"].get("hook_event_name", "") for report in self.reports]

    def wait_for(self, event: str, *, timeout: float = 30.0) -> dict[str, Any]:
        """Return the first report of a hook, as soon as there is one."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: event in self.events, timeout):
                raise TimeoutError(f"no {event}, only {self.events}")
            return self.reports[self.events.index(event)]

    def _take(self, line: bytes) -> None:
        with self._arrived:
            self.lines.append(line)
            self._arrived.notify_all()
