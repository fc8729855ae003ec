"""What to answer when no test has said, and how a turn fits the program that asked.

A script says "run a shell command"; one program calls that `Bash`, another `exec_command` with
its own parameter names. `fit` turns a script's steps into those the wire formats know. `improvise`
answers requests nobody scripted: titles and other side requests with something of the wanted form,
prompts with the script they carry, everything else with an echo. This module is pure.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from bullpen.testing.models.conversation import Conversation, Json, Tool
from bullpen.testing.models.script import (
    CallFreeform,
    CallTool,
    Control,
    Fail,
    FailStream,
    Say,
    SayResults,
    Shell,
    Sleep,
    Stream,
    Think,
    Turn,
    Wait,
    find_script,
    turn_at,
)

__all__ = ["Fitted", "fit", "improvise", "in_pieces", "schema_value"]

Fitted: TypeAlias = Say | Think | CallTool | CallFreeform | FailStream | Control
"""The steps a wire format has to know."""

TITLE = "Scripted title"
LONGEST_ECHO = 2000
MOST_PIECES = 50  # of a text said at once: enough to be a stream, whatever its length
DEEPEST_SCHEMA = 20


def improvise(conversation: Conversation) -> Turn:
    """Return the turn to take when no rule of a test applies."""
    if conversation.is_side_request:
        return Turn(Say(_answer_in_form(conversation) or TITLE))
    script = find_script(conversation.prompt)
    if script is not None:
        return turn_at(script, conversation.turns_since_prompt)
    echo = f"Echo: {conversation.prompt[-LONGEST_ECHO:]}"
    return Turn(Say(_answer_in_form(conversation) or echo))


def _answer_in_form(conversation: Conversation) -> str:
    if conversation.answer_schema is None:
        return ""
    return json.dumps(schema_value(conversation.answer_schema))


def fit(turn: Turn, conversation: Conversation) -> tuple[Fitted, ...]:
    """Return the steps of a turn as the program that asked can be told them.

    What belongs before the response is left out: HTTP errors and pauses before the headers.
    """
    return tuple(_fit_steps(turn, conversation))


def _fit_steps(turn: Turn, conversation: Conversation) -> Iterable[Fitted]:
    for step in turn.steps:
        match step:
            case Stream(count, delay_seconds):
                yield Say(" ".join(f"word{number}" for number in range(count)), delay_seconds)
            case SayResults():
                yield Say("\n".join(conversation.tool_results) or "no results")
            case Shell():
                yield _shell_call(step, conversation.shell)
            case Sleep(before_headers=True) | Wait(before_headers=True) | Fail():
                pass
            case _:
                yield step


# -- the shell, by its many names

_SANDBOXED = frozenset({"exec_command", "shell_command", "shell"})  # those of Codex


def _shell_call(step: Shell, tool: Tool | None) -> CallTool:
    if tool is None:  # the program will say that there is no such tool, as to any wrong name
        return CallTool("shell", {"command": step.command})
    arguments: Json
    if tool.name == "exec_command":
        arguments = {"cmd": step.command}
    elif _takes_words(tool):
        arguments = {"command": ["bash", "-lc", step.command]}
    else:
        arguments = {"command": step.command}
    if "description" in tool.properties:
        arguments["description"] = "Run a scripted command"
    if step.escalated and tool.name in _SANDBOXED:
        arguments["sandbox_permissions"] = "require_escalated"
        arguments["justification"] = "the script asks to leave the sandbox"
    return CallTool(tool.name, arguments)


def _takes_words(tool: Tool) -> bool:
    command = tool.properties.get("command")
    return isinstance(command, dict) and command.get("type") == "array"


# -- text in pieces

_WORD = re.compile(r"\s*\S+|\s+$")


def in_pieces(say: Say) -> list[str]:
    """Return the pieces a text is streamed in. Joined, they are the text."""
    words = _WORD.findall(say.text)
    if say.delay_seconds or len(words) <= MOST_PIECES:
        return words
    size = -(-len(words) // MOST_PIECES)
    return ["".join(words[start : start + size]) for start in range(0, len(words), size)]


# -- JSON of a given form


def schema_value(schema: Any, name: str = "", depth: int = 0) -> Any:
    """Return a small value that satisfies a JSON schema, as far as agent programs use them."""
    if not isinstance(schema, dict) or depth > DEEPEST_SCHEMA:
        return None
    if "const" in schema:
        return schema["const"]
    if isinstance(choices := schema.get("enum"), list) and choices:
        # Gemini asks who speaks next; "model" would have it speak for ever
        return "user" if "user" in choices else choices[0]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(branches := schema.get(key), list) and branches:
            return schema_value(branches[0], name, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    match str(kind or "object").lower():
        case "object":
            properties = schema.get("properties")
            items = properties.items() if isinstance(properties, dict) else ()
            return {key: schema_value(value, key, depth + 1) for key, value in items}
        case "array":
            count = schema.get("minItems", 0)
            count = min(count, DEEPEST_SCHEMA) if isinstance(count, int) else 0
            return [schema_value(schema.get("items"), name, depth + 1) for _ in range(count)]
        case "string":
            text = TITLE if name == "title" else "scripted"
            limit = schema.get("maxLength")
            return text[:limit] if isinstance(limit, int) else text
        case "number" | "integer":
            least = schema.get("minimum")
            return max(least, 1) if isinstance(least, int | float) else 1
        case "boolean":
            return False
        case _:
            return None
