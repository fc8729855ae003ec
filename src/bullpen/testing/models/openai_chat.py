"""The OpenAI chat completions API: `POST …/chat/completions`. Spoken by Copilot and opencode."""

import json
from collections.abc import Iterator, Sequence

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
    flat_name,
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

__all__ = ["OpenAIChat"]

_TITLE_REQUEST = "Generate a title for this conversation"  # opencode's


class OpenAIChat:
    """Reads and writes chat completions."""

    name = "openai-chat"

    def read(self, incoming: Incoming) -> Conversation:
        body = incoming.body
        messages = objects(body.get("messages"))
        history = [entry for message in messages for entry in _entries(message)]
        return Conversation(
            str(body.get("model", "")),
            *locate(history, incoming.user_agent),
            tools=tuple(tool for offered in objects(body.get("tools")) for tool in _tools(offered)),
            is_streaming=body.get("stream") is True,
            answer_schema=_answer_schema(body),
            asks_for_title=not body.get("tools") and any(map(_asks_for_title, messages)),
        )

    def frames(
        self, steps: Sequence[Fitted], conversation: Conversation, mint: Mint
    ) -> Iterator[bytes | Control]:
        envelope = _envelope("chat.completion.chunk", conversation, mint)

        def chunk(delta: Json, finish_reason: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
            return sse(envelope | {"choices": [choice]})

        yield chunk({"role": "assistant", "content": ""})
        calls = 0
        for step in steps:
            match step:
                case Say():
                    yield from paced(step, lambda text: chunk({"content": text}))
                case Think(text):
                    yield chunk({"reasoning_content": text})
                case CallTool() | CallFreeform():
                    beginning, rest = _call_in_two(_call(step, mint))
                    yield chunk({"tool_calls": [{"index": calls} | beginning]})
                    yield chunk({"tool_calls": [{"index": calls} | rest]})
                    calls += 1
                case FailStream(kind):
                    yield sse(openai_error(500, "scripted stream error", kind))
                    return
                case _:
                    yield step
        yield chunk({}, _finish_reason(steps))
        # OpenAI sends it only to those who ask; nobody minds it, and some forget to ask
        yield sse(envelope | {"choices": [], "usage": _usage(steps)})
        yield sse("[DONE]")

    def document(self, steps: Sequence[Fitted], conversation: Conversation, mint: Mint) -> Json:
        texts = [step.text for step in steps if isinstance(step, Say)]
        thoughts = [step.text for step in steps if isinstance(step, Think)]
        calls = [_call(step, mint) for step in steps if isinstance(step, CallTool | CallFreeform)]
        message: Json = {"role": "assistant", "content": "".join(texts) if texts else None}
        if thoughts:
            message["reasoning_content"] = "".join(thoughts)
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": _finish_reason(steps)}
        envelope = _envelope("chat.completion", conversation, mint)
        return envelope | {"choices": [choice], "usage": _usage(steps)}

    def error(self, status: int, message: str, kind: str = "") -> Json:
        return openai_error(status, message, kind)


def _entries(message: Json) -> Iterator[Entry]:
    texts = texts_of(message.get("content"))
    match message.get("role"):
        case "user":
            yield Entry(is_model=False, texts=texts)
        case "assistant":
            yield Entry(is_model=True)
        case "tool":
            yield Entry(is_model=False, results=("\n".join(texts),))


def _asks_for_title(message: Json) -> bool:
    return any(text.startswith(_TITLE_REQUEST) for text in texts_of(message.get("content")))


def _tools(offered: Json) -> Iterator[Tool]:
    function = object_of(offered.get("function")) or object_of(offered.get("custom"))
    yield Tool(str(function.get("name")), object_of(function.get("parameters")))


def _answer_schema(body: Json) -> Json | None:
    wanted = object_of(body.get("response_format"))
    if wanted.get("type") == "json_schema":
        return object_of(object_of(wanted.get("json_schema")).get("schema"))
    return {} if wanted.get("type") == "json_object" else None


def _envelope(kind: str, conversation: Conversation, mint: Mint) -> Json:
    return {
        "id": mint("chatcmpl"),
        "object": kind,
        "created": CREATED,
        "model": conversation.model,
    }


def _call(step: CallTool | CallFreeform, mint: Mint) -> Json:
    identity = {"id": mint("call")}
    if isinstance(step, CallFreeform):
        return identity | {"type": "custom", "custom": {"name": step.name, "input": step.text}}
    arguments = json.dumps(dict(step.arguments))
    function = {"name": flat_name(step), "arguments": arguments}
    return identity | {"type": "function", "function": function}


def _call_in_two(call: Json) -> tuple[Json, Json]:
    """Split a call as it is streamed: first who is called, then with what."""
    kind = call["type"]
    field = "arguments" if kind == "function" else "input"
    beginning = call | {kind: call[kind] | {field: ""}}
    return beginning, {kind: {field: call[kind][field]}}


def _finish_reason(steps: Sequence[Fitted]) -> str:
    calls = any(isinstance(step, CallTool | CallFreeform) for step in steps)
    return "tool_calls" if calls else "stop"


def _usage(steps: Sequence[Fitted]) -> Json:
    tokens = output_tokens(steps)
    return {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": tokens,
        "total_tokens": INPUT_TOKENS + tokens,
    }
