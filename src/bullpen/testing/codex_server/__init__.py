"""A Codex made for tests: an app server on stdio that says what a script tells it.

`FakeCodex` puts an executable `codex` into a directory, which can be first on the PATH. Whatever is
started from it does what the script says so far, and notes what it is told:

    codex = await FakeCodex.install(directory)
    await codex.tell('thread {"id": "t1", "cwd": "/p", "status": {"type": "idle"}}')
    ...                                  # something starts `codex app-server` and lists threads
    await codex.tell('send {"method": "turn/started", "params": {…}}')
    await codex.wake()                   # it is sent now, not before the next answer
    assert await codex.methods() == ["initialize", "initialized", "thread/list"]

See `server` for the words of a script. The server that a terminal and others share is
`shared.SharedCodex`.
"""

from bullpen.testing.codex_server.fake import FakeCodex
from bullpen.testing.codex_server.server import CodexScriptError, CodexServer

__all__ = ["CodexScriptError", "CodexServer", "FakeCodex"]
