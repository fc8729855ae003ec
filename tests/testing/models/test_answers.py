"""In every API, streamed or not, a program must be able to read what the script says."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bullpen.testing.models import (
    CallFreeform,
    CallTool,
    Fail,
    FailStream,
    ModelServer,
    Outcome,
    Say,
    SayResults,
    Shell,
    Sleep,
    Stream,
    Think,
    Turn,
    Wait,
)
from tests.testing.models.clients import (
    CLIENTS,
    AnthropicClient,
    ChatClient,
    Client,
    GeminiClient,
    Json,
    ResponsesClient,
    Told,
    ask,
    begin,
    connected,
    events,
    post,
)

every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
streaming_or_not = pytest.mark.parametrize("is_streaming", [True, False], ids=["stream", "whole"])


@every_client
@streaming_or_not
def test_an_unscripted_prompt_is_echoed(client: Client, is_streaming: bool) -> None:
    with ModelServer() as server:
        answer = ask(server, client, "hello there", is_streaming=is_streaming)
    assert answer.text == "Echo: hello there"
    assert answer.is_complete


@every_client
@streaming_or_not
def test_a_turn_thinks_speaks_and_calls_tools(client: Client, is_streaming: bool) -> None:
    with ModelServer() as server:
        server.script(
            "go",
            Turn(
                Think("hm, well"),
                Say("I will.\nNow."),
                CallTool("Read", {"path": "a b", "lines": [1, 2]}),
                Shell("ls"),
            ),
        )
        answer = ask(server, client, "go", tools=["Bash"], is_streaming=is_streaming)
    assert answer.thoughts == ["hm, well"]
    assert answer.text == "I will.\nNow."
    assert [(call.name, call.arguments) for call in answer.calls] == [
        ("Read", {"path": "a b", "lines": [1, 2]}),
        ("Bash", {"command": "ls"}),
    ]
    assert answer.calls[0].id != answer.calls[1].id
    assert answer.is_complete


@every_client
@streaming_or_not
def test_the_script_in_a_prompt_goes_on_when_the_tools_have_answered(
    client: Client, is_streaming: bool
) -> None:
    prompt = "please <<bash ls ;; results ;; say never>>"
    with ModelServer() as server:
        first = ask(server, client, prompt, tools=["bash"], is_streaming=is_streaming)
        (call,) = first.calls
        history = [Told(prompt), Told(call=call, result="a.txt\nb.txt")]
        second = ask(server, client, history, tools=["bash"], is_streaming=is_streaming)
    assert second.text == "a.txt\nb.txt"
    assert second.calls == []


@every_client
def test_a_new_prompt_starts_its_own_script(client: Client) -> None:
    with ModelServer() as server:
        (call,) = ask(server, client, "<<bash ls ;; say one>>").calls
        history = [Told("<<bash ls ;; say one>>"), Told(call=call, result="x"), Told("<<say two>>")]
        assert ask(server, client, history).text == "two"


@every_client
@streaming_or_not
def test_an_error_has_the_status_and_the_words_of_the_script(
    client: Client, is_streaming: bool
) -> None:
    with ModelServer() as server, connected(server) as connection:
        server.script("go", Turn(Sleep(0), Fail(429, "slow down")))
        response = begin(connection, client, "go", is_streaming=is_streaming)
        assert response.status == 429
        assert client.read_error(json.loads(response.read())) == "slow down"
        (request,) = server.requests
        assert request.outcome is Outcome.FAILED
        # the connection is as good as before
        assert begin(connection, client, "<<err 500>>").status == 500


@every_client
def test_an_error_can_come_in_the_middle_of_the_stream(client: Client) -> None:
    with ModelServer() as server:
        server.script("go", Turn(Say("so far"), FailStream("strange_error")))
        answer = ask(server, client, "go")
        usual = ask(server, client, "<<sseerr>>")
        assert {request.outcome for request in server.requests} == {Outcome.FAILED}
    assert answer.text == "so far"
    assert answer.error == "strange_error"
    assert not answer.is_complete
    assert usual.error
    assert not usual.is_complete


@every_client
def test_an_answer_in_one_piece_cannot_break_off_so_it_fails(client: Client) -> None:
    with ModelServer() as server, connected(server) as connection:
        server.script("go", Turn(Say("so far"), FailStream()))
        assert begin(connection, client, "go", is_streaming=False).status == 500


@every_client
def test_a_stream_comes_word_by_word(client: Client) -> None:
    words = {"word0", "word1", "word2"}
    with ModelServer() as server, connected(server) as connection:
        server.script("go", Turn(Stream(3, 0.001)))
        told = [json.dumps(event) for event in events(begin(connection, client, "go"))]
        assert ask(server, client, "go").text == "word0 word1 word2"
    alone = [{word for word in words if word in event} for event in told]
    assert all({word} in alone for word in words)


@every_client
def test_a_text_said_slowly_comes_word_by_word_however_long(client: Client) -> None:
    text = " ".join(f"<{number}>" for number in range(60))
    with ModelServer() as server, connected(server) as connection:
        server.script("go", Say(text, 0.0001))
        told = [json.dumps(event) for event in events(begin(connection, client, "go"))]
    assert sum(event.count("<") == 1 for event in told) >= 60


@every_client
def test_the_first_word_of_a_slow_text_comes_at_once(client: Client) -> None:
    with ModelServer() as server, connected(server) as connection:
        server.script("go", Say("first second", 3600))
        stream = events(begin(connection, client, "go"))
        assert any("first" in json.dumps(event) for event in stream)


@every_client
def test_a_long_text_said_at_once_is_a_short_stream(client: Client) -> None:
    text = " ".join(map(str, range(5000)))
    with ModelServer() as server, connected(server) as connection:
        server.script("go", Say(text))
        count = sum(1 for _ in events(begin(connection, client, "go")))
        assert count < 100
        assert ask(server, client, "go").text == text


@every_client
@streaming_or_not
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(codec=None, categories=None), max_size=40))
def test_any_text_arrives_as_it_was_said(client: Client, is_streaming: bool, text: str) -> None:
    with ModelServer() as server:
        server.script("go", Say(text))
        assert ask(server, client, "go", is_streaming=is_streaming).text == text


@every_client
@streaming_or_not
def test_an_empty_turn_is_an_empty_answer(client: Client, is_streaming: bool) -> None:
    with ModelServer() as server:
        server.script("go", Turn())
        answer = ask(server, client, "go", is_streaming=is_streaming)
    assert answer.text == ""
    assert answer.calls == []
    assert answer.is_complete


@streaming_or_not
def test_codex_is_told_of_namespaces_and_free_text(is_streaming: bool) -> None:
    script = "tool mcp__relay::send {} | custom apply_patch *** Begin Patch\\n*** End Patch"
    with ModelServer() as server:
        server.script("go", script)
        answer = ask(server, ResponsesClient(), "go", is_streaming=is_streaming)
    message, patch = answer.calls
    assert (message.namespace, message.name) == ("mcp__relay", "send")
    assert (patch.name, patch.text) == ("apply_patch", "*** Begin Patch\n*** End Patch")


@pytest.mark.parametrize("client", [AnthropicClient(), ChatClient(), GeminiClient()])
@streaming_or_not
def test_where_there_are_no_namespaces_the_name_is_joined(
    client: Client, is_streaming: bool
) -> None:
    with ModelServer() as server:
        server.script("go", CallTool("send", namespace="mcp__relay"))
        (call,) = ask(server, client, "go", is_streaming=is_streaming).calls
    assert call.name == "mcp__relay__send"


@pytest.mark.parametrize("client", [AnthropicClient(), GeminiClient()])
@streaming_or_not
def test_where_there_is_no_free_text_it_is_an_argument(client: Client, is_streaming: bool) -> None:
    with ModelServer() as server:
        server.script("go", CallFreeform("apply_patch", "***"))
        (call,) = ask(server, client, "go", is_streaming=is_streaming).calls
    assert (call.name, call.arguments) == ("apply_patch", {"input": "***"})


@streaming_or_not
def test_chat_completions_have_free_text_tools_too(is_streaming: bool) -> None:
    client = ChatClient()
    with ModelServer() as server, connected(server) as connection:
        server.script("go", CallFreeform("apply_patch", "***"))
        response = begin(connection, client, "go", is_streaming=is_streaming)
        text = response.read().decode()
    assert '"type": "custom"' in text
    assert '"input": "***"' in text


SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 8},
        "score": {"type": "INTEGER", "minimum": 5},
        "speaker": {"type": "string", "enum": ["model", "user"]},
        "flag": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "number"}, "minItems": 2},
        "either": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "several": {"type": ["string", "null"]},
        "fixed": {"const": 7},
    },
}
ANSWER = {
    "title": "Scripted",
    "score": 5,
    "speaker": "user",
    "flag": False,
    "list": [1, 1],
    "either": None,
    "several": "scripted",
    "fixed": 7,
}
WANTED: dict[str, Json] = {
    "anthropic": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "openai-responses": {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "openai-chat": {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
    "gemini": {"generationConfig": {"responseJsonSchema": SCHEMA}},
}


@every_client
@streaming_or_not
def test_a_side_request_is_answered_in_the_form_it_wants(
    client: Client, is_streaming: bool
) -> None:
    prompt = "<<err 500>>"  # a title is asked for by quoting the prompt
    body = client.body([Told(prompt)], [], is_streaming) | WANTED[client.name]
    with ModelServer() as server, connected(server) as connection:
        server.script(prompt, Fail(503))
        response = post(connection, client.target(is_streaming), body)
        assert response.status == 200
        if is_streaming:
            answer = client.read_events(events(response))
        else:
            answer = client.read_document(json.loads(response.read()))
        (request,) = server.requests
    assert json.loads(answer.text) == ANSWER
    assert not request.is_prompt


@every_client
def test_a_side_request_can_be_scripted_by_who_insists(client: Client) -> None:
    body = client.body([Told("go")], [], False) | WANTED[client.name]
    with ModelServer() as server, connected(server) as connection:
        server.script("go", Fail(503), side_requests=True)
        assert post(connection, client.target(False), body).status == 503
        assert ask(server, client, "go").text == "Echo: go"


@every_client
def test_an_agent_that_wants_its_answer_in_a_form_is_scripted_like_any(client: Client) -> None:
    body = client.body([Told('<<say {"x": 1}>>')], ["bash"], False) | WANTED[client.name]
    with ModelServer() as server, connected(server) as connection:
        response = post(connection, client.target(False), body)
        assert client.read_document(json.loads(response.read())).text == '{"x": 1}'
        body = client.body([Told("hello")], ["bash"], False) | WANTED[client.name]
        response = post(connection, client.target(False), body)
        assert json.loads(client.read_document(json.loads(response.read())).text) == ANSWER


def test_opencode_gets_a_title() -> None:
    client = ChatClient()
    history = [Told("Generate a title for this conversation:\n"), Told("<<err 500>>")]
    with ModelServer() as server:
        assert ask(server, client, history).text == "Scripted title"


@every_client
def test_a_pause_or_gate_before_the_headers_delays_them(client: Client) -> None:
    with ModelServer() as server, connected(server) as connection:
        server.script("go", Turn(Say("late"), Sleep(0.001, before_headers=True), Wait("g", True)))
        history = [Told("go")]
        connection.request(
            "POST", client.target(True), json.dumps(client.body(history, [], True)).encode()
        )
        held = server.wait_for_request(lambda request: request.gate == "g")
        assert held.outcome is Outcome.PENDING
        server.release("g")
        assert client.read_events(events(connection.getresponse())).text == "late"


@every_client
def test_results_are_said_even_if_there_are_none(client: Client) -> None:
    with ModelServer() as server:
        server.script("go", SayResults())
        assert ask(server, client, "go").text == "no results"
