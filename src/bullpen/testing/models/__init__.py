"""A fake model server: real agent programs talk to it as to their model API, offline.

`ModelServer` speaks the Anthropic, OpenAI (Responses and chat completions) and Gemini APIs on one
loopback port. A test tells it what to answer from Python (`server.script`), or the prompt itself
carries the script (`<<bash ls ;; say done>>`, see `script`). It says text, thinks, calls tools,
is slow, fails, hangs and drops connections on demand; gates (`Wait`, `server.release`) and
`server.wait_for_request` keep tests free of sleeps. It is not a model: what nobody scripted it
echoes. `python -m bullpen.testing.models` runs it by hand.
"""

from bullpen.testing.models.conversation import Conversation, Tool
from bullpen.testing.models.errors import ModelServerError, RequestNotSeen, ScriptError
from bullpen.testing.models.record import Outcome, Request
from bullpen.testing.models.script import (
    CallFreeform,
    CallTool,
    Cut,
    Fail,
    FailStream,
    Hang,
    Say,
    SayResults,
    Shell,
    Sleep,
    Step,
    Stream,
    Think,
    Turn,
    Wait,
    find_script,
    format_script,
    parse_turns,
)
from bullpen.testing.models.server import ModelServer

__all__ = [
    "CallFreeform",
    "CallTool",
    "Conversation",
    "Cut",
    "Fail",
    "FailStream",
    "Hang",
    "ModelServer",
    "ModelServerError",
    "Outcome",
    "Request",
    "RequestNotSeen",
    "Say",
    "SayResults",
    "ScriptError",
    "Shell",
    "Sleep",
    "Step",
    "Stream",
    "Think",
    "Tool",
    "Turn",
    "Wait",
    "find_script",
    "format_script",
    "parse_turns",
]
