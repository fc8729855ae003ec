"""The Gemini API: `POST …/models/NAME:generateContent` and its siblings. Spoken by Gemini CLI."""

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
    strings,
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

__all__ = ["Gemini"]

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Gemini:
    """Reads and writes the Gemini API."""

    name = "gemini"

    def read(self, incoming: Incoming) -> Conversation:
        """Return what a request says. Its path tells the model and whether to stream."""
        body = incoming.body
        model, _, method = incoming.path.rpartition("/")[2].partition(":")
        history = [_entry(content) for content in objects(body.get("contents"))]
        return Conversation(
            model,
            *locate(history, incoming.user_agent),
            tools=tuple(
                Tool(str(function.get("name")), _parameters(function))
                for offered in objects(body.get("tools"))
                for function in objects(offered.get("functionDeclarations"))
            ),
            is_streaming=method.startswith("stream"),
            answer_schema=_answer_schema(object_of(body.get("generationConfig"))),
        )

    def frames(
        self, steps: Sequence[Fitted], conversation: Conversation, mint: Mint
    ) -> Iterator[bytes | Control]:
        identity = mint("resp")

        def chunk(part: Json) -> bytes:
            return _frame(_answer([part], conversation, identity))

        for step in steps:
            match step:
                case Say():
                    yield from paced(step, lambda text: chunk({"text": text}))
                case FailStream(kind):
                    yield _frame(_error(503, "scripted stream error", kind))
                    return
                case Think() | CallTool() | CallFreeform():
                    yield chunk(_part(step, mint))
                case _:
                    yield step
        last = _answer([{"text": ""}], conversation, identity)
        yield _frame(_finished(last, steps))

    def document(self, steps: Sequence[Fitted], conversation: Conversation, mint: Mint) -> Json:
        parts = [
            _part(step, mint)
            for step in steps
            if isinstance(step, Say | Think | CallTool | CallFreeform)
        ]
        answer = _answer(parts or [{"text": ""}], conversation, mint("resp"))
        return _finished(answer, steps)

    def error(self, status: int, message: str, kind: str = "") -> Json:
        return _error(status, message, kind)


def _entry(content: Json) -> Entry:
    if content.get("role") == "model":
        return Entry(is_model=True)
    parts = objects(content.get("parts"))
    results = [
        "\n".join(strings(object_of(part["functionResponse"]).get("response")))
        for part in parts
        if "functionResponse" in part
    ]
    return Entry(is_model=False, texts=texts_of(parts), results=tuple(results))


def _parameters(function: Json) -> Json:
    return object_of(function.get("parametersJsonSchema")) or object_of(function.get("parameters"))


def _answer_schema(settings: Json) -> Json | None:
    for name in ("responseJsonSchema", "responseSchema"):
        if isinstance(schema := settings.get(name), dict):
            return schema
    return {} if settings.get("responseMimeType") == "application/json" else None


def _part(step: Say | Think | CallTool | CallFreeform, mint: Mint) -> Json:
    match step:
        case Say(text):
            return {"text": text}
        case Think(text):
            return {"text": text, "thought": True}
        case CallTool(_, arguments):
            call = {"id": mint("call"), "name": flat_name(step), "args": dict(arguments)}
            return {"functionCall": call}
        case CallFreeform(name, text):  # there are no free-text tools here
            return {"functionCall": {"id": mint("call"), "name": name, "args": {"input": text}}}


def _answer(parts: list[Json], conversation: Conversation, identity: str) -> Json:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
    return {
        "candidates": [candidate],
        "modelVersion": conversation.model,
        "responseId": identity,
    }


def _finished(answer: Json, steps: Sequence[Fitted]) -> Json:
    tokens = output_tokens(steps)
    usage = {
        "promptTokenCount": INPUT_TOKENS,
        "candidatesTokenCount": tokens,
        "totalTokenCount": INPUT_TOKENS + tokens,
    }
    candidate = answer["candidates"][0] | {"finishReason": "STOP"}
    return answer | {"candidates": [candidate], "usageMetadata": usage}


def _error(status: int, message: str, kind: str) -> Json:
    name = kind or _STATUSES.get(status, "UNKNOWN")
    return {"error": {"code": status, "message": message, "status": name}}


def _frame(data: Json) -> bytes:
    return sse(data, end="\r\n")
