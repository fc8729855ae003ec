"""Small clients of the four model APIs, which piece an answer together as real programs do."""

import http.client
import json
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from bullpen.testing.models import ModelServer

Json = dict[str, Any]

TIMEOUT_SECONDS = 10


@dataclass
class Call:
    """A tool called by the model."""

    id: str
    name: str
    arguments: Json = field(default_factory=dict)
    text: str = ""  # instead of arguments, for a tool that takes free text
    namespace: str | None = None


@dataclass
class Answer:
    """What a client understood."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    error: str = ""
    is_complete: bool = False

    @property
    def text(self) -> str:
        return "".join(self.texts)


@dataclass(frozen=True)
class Told:
    """One entry of a history: a prompt, a call the model made, or the result of one."""

    prompt: str = ""
    call: Call | None = None
    result: str = ""


class Client(Protocol):
    """One model API, seen from the other side."""

    @property
    def name(self) -> str: ...

    def target(self, is_streaming: bool) -> str: ...

    def body(self, history: Sequence[Told], tools: Sequence[str], is_streaming: bool) -> Json: ...

    def read_events(self, events: Iterable[Json]) -> Answer: ...

    def read_document(self, document: Json) -> Answer: ...

    def read_error(self, document: Json) -> str: ...


class AnthropicClient:
    name = "anthropic"

    def target(self, is_streaming: bool) -> str:
        return "/v1/messages?beta=true"

    def body(self, history: Sequence[Told], tools: Sequence[str], is_streaming: bool) -> Json:
        messages: list[Json] = []
        for told in history:
            if told.prompt:
                messages.append({"role": "user", "content": told.prompt})
            elif told.call:
                use = {"id": told.call.id, "name": told.call.name, "input": told.call.arguments}
                result = {"tool_use_id": told.call.id, "content": told.result}
                messages.append({"role": "assistant", "content": [{"type": "tool_use"} | use]})
                messages.append({"role": "user", "content": [{"type": "tool_result"} | result]})
        offered = [{"name": name, "input_schema": {"type": "object"}} for name in tools]
        return {
            "model": "m",
            "max_tokens": 1,
            "messages": messages,
            "tools": offered,
            "stream": is_streaming,
        }

    def read_events(self, events: Iterable[Json]) -> Answer:
        answer = Answer()
        blocks: list[Json] = []
        for event in events:
            match event["type"]:
                case "content_block_start":
                    assert event["index"] == len(blocks)
                    blocks.append(dict(event["content_block"], json=""))
                case "content_block_delta":
                    block, delta = blocks[event["index"]], event["delta"]
                    match delta["type"]:
                        case "text_delta":
                            block["text"] += delta["text"]
                        case "thinking_delta":
                            block["thinking"] += delta["thinking"]
                        case "input_json_delta":
                            block["json"] += delta["partial_json"]
                case "content_block_stop":
                    if blocks[-1]["type"] == "tool_use":
                        blocks[-1]["input"] = json.loads(blocks[-1]["json"])
                case "error":
                    answer.error = event["error"]["type"]
                case "message_delta":
                    has_calls = any(block["type"] == "tool_use" for block in blocks)
                    expected = "tool_use" if has_calls else "end_turn"
                    assert event["delta"]["stop_reason"] == expected
                case "message_stop":
                    answer.is_complete = True
        self._add_blocks(answer, blocks)
        return answer

    def read_document(self, document: Json) -> Answer:
        answer = Answer(is_complete=document["stop_reason"] is not None)
        self._add_blocks(answer, document["content"])
        return answer

    def _add_blocks(self, answer: Answer, blocks: list[Json]) -> None:
        for block in blocks:
            match block["type"]:
                case "text":
                    answer.texts.append(block["text"])
                case "thinking":
                    answer.thoughts.append(block["thinking"])
                case "tool_use":
                    answer.calls.append(Call(block["id"], block["name"], block["input"]))

    def read_error(self, document: Json) -> str:
        assert document["type"] == "error"
        return str(document["error"]["message"])


class ResponsesClient:
    name = "openai-responses"

    def target(self, is_streaming: bool) -> str:
        return "/v1/responses"

    def body(self, history: Sequence[Told], tools: Sequence[str], is_streaming: bool) -> Json:
        items: list[Json] = []
        for told in history:
            if told.prompt:
                content = [{"type": "input_text", "text": told.prompt}]
                items.append({"type": "message", "role": "user", "content": content})
            elif told.call:
                call = {"call_id": told.call.id, "name": told.call.name, "arguments": "{}"}
                items.append({"type": "function_call"} | call)
                output = {"call_id": told.call.id, "output": told.result}
                items.append({"type": "function_call_output"} | output)
        offered = [{"type": "function", "name": name, "parameters": {}} for name in tools]
        return {"model": "m", "input": items, "tools": offered, "stream": is_streaming}

    def read_events(self, events: Iterable[Json]) -> Answer:
        deltas = Answer()
        answer = Answer()
        for number, event in enumerate(events):
            assert event["sequence_number"] == number
            match event["type"]:
                case "response.output_text.delta":
                    deltas.texts.append(event["delta"])
                case "response.output_item.done":
                    self._add_item(answer, event["item"])
                case "response.failed":
                    answer.error = event["response"]["error"]["code"]
                case "response.completed":
                    answer.is_complete = True
                    assert self.read_document(event["response"]) == answer
                    assert answer.text == deltas.text
        return answer if answer.is_complete else Answer(deltas.texts, error=answer.error)

    def read_document(self, document: Json) -> Answer:
        answer = Answer(is_complete=document["status"] == "completed")
        for item in document["output"]:
            self._add_item(answer, item)
        return answer

    def _add_item(self, answer: Answer, item: Json) -> None:
        match item["type"]:
            case "message":
                answer.texts.append(item["content"][0]["text"])
            case "reasoning":
                answer.thoughts.append(item["summary"][0]["text"])
            case "function_call":
                arguments = json.loads(item["arguments"])
                call = Call(item["call_id"], item["name"], arguments)
                call.namespace = item.get("namespace")
                answer.calls.append(call)
            case "custom_tool_call":
                answer.calls.append(Call(item["call_id"], item["name"], text=item["input"]))

    def read_error(self, document: Json) -> str:
        return str(document["error"]["message"])


class ChatClient:
    name = "openai-chat"

    def target(self, is_streaming: bool) -> str:
        return "/v1/chat/completions"

    def body(self, history: Sequence[Told], tools: Sequence[str], is_streaming: bool) -> Json:
        messages: list[Json] = [{"role": "system", "content": "You are a program."}]
        for told in history:
            if told.prompt:
                messages.append({"role": "user", "content": told.prompt})
            elif told.call:
                function = {"name": told.call.name, "arguments": "{}"}
                call = {"id": told.call.id, "type": "function", "function": function}
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
                answer = {"tool_call_id": told.call.id, "content": told.result}
                messages.append({"role": "tool"} | answer)
        offered = [{"type": "function", "function": {"name": name}} for name in tools]
        return {"model": "m", "messages": messages, "tools": offered, "stream": is_streaming}

    def read_events(self, events: Iterable[Json]) -> Answer:
        answer = Answer()
        calls: list[Json] = []
        for event in events:
            if "error" in event:
                answer.error = event["error"]["type"]
                continue
            for choice in event["choices"]:
                delta = choice["delta"]
                answer.texts += [delta["content"]] if delta.get("content") else []
                answer.thoughts += [delta[key] for key in ("reasoning_content",) if key in delta]
                for part in delta.get("tool_calls", []):
                    if part["index"] == len(calls):
                        calls.append(part)
                    else:
                        calls[part["index"]]["function"]["arguments"] += part["function"][
                            "arguments"
                        ]
                if choice["finish_reason"]:
                    answer.is_complete = True
                    assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
        self._add_calls(answer, calls)
        return answer

    def read_document(self, document: Json) -> Answer:
        (choice,) = document["choices"]
        message = choice["message"]
        answer = Answer(is_complete=choice["finish_reason"] is not None)
        answer.texts += [message["content"]] if message["content"] else []
        answer.thoughts += [message[key] for key in ("reasoning_content",) if key in message]
        self._add_calls(answer, message.get("tool_calls", []))
        return answer

    def _add_calls(self, answer: Answer, calls: list[Json]) -> None:
        for call in calls:
            function = call["function"]
            arguments = json.loads(function["arguments"])
            answer.calls.append(Call(call["id"], function["name"], arguments))

    def read_error(self, document: Json) -> str:
        return str(document["error"]["message"])


class GeminiClient:
    name = "gemini"

    def target(self, is_streaming: bool) -> str:
        method = "streamGenerateContent?alt=sse" if is_streaming else "generateContent"
        return f"/v1beta/models/m:{method}"

    def body(self, history: Sequence[Told], tools: Sequence[str], is_streaming: bool) -> Json:
        contents: list[Json] = []
        for told in history:
            if told.prompt:
                contents.append({"role": "user", "parts": [{"text": told.prompt}]})
            elif told.call:
                call = {"name": told.call.name, "args": told.call.arguments}
                contents.append({"role": "model", "parts": [{"functionCall": call}]})
                response = {"name": told.call.name, "response": {"output": told.result}}
                contents.append({"role": "user", "parts": [{"functionResponse": response}]})
        functions = [{"name": name} for name in tools]
        return {"contents": contents, "tools": [{"functionDeclarations": functions}]}

    def read_events(self, events: Iterable[Json]) -> Answer:
        answer = Answer()
        for event in events:
            if "error" in event:
                answer.error = event["error"]["status"]
            else:
                self._add_candidate(answer, event)
        return answer

    def read_document(self, document: Json) -> Answer:
        answer = Answer()
        self._add_candidate(answer, document)
        return answer

    def _add_candidate(self, answer: Answer, document: Json) -> None:
        (candidate,) = document["candidates"]
        for part in candidate["content"]["parts"]:
            if part.get("thought"):
                answer.thoughts.append(part["text"])
            elif part.get("text"):
                answer.texts.append(part["text"])
            elif "functionCall" in part:
                call = part["functionCall"]
                answer.calls.append(Call(call["id"], call["name"], call["args"]))
        if candidate.get("finishReason") == "STOP":
            answer.is_complete = True
            assert document["usageMetadata"]["totalTokenCount"]

    def read_error(self, document: Json) -> str:
        assert document["error"]["status"].isupper()
        return str(document["error"]["message"])


CLIENTS: list[Client] = [AnthropicClient(), ResponsesClient(), ChatClient(), GeminiClient()]


@contextmanager
def connected(server: ModelServer) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_SECONDS)
    try:
        yield connection
    finally:
        connection.close()


def raw_connection(server: ModelServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_SECONDS)


def post(
    connection: http.client.HTTPConnection, target: str, body: Json | bytes, **headers: str
) -> http.client.HTTPResponse:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", target, data, {"content-type": "application/json"} | named)
    return connection.getresponse()


def begin(
    connection: http.client.HTTPConnection,
    client: Client,
    prompt: str | Sequence[Told],
    *,
    tools: Sequence[str] = (),
    is_streaming: bool = True,
) -> http.client.HTTPResponse:
    """Ask, and return as soon as the response has begun."""
    history = [Told(prompt)] if isinstance(prompt, str) else prompt
    body = client.body(history, tools, is_streaming)
    return post(connection, client.target(is_streaming), body)


def ask(
    server: ModelServer,
    client: Client,
    prompt: str | Sequence[Told],
    *,
    tools: Sequence[str] = (),
    is_streaming: bool = True,
) -> Answer:
    """Ask, and return the whole answer."""
    with connected(server) as connection:
        response = begin(connection, client, prompt, tools=tools, is_streaming=is_streaming)
        assert response.status == 200, response.read()
        if is_streaming:
            return client.read_events(events(response))
        return client.read_document(json.loads(response.read()))


def events(response: http.client.HTTPResponse) -> Iterator[Json]:
    """Yield server-sent events as they come."""
    assert response.headers["content-type"].startswith("text/event-stream")
    name = ""
    for line in response:
        field_name, _, value = line.decode().strip().partition(": ")
        if field_name == "event":
            name = value
        elif field_name == "data" and value != "[DONE]":
            event = json.loads(value)
            assert name in ("", event.get("type"))
            yield event
