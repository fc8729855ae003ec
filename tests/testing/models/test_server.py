"""A test holds the server in its hand: it sees what arrives, decides what follows, and ends it."""

import asyncio
import http.client
import json
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from bullpen.testing.models import (
    Cut,
    Fail,
    Hang,
    ModelServer,
    Outcome,
    Request,
    RequestNotSeen,
    Say,
    ScriptError,
    Shell,
    Sleep,
    Turn,
    Wait,
)
from tests.testing.models.clients import (
    CLIENTS,
    AnthropicClient,
    ChatClient,
    Client,
    Json,
    Told,
    ask,
    begin,
    connected,
    events,
    post,
    raw_connection,
)

every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
CLIENT = AnthropicClient()


def became(outcome: Outcome) -> Callable[[Request], bool]:
    return lambda request: request.outcome is outcome


# -- rules


@pytest.mark.parametrize(
    "match",
    ["the tests", re.compile(r"run .* tests$"), lambda request: request.dialect == "anthropic"],
    ids=["text", "pattern", "predicate"],
)
def test_a_rule_decides_without_touching_the_prompt(
    match: str | re.Pattern[str] | Callable[[Request], bool],
) -> None:
    with ModelServer() as server:
        server.script(match, Say("green"))
        assert ask(server, CLIENT, "run all the tests").text == "green"
        assert ask(server, ChatClient(), "something else").text == "Echo: something else"


def test_the_turns_of_a_rule_follow_each_other() -> None:
    with ModelServer() as server:
        server.script("go", Shell("ls"), "think hm | say two ;; say three")
        (call,) = ask(server, CLIENT, "go").calls
        history = [Told("go"), Told(call=call, result="x")]
        assert ask(server, CLIENT, history).text == "two"
        assert ask(server, CLIENT, [*history, Told(call=call, result="y")]).text == "three"
        history += [Told(call=call, result="y"), Told(call=call, result="z")]
        assert ask(server, CLIENT, history).text == "Done."


def test_the_newest_rule_wins_also_over_a_script_in_the_prompt() -> None:
    with ModelServer() as server:
        server.script("hi", Say("old"))
        server.script("hi", Say("new"))
        assert ask(server, CLIENT, "<<say hi>>").text == "new"


def test_a_rule_for_one_time_lets_a_program_recover() -> None:
    with ModelServer() as server, connected(server) as connection:
        server.script("hi", Fail(529), times=2)
        for _ in range(2):
            response = begin(connection, CLIENT, "hi")
            assert response.status == 529
            response.read()
        assert ask(server, CLIENT, "hi").text == "Echo: hi"


def test_a_rule_without_turns_is_refused() -> None:
    server = ModelServer()
    with pytest.raises(ScriptError, match="at least one turn"):
        server.script("hi")
    with pytest.raises(ScriptError, match="unknown step"):
        server.script("hi", "sing loudly")


def test_a_predicate_that_raises_is_told_to_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    def predicate(request: Request) -> bool:
        raise KeyError(request.prompt)

    with ModelServer() as server, connected(server) as connection:
        server.script(predicate, Say("never"))
        response = begin(connection, CLIENT, "oops")
        assert response.status == 500
        assert "KeyError('oops')" in CLIENT.read_error(json.loads(response.read()))
        assert server.requests[0].outcome is Outcome.REFUSED
    assert "cannot answer POST" in caplog.text


def test_who_fails_in_the_middle_of_a_stream_drops_it(caplog: pytest.LogCaptureFixture) -> None:
    def observer(request: Request) -> None:
        if request.gate:
            raise KeyError(request.gate)

    with ModelServer(on_change=observer) as server, connected(server) as connection:
        with pytest.raises(http.client.IncompleteRead) as caught:
            begin(connection, CLIENT, "<<say so far | wait gate>>").read()
        assert b"HTTP/1.1" not in caught.value.partial
        assert server.requests[0].note == "KeyError('gate')"
    assert "cannot answer POST" in caplog.text


# -- gates


@every_client
def test_a_gate_holds_the_stream_until_it_is_released(client: Client) -> None:
    with ModelServer() as server, connected(server) as connection:
        server.script("go", Turn(Say("half"), Wait("gate"), Say("whole")))
        stream = events(begin(connection, client, "go"))
        seen: list[Json] = []
        while "half" not in json.dumps(seen):
            seen.append(next(stream))
        request = server.wait_for_request(lambda request: request.gate == "gate")
        assert request.outcome is Outcome.PENDING
        server.release("gate")
        seen.extend(stream)
        assert client.read_events(seen).text == "halfwhole"
        (request,) = server.requests
        assert request.gate == ""
        assert request.outcome is Outcome.ANSWERED


def test_a_gate_can_be_released_before_anybody_comes_to_it() -> None:
    with ModelServer() as server:
        server.release("early")
        assert ask(server, CLIENT, "<<wait early | say on>>").text == "on"


def test_a_gate_lets_all_pass_and_no_other_gate_does() -> None:
    with ModelServer() as server, ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(ask, server, CLIENT, "<<wait a | say a>>") for _ in range(3)]
        other = pool.submit(ask, server, CLIENT, "<<wait b | say b>>")
        server.wait_for_request(lambda _: sum(bool(r.gate) for r in server.requests) == 4)
        server.release("a")
        assert [answer.result(10).text for answer in waiting] == ["a", "a", "a"]
        assert not other.done()
        server.release("b")
        assert other.result(10).text == "b"


def test_a_gate_nobody_releases_drops_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    with ModelServer(gate_timeout_seconds=0.01) as server:
        answer = ask_until_dropped(server, "<<say so | wait ever>>")
        assert answer == "so"
        request = server.wait_for_request(became(Outcome.GATE_TIMEOUT))
        assert "'ever' was not released" in request.note
    assert "'ever' was not released" in caplog.text


def test_a_gate_can_be_released_over_http() -> None:
    with ModelServer() as server, connected(server) as connection:
        assert post(connection, "/gates/my%20gate", {}).status == 200
        server.script("go", Turn(Wait("my_gate"), Say("on")))
        server.release("my_gate")
        assert ask(server, CLIENT, "go").text == "on"


def test_an_error_waits_at_its_gate() -> None:
    with ModelServer() as server, ThreadPoolExecutor(1) as pool, connected(server) as connection:
        server.script("go", Turn(Wait("gate"), Fail(500)))
        response = pool.submit(begin, connection, CLIENT, "go")
        server.wait_for_request(lambda request: request.gate == "gate")
        assert not response.done()
        server.release("gate")
        assert response.result(10).status == 500


# -- what arrives


@every_client
def test_the_record_says_what_was_asked_and_keeps_no_secret(client: Client) -> None:
    with ModelServer() as server, connected(server) as connection:
        body = client.body([Told("hello")], ["bash", "Read"], False)
        target = client.target(False)
        secrets = {
            "Authorization": "Bearer s3cret",
            "X-Api-Key": "s3cret",
            "x-goog-api-key": "s3cret",
            "User-Agent": "tester/1",
        }
        post(connection, f"{target}{'&' if '?' in target else '?'}key=s3cret", body, **secrets)
        (request,) = server.requests
    assert request.dialect == client.name
    assert request.model == "m"
    assert request.prompt == "hello"
    assert request.tools == ("bash", "Read")
    assert request.headers["user-agent"] == "tester/1"
    assert request.headers["x-api-key"] == "***"
    assert request.outcome is Outcome.ANSWERED
    assert request.is_prompt
    assert "s3cret" not in repr(request)


def test_a_request_tells_the_results_and_all_it_mentions() -> None:
    with ModelServer() as server:
        (call,) = ask(server, CLIENT, "<<bash ls>>").calls
        ask(server, CLIENT, [Told("<<bash ls>>"), Told(call=call, result="a.txt")])
        _, request = server.requests
        assert request.tool_results == ("a.txt",)
        assert request.mentions("a.tx")
        assert not request.mentions("b.tx")


def test_the_record_keeps_the_last_requests() -> None:
    with ModelServer(recorded_requests=3) as server:
        for number in range(5):
            ask(server, CLIENT, f"prompt {number}")
        assert [request.prompt for request in server.requests] == [
            "prompt 2",
            "prompt 3",
            "prompt 4",
        ]
        assert [request.number for request in server.requests] == [3, 4, 5]


def test_a_request_is_waited_for_before_and_after_it_came() -> None:
    with ModelServer() as server, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.wait_for_request, "hello")
        ask(server, CLIENT, "hello there")
        assert waiting.result(10).prompt == "hello there"
        assert server.wait_for_request(re.compile("^hello")).prompt == "hello there"


def test_what_comes_while_the_predicate_looks_is_not_missed() -> None:
    with ModelServer() as server:

        def predicate(request: Request) -> bool:
            if len(server.requests) == 1:
                ask(server, CLIENT, "second")
            return request.prompt == "second"

        ask(server, CLIENT, "first")
        assert server.wait_for_request(predicate, timeout_seconds=3600).number == 2


def test_a_text_is_not_found_in_side_requests() -> None:
    schema = {"output_config": {"format": {"type": "json_schema", "schema": {}}}}
    with ModelServer() as server, connected(server) as connection:
        post(connection, "/v1/messages", CLIENT.body([Told("title: hello")], [], False) | schema)
        ask(server, CLIENT, "hello")
        assert server.wait_for_request("hello").prompt == "hello"
        title = server.wait_for_request(lambda request: not request.is_prompt)
        assert title.prompt == "title: hello"


def test_who_waits_in_vain_is_told_what_arrived_instead() -> None:
    with ModelServer() as server:
        with pytest.raises(RequestNotSeen, match="nothing"):
            server.wait_for_request("hello", timeout_seconds=0)
        ask(server, CLIENT, "goodbye")
        with pytest.raises(TimeoutError, match="'goodbye': answered"):
            server.wait_for_request("hello", timeout_seconds=0.001)


def test_every_change_is_told_to_an_observer() -> None:
    seen: list[tuple[int, Outcome, str]] = []
    with ModelServer(on_change=lambda r: seen.append((r.number, r.outcome, r.gate))) as server:
        server.release("g")
        ask(server, CLIENT, "<<wait g | say hi>>")
    assert seen == [
        (1, Outcome.PENDING, ""),
        (1, Outcome.PENDING, ""),
        (1, Outcome.PENDING, "g"),
        (1, Outcome.PENDING, ""),
        (1, Outcome.ANSWERED, ""),
    ]


# -- clients that leave, connections that break


@every_client
@pytest.mark.parametrize(
    "script", ["say a | hang", "sleep 3600", "wait ever", "presleep 3600", "stream 9999 0.001"]
)
def test_a_client_that_leaves_is_noticed_at_once(
    client: Client, script: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with ModelServer() as server:
        with connected(server) as connection:
            body = json.dumps(client.body([Told(f"<<{script}>>")], [], True))
            connection.request("POST", client.target(True), body)
            server.wait_for_request("<<")
        assert server.wait_for_request(became(Outcome.CLIENT_LEFT)).gate == ""
    assert capfd.readouterr().err == ""


def test_a_client_that_leaves_in_the_middle_of_its_request_is_noticed() -> None:
    with ModelServer() as server:
        with raw_connection(server) as client:
            client.sendall(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 99\r\n\r\n{")
            server.wait_for_request(lambda request: request.method == "POST")
        server.wait_for_request(became(Outcome.CLIENT_LEFT))


def test_a_client_that_sends_its_next_request_early_has_not_left() -> None:
    prompt = "<<wait g | sleep 0.01 | say hi>>"
    body = json.dumps(CLIENT.body([Told(prompt)], [], True)).encode()
    head = b"POST /v1/messages HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
    last = head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    with ModelServer() as server:
        with raw_connection(server) as client:
            client.sendall(head + body)
            server.wait_for_request(lambda request: request.gate == "g")
            client.sendall(last + body)
            server.release("g")
            while client.recv(65536):
                pass
        assert [request.outcome for request in server.requests] == [Outcome.ANSWERED] * 2


@every_client
def test_a_cut_drops_the_connection_after_what_was_said(client: Client) -> None:
    with ModelServer() as server, connected(server) as connection:
        server.script("go", Turn(Say("so far"), Cut()))
        response = begin(connection, client, "go")
        with pytest.raises(http.client.IncompleteRead) as caught:
            response.read()
        assert b"far" in caught.value.partial
        assert server.requests[0].outcome is Outcome.CUT


def ask_until_dropped(server: ModelServer, prompt: str) -> str:
    with connected(server) as connection:
        answer = CLIENT.read_events(events(begin(connection, CLIENT, prompt)))
        assert not answer.is_complete
        return answer.text


# -- many at once, and the end


def test_a_hundred_streams_run_at_the_same_time() -> None:
    with ModelServer() as server, ThreadPoolExecutor(100) as pool:
        prompts = [f"<<say {number} | wait all | say done>>" for number in range(100)]
        clients = [CLIENTS[number % 4] for number in range(100)]
        answers = [
            pool.submit(ask, server, client, prompt)
            for client, prompt in zip(clients, prompts, strict=True)
        ]
        server.wait_for_request(
            lambda _: sum(bool(request.gate) for request in server.requests) == 100, 30
        )
        server.release("all")
        texts = [answer.result(30).text for answer in answers]
    assert texts == [f"{number}done" for number in range(100)]


@every_client
def test_closing_ends_streams_that_hang(client: Client) -> None:
    before = set(threading.enumerate())
    with ModelServer() as server, connected(server) as connection, connected(server) as idle:
        idle.request("HEAD", "/")
        idle.getresponse().read()
        server.script("go", Turn(Say("a"), Hang()))
        response = begin(connection, client, "go")
        started = time.monotonic()
        server.close()
        elapsed = time.monotonic() - started
        assert elapsed < 1
        with pytest.raises(http.client.IncompleteRead):
            response.read()
        server.close()  # again does nothing
        assert server.requests[-1].outcome is Outcome.SERVER_CLOSED
    assert set(threading.enumerate()) <= before


def test_a_closed_server_can_be_opened_again_on_its_port() -> None:
    with ModelServer() as server:
        port = server.port
        ask(server, CLIENT, "one")
    with server:
        assert server.port == port
        assert ask(server, CLIENT, "two").text == "Echo: two"
        assert [request.prompt for request in server.requests] == ["one", "two"]


def test_a_taken_port_is_an_os_error() -> None:
    with ModelServer() as server, pytest.raises(OSError, match="in use"):
        ModelServer(port=server.port).open()


def test_it_listens_on_loopback_only() -> None:
    with ModelServer() as server:
        assert server.url == f"http://127.0.0.1:{server.port}"


async def test_an_event_loop_can_use_it_without_being_blocked() -> None:
    async with ModelServer() as server:
        server.script("go", Turn(Wait("gate"), Say("on")))
        asking = asyncio.create_task(asyncio.to_thread(ask, server, CLIENT, "go"))
        await asyncio.to_thread(server.wait_for_request, lambda request: request.gate == "gate")
        server.release("gate")
        assert (await asking).text == "on"
        assert len(server.requests) == 1


def test_a_pause_lasts_as_long_as_the_script_says() -> None:
    with ModelServer() as server:
        server.script("go", Turn(Sleep(0.05), Say("a b", 0.05)))
        for is_streaming in (True, False):
            started = time.monotonic()
            ask(server, CLIENT, "go", is_streaming=is_streaming)
            assert time.monotonic() - started >= 0.1
