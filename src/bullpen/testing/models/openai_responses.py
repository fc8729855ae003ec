"""The OpenAI Responses API: `POST …/responses`. Spoken by Codex; Copilot can."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeAlias

from bullpen.testing.models.answer import Fitted
from bullpen.testing.models.conversation import (
    Conversation,
    Entry,
    Incoming,
    Json,
    Tool,
    locate,
    object_of,
    objects,
    texts_of,
)
from bullpen.testing.models.dialect import (
    CREATED,
    INPUT_TOKENS,
    Mint,
    openai_error,
    output_tokens,
    paced,
    sse,
)
from bullpen.testing.models.script import (
    CallFreeform,
    CallTool,
    Control,
    FailStream,
    Say,
    Think,
)

__all__ = ["OpenAIResponses"]

_Emit: TypeAlias = Callable[..., bytes]
_Frames: TypeAlias = Iterator[bytes | Control]


class OpenAIResponses:
    """Reads and writes the Responses API."""

    name = "openai-responses"

    def read(self, incoming: Incoming) -> Conversation:
        body = incoming.body
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else objects(given)
        history = [entry for item in items for entry in _entries(item)]
        return Conversation(
            str(body.get("model", "")),
            *locate(history, incoming.user_agent),
            tools=tuple(tool for offered in objects(body.get("tools")) for tool in _tools(offered)),
            is_streaming=body.get("stream") is True,
            answer_schema=_answer_schema(body),
        )

    def frames(self, steps: Sequence[Fitted], conversation: Conversation, mint: Mint) -> _Frames:
        emit = partial(_event, count())
        response = _response(conversation, mint)
        yield emit("response.created", response=response)
        yield emit("response.in_progress", response=response)
        output: list[Json] = []
        for step in steps:
            if isinstance(step, FailStream):
                error = {"code": step.kind or "server_error", "message": "scripted stream error"}
                failed = response | {"status": "failed", "error": error}
                yield emit("response.failed", response=failed)
                return
            if not isinstance(step, Say | Think | CallTool | CallFreeform):
                yield step
                continue
            item = _item(step, mint)
            here = partial(emit, output_index=len(output))
            yield here("response.output_item.added", item=item | _UNFINISHED[item["type"]])
            yield from _parts(step, item, partial(here, item_id=item["id"]))
            yield here("response.output_item.done", item=item)
            output.append(item)
        yield emit("response.completed", response=_completed(response, output, steps))

    def document(self, steps: Sequence[Fitted], conversation: Conversation, mint: Mint) -> Json:
        output = [
            _item(step, mint)
            for step in steps
            if isinstance(step, Say | Think | CallTool | CallFreeform)
        ]
        return _completed(_response(conversation, mint), output, steps)

    def error(self, status: int, message: str, kind: str = "") -> Json:
        return openai_error(status, message, kind)


def _entries(item: Json) -> Iterator[Entry]:
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        if role == "user":
            yield Entry(is_model=False, texts=texts_of(item.get("content")))
        elif role == "assistant":
            yield Entry(is_model=True)
    elif str(kind).endswith("_output"):
        output = item.get("output")
        yield Entry(is_model=False, results=("\n".join(texts_of(output)),))
    elif str(kind).endswith("_call"):  # a function, a custom tool, a search; thoughts come before
        yield Entry(is_model=True)


def _tools(offered: Json, namespace: str | None = None) -> Iterator[Tool]:
    name = offered.get("name") or offered.get("type")  # built-in tools have only a type
    if offered.get("type") == "namespace":
        for inner in objects(offered.get("tools")):
            yield from _tools(inner, str(name))
    else:
        yield Tool(str(name), object_of(offered.get("parameters")), namespace)


def _answer_schema(body: Json) -> Json | None:
    wanted = object_of(object_of(body.get("text")).get("format"))
    if wanted.get("type") == "json_schema":
        return object_of(wanted.get("schema"))
    return {} if wanted.get("type") == "json_object" else None


def _response(conversation: Conversation, mint: Mint) -> Json:
    return {
        "id": mint("resp"),
        "object": "response",
        "created_at": CREATED,
        "status": "in_progress",
        "model": conversation.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _completed(response: Json, output: list[Json], steps: Sequence[Fitted]) -> Json:
    tokens = output_tokens(steps)
    usage = {
        "input_tokens": INPUT_TOKENS,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": INPUT_TOKENS + tokens,
    }
    return response | {"status": "completed", "output": output, "usage": usage}


def _item(step: Say | Think | CallTool | CallFreeform, mint: Mint) -> Json:
    """Return what a step adds to the output, in its finished form."""
    match step:
        case Say(text):
            return {
                "type": "message",
                "id": mint("msg"),
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            }
        case Think(text):
            summary = [{"type": "summary_text", "text": text}]
            return {"type": "reasoning", "id": mint("rs"), "summary": summary}
        case CallFreeform(name, text):
            return {
                "type": "custom_tool_call",
                "id": mint("ctc"),
                "call_id": mint("call"),
                "name": name,
                "input": text,
                "status": "completed",
            }
        case CallTool(name, arguments, namespace):
            return {
                "type": "function_call",
                "id": mint("fc"),
                "call_id": mint("call"),
                "name": name,
                "arguments": json.dumps(dict(arguments)),
                "status": "completed",
            } | ({} if namespace is None else {"namespace": namespace})


# how an item looks when it has only just begun
_UNFINISHED: dict[str, Json] = {
    "message": {"status": "in_progress", "content": []},
    "reasoning": {"summary": []},
    "custom_tool_call": {"status": "in_progress", "input": ""},
    "function_call": {"status": "in_progress", "arguments": ""},
}


def _parts(step: Fitted, item: Json, emit: _Emit) -> _Frames:
    """Yield what comes between an item's beginning and its end."""
    match step:
        case Say(text):
            part = item["content"][0]
            emit = partial(emit, content_index=0)
            yield emit("response.content_part.added", part=part | {"text": ""})
            yield from paced(step, lambda piece: emit("response.output_text.delta", delta=piece))
            yield emit("response.output_text.done", text=text)
            yield emit("response.content_part.done", part=part)
        case Think(text):
            part = item["summary"][0]
            emit = partial(emit, summary_index=0)
            yield emit("response.reasoning_summary_part.added", part=part | {"text": ""})
            yield emit("response.reasoning_summary_text.delta", delta=text)
            yield emit("response.reasoning_summary_text.done", text=text)
            yield emit("response.reasoning_summary_part.done", part=part)
        case CallFreeform(_, text):
            yield emit("response.custom_tool_call_input.delta", delta=text)
            yield emit("response.custom_tool_call_input.done", input=text)
        case CallTool():
            arguments = item["arguments"]
            yield emit("response.function_call_arguments.delta", delta=arguments)
            yield emit("response.function_call_arguments.done", arguments=arguments)


def _event(numbers: "count[int]", kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, "sequence_number": next(numbers)} | fields, event=kind)
