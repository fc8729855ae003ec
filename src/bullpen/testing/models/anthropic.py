"""The Anthropic Messages API: `POST /v1/messages`. Spoken by Claude Code; Copilot can."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

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
    INPUT_TOKENS,
    Mint,
    flat_name,
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

__all__ = ["Anthropic"]

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_SIGNATURE = "c2NyaXB0ZWQ="  # programs hand a thought's signature back unread


class Anthropic:
    """Reads and writes the Messages API."""

    name = "anthropic"

    def read(self, incoming: Incoming) -> Conversation:
        body = incoming.body
        history = [
            entry for message in objects(body.get("messages")) for entry in _entries(message)
        ]
        return Conversation(
            str(body.get("model", "")),
            *locate(history, incoming.user_agent),
            tools=tuple(
                Tool(str(tool.get("name")), object_of(tool.get("input_schema")))
                for tool in objects(body.get("tools"))
            ),
            is_streaming=body.get("stream") is True,
            answer_schema=_answer_schema(body),
        )

    def frames(
        self, steps: Sequence[Fitted], conversation: Conversation, mint: Mint
    ) -> Iterator[bytes | Control]:
        yield _event("message_start", message=_message(conversation, mint))
        index = 0
        for step in steps:
            match step:
                case Say():
                    yield _start(index, {"type": "text", "text": ""})
                    yield from paced(step, partial(_delta, index, "text_delta", "text"))
                case Think(text):
                    yield _start(index, {"type": "thinking", "thinking": "", "signature": ""})
                    yield _delta(index, "thinking_delta", "thinking", text)
                    yield _delta(index, "signature_delta", "signature", _SIGNATURE)
                case CallTool() | CallFreeform():
                    block = _tool_use(step, mint)
                    yield _start(index, block | {"input": {}})
                    arguments = json.dumps(block["input"])
                    yield _delta(index, "input_json_delta", "partial_json", arguments)
                case FailStream(kind):
                    yield _event("error", error=_error(kind or "overloaded_error"))
                    return
                case _:
                    yield step
                    continue
            yield _event("content_block_stop", index=index)
            index += 1
        delta = {"stop_reason": _stop_reason(steps), "stop_sequence": None}
        usage = {"output_tokens": output_tokens(steps)}
        yield _event("message_delta", delta=delta, usage=usage)
        yield _event("message_stop")

    def document(self, steps: Sequence[Fitted], conversation: Conversation, mint: Mint) -> Json:
        message = _message(conversation, mint)
        for step in steps:
            match step:
                case Say(text):
                    message["content"].append({"type": "text", "text": text})
                case Think(text):
                    thought = {"type": "thinking", "thinking": text, "signature": _SIGNATURE}
                    message["content"].append(thought)
                case CallTool() | CallFreeform():
                    message["content"].append(_tool_use(step, mint))
        message["stop_reason"] = _stop_reason(steps)
        message["usage"]["output_tokens"] = output_tokens(steps)
        return message

    def error(self, status: int, message: str, kind: str = "") -> Json:
        error = _error(kind or _ERRORS.get(status, "api_error"), message)
        return {"type": "error", "error": error}


def _entries(message: Json) -> Iterator[Entry]:
    role = message.get("role")
    content = message.get("content")
    if role == "assistant":
        yield Entry(is_model=True)
    elif role == "user":  # Claude Code also puts "system" messages between the others
        results = [
            "\n".join(texts_of(block.get("content")))
            for block in objects(content)
            if block.get("type") == "tool_result"
        ]
        yield Entry(is_model=False, texts=texts_of(content), results=tuple(results))


def _answer_schema(body: Json) -> Json | None:
    wanted = object_of(object_of(body.get("output_config")).get("format"))
    wanted = wanted or object_of(body.get("output_format"))
    return object_of(wanted.get("schema")) if wanted.get("type") == "json_schema" else None


def _message(conversation: Conversation, mint: Mint) -> Json:
    return {
        "id": mint("msg"),
        "type": "message",
        "role": "assistant",
        "model": conversation.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": INPUT_TOKENS,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 1,
        },
    }


def _tool_use(step: CallTool | CallFreeform, mint: Mint) -> Json:
    # there are no free-text tools here; one that is called so gets its text as an argument
    arguments = dict(step.arguments) if isinstance(step, CallTool) else {"input": step.text}
    return {"type": "tool_use", "id": mint("toolu"), "name": flat_name(step), "input": arguments}


def _stop_reason(steps: Sequence[Fitted]) -> str:
    calls = any(isinstance(step, CallTool | CallFreeform) for step in steps)
    return "tool_use" if calls else "end_turn"


def _error(kind: str, message: str = "scripted stream error") -> Json:
    return {"type": kind, "message": message}


def _start(index: int, block: Json) -> bytes:
    return _event("content_block_start", index=index, content_block=block)


def _delta(index: int, kind: str, field: str, text: str) -> bytes:
    return _event("content_block_delta", index=index, delta={"type": kind, field: text})


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind} | fields, event=kind)
