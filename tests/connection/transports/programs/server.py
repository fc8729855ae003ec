"""A server that names its port, or does one of the other things servers do when started."""

import json
import os
import socket
import sys
import time


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def serve(listening: socket.socket) -> None:
    connected, _ = listening.accept()
    with connected, connected.makefile("rw", encoding="utf-8") as stream:
        for line in stream:
            request = json.loads(line)
            match request["method"]:
                case "print":
                    say("x" * request["params"]["size"])
                case "hang up":
                    connected.shutdown(socket.SHUT_RDWR)
                    sys.stdin.read()
                    return
            answer = {"id": request["id"], "result": os.getpid()}
            stream.write(json.dumps(answer) + "\n")
            stream.flush()
    sys.stdin.read()


def main(does: str) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    match does:
        case "well":
            say("Warning: anybody may connect")
            say(f"CLI server listening on port {port}")
            serve(listening)
            return
        case "exits":
            sys.stderr.write("no licence")
            sys.exit(3)
        case "exits having named its port":
            listening.close()
            say(f"listening on port {port}")
            sys.exit(4)
        case "names a port there is not":
            say("listening on port 123456")
        case "names a port it does not serve":
            listening.close()
            say(f"listening on port {port}")
        case "says something else":
            say("Hello")
        case "closes its stdout":
            say("Hello")
            os.dup2(2, 1)
        case "says too much":
            say("Hello\n" * 20_000)
        case "says nothing":
            pass
    time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1])
