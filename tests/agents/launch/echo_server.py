"""A server with one tool, on stdin and stdout, that writes down what it is started with and asked.

    python echo_server.py LOG

It stands on its own: agent programs start it, in environments of their making.
"""

import json
import os
import sys
from pathlib import Path

TOOL = {
    "name": "list_agents",
    "description": "say what one was asked",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def answer(request: dict) -> dict:  # type: ignore[type-arg]
    params = request.get("params") or {}
    match request["method"]:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bullpen", "version": "1"},
            }
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"heard {params['arguments']['text']}"}]}
        case _:
            return {}


def main() -> None:
    with Path(sys.argv[1]).open("a", buffering=1) as log:
        log.write(json.dumps({"environment": dict(os.environ)}) + "\n")
        for line in sys.stdin:
            request = json.loads(line)
            log.write(json.dumps(request) + "\n")
            if "id" in request and "method" in request:
                reply = {"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}
                sys.stdout.write(json.dumps(reply) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
