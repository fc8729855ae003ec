"""Programs differ in how they send a request; none of them may find the server closed to it."""

import contextlib
import gzip
import http.client
import json
import socket
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.testing.models import ModelServer, Outcome
from bullpen.testing.models.body import MAX_BODY_BYTES, decode_json, unpack
from bullpen.testing.models.errors import RequestRefused
from tests.testing.models.clients import (
    AnthropicClient,
    Json,
    Told,
    ask,
    connected,
    events,
    post,
    raw_connection,
)

CLIENT = AnthropicClient()
BODY = json.dumps(CLIENT.body([Told("hello")], [], False)).encode()


def text_of(response: http.client.HTTPResponse) -> str:
    assert response.status == 200, response.read()
    return CLIENT.read_document(json.loads(response.read())).text


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", gzip.compress(BODY)), ("deflate", zlib.compress(BODY)), ("identity", BODY)],
)
def test_a_packed_body_is_unpacked(encoding: str, body: bytes) -> None:
    with ModelServer() as server, connected(server) as connection:
        response = post(connection, "/v1/messages", body, content_encoding=encoding)
        assert text_of(response) == "Echo: hello"


@pytest.mark.parametrize("encoding", ["zstd", "br"])
def test_an_unknown_packing_is_refused_with_its_name(encoding: str) -> None:
    with ModelServer() as server, connected(server) as connection:
        response = post(connection, "/v1/messages", b"\x28\xb5", content_encoding=encoding)
        assert response.status == 415
        assert f"content-encoding {encoding}" in CLIENT.read_error(json.loads(response.read()))
        assert server.requests[0].outcome is Outcome.REFUSED


def test_a_packed_body_may_not_explode() -> None:
    bomb = zlib.compress(b"\0" * (MAX_BODY_BYTES + 1))
    with pytest.raises(RequestRefused) as caught:
        unpack(bomb, "deflate")
    assert caught.value.status == 413


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_chunked_body_is_put_together(size: int) -> None:
    chunks = [BODY[start : start + size] for start in range(0, len(BODY), size)]
    with ModelServer() as server, connected(server) as connection:
        connection.request("POST", "/v1/messages", iter(chunks), encode_chunked=True)
        assert text_of(connection.getresponse()) == "Echo: hello"


def test_chunks_may_have_extensions_and_trailers() -> None:
    body = b"%x;name=value\r\n%b\r\n0\r\nx-trailer: 1\r\n\r\n" % (len(BODY), BODY)
    head = b"POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = exchange(head + body + b"HEAD / HTTP/1.1\r\nconnection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /v1/messages HTTP/1.1\r\ncontent-length: many\r\n\r\n", 400),
        (b"POST /v1/messages HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST /v1/messages HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (b"POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", 400),
        (b"POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nFFFFFFFFF\r\n", 413),
        (b"POST /v1/messages HTTP/1.1\r\ncontent-length: 1\r\n\r\n{", 400),
        (b"POST /v1/messages HTTP/1.1\r\ncontent-length: 2\r\n\r\n[]", 400),
        (b"POST /v1/messages HTTP/1.1\r\ncontent-length: 3\r\n\r\n\xff\xff\xff", 400),
        (b"GET /favicon.ico HTTP/1.1\r\n\r\n", 404),
        (b"PUT / HTTP/1.1\r\n\r\n", 501),
    ],
)
def test_a_malformed_request_is_refused_and_the_server_goes_on(
    request_bytes: bytes, status: int
) -> None:
    with ModelServer() as server:
        with raw_connection(server) as client:
            client.sendall(request_bytes)
            client.shutdown(socket.SHUT_WR)
            answer = client.recv(4096).lower()
            assert b" %d " % status in answer[:20]
            assert b"connection: close" in answer  # who knows where the next request would begin
        assert ask(server, CLIENT, "hello").text == "Echo: hello"


@given(body=st.binary())
def test_a_body_is_a_json_object_or_refused(body: bytes) -> None:
    with contextlib.suppress(RequestRefused):
        assert isinstance(decode_json(body), dict)


def test_absurd_nesting_is_refused() -> None:
    with pytest.raises(RequestRefused, match="not JSON"):
        decode_json(b"[" * 1_000_000)


def test_an_old_client_gets_a_stream_that_ends_with_the_connection() -> None:
    body = json.dumps(CLIENT.body([Told("hello")], [], True)).encode()
    head = b"POST /v1/messages HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(body)
    answer = exchange(head + body)
    assert b"chunked" not in answer
    assert answer.endswith(b"\n\n")
    assert b"message_stop" in answer


def test_one_connection_serves_many_requests() -> None:
    with ModelServer() as server, connected(server) as connection:
        connection.connect()
        port = connection.sock.getsockname()
        for number in range(3):
            body = CLIENT.body([Told(f"{number}")], [], True)
            answer = CLIENT.read_events(events(post(connection, "/v1/messages", body)))
            assert answer.text == f"Echo: {number}"
            assert connection.sock.getsockname() == port


def test_a_client_that_asks_before_it_sends_is_told_to_go_on() -> None:
    with ModelServer() as server, raw_connection(server) as client:
        head = b"POST /v1/messages HTTP/1.1\r\nexpect: 100-continue\r\nconnection: close\r\n"
        client.sendall(head + b"content-length: %d\r\n\r\n" % len(BODY))
        assert b"100 Continue" in client.recv(4096)
        client.sendall(BODY)
        assert b"200 OK" in client.recv(4096)


@pytest.mark.parametrize("base", ["", "/v1", "/v1/v1", "/some/proxy/v1"])
def test_only_the_end_of_a_path_counts(base: str) -> None:
    with ModelServer() as server, connected(server) as connection:
        assert text_of(post(connection, f"{base}/messages/?beta=true", BODY)) == "Echo: hello"


@pytest.mark.parametrize(
    ("method", "target", "headers", "answer"),
    [
        ("GET", "/", {}, {"server": "bullpen.testing.models"}),
        ("POST", "/v1/messages/count_tokens?beta=true", {}, {"input_tokens": 100}),
        ("POST", "/v1beta/models/m:countTokens", {}, {"totalTokens": 100}),
    ],
)
def test_some_requests_need_no_model(
    method: str, target: str, headers: dict[str, str], answer: Json
) -> None:
    with ModelServer() as server, connected(server) as connection:
        connection.request(method, target, b"{}" if method == "POST" else None, headers)
        assert json.loads(connection.getresponse().read()) == answer
        assert not server.requests[0].is_prompt


@pytest.mark.parametrize(
    ("target", "headers", "key"),
    [
        ("/v1/models?client_version=1", {}, "object"),
        ("/v1/models", {"anthropic-version": "2023-06-01"}, "has_more"),
        ("/v1beta/models", {}, "models"),
    ],
)
def test_models_are_listed_in_the_way_of_each_api(
    target: str, headers: dict[str, str], key: str
) -> None:
    with ModelServer() as server, connected(server) as connection:
        connection.request("GET", target, headers=headers)
        listed = json.loads(connection.getresponse().read())
    assert key in listed
    assert "scripted-model" in json.dumps(listed)


def test_a_head_request_gets_no_body() -> None:
    with ModelServer() as server, connected(server) as connection:
        for target in ("/", "/nowhere"):
            connection.request("HEAD", target)
            assert connection.getresponse().read() == b""
        assert [request.method for request in server.requests] == ["HEAD", "HEAD"]


def test_gemini_streams_only_as_events() -> None:
    with ModelServer() as server, connected(server) as connection:
        response = post(connection, "/v1beta/models/m:streamGenerateContent", {})
        assert response.status == 400
        assert "alt=sse" in json.loads(response.read())["error"]["message"]


def exchange(sent: bytes) -> bytes:
    """Send bytes to a server, and return all that comes back."""
    received = b""
    with ModelServer() as server, raw_connection(server) as client:
        client.sendall(sent)
        while data := client.recv(65536):
            received += data
    return received
