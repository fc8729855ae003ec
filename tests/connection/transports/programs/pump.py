"""Copies stdin to a Unix socket and the socket to stdout: a process with no ideas of its own."""

import os
import socket
import sys
import threading
from collections.abc import Callable


def copy(source: int, target: int, end: Callable[[], None]) -> None:
    try:
        while data := os.read(source, 2**16):
            while data:
                data = data[os.write(target, data) :]
    except OSError:
        pass
    end()


def main() -> None:
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(sys.argv[1])
    wire = connected.fileno()

    def hang_up() -> None:
        os.close(1)

    def shut_down() -> None:
        connected.shutdown(socket.SHUT_WR)

    outward = threading.Thread(target=copy, args=(wire, 1, hang_up), daemon=True)
    outward.start()
    copy(0, wire, shut_down)  # the end of stdin is the end of the program
    outward.join(0.1)


if __name__ == "__main__":
    main()
