"""A Copilot CLI server made for tests: the same wire, and nothing happens before it is told to.

In the test's own process, the test is the model: it decides when and in which order sessions
start, creations are answered, pieces of text, tool calls, errors and ends of turns come.

    server = FakeCliServer()
    async with server.connected() as transport:
        router = await MessageRouter.open(transport)
        creations = server.hold("session.create")
        ...                                   # the client creates two sessions
        first, second = await creations.take(2)
        second.proceed()                      # and the second is answered first

As a process, `python -m bullpen.testing.cli_server --port 0 --script "stream 3"` does what its
script says; see `script`. `FakeSession` is one session, `Asked` one request of the client's.
"""

from bullpen.testing.cli_server.script import Script, ScriptError, parse_script
from bullpen.testing.cli_server.server import Asked, FakeCliServer, Gate
from bullpen.testing.cli_server.session import FakeSession

__all__ = [
    "Asked",
    "FakeCliServer",
    "FakeSession",
    "Gate",
    "Script",
    "ScriptError",
    "parse_script",
]
