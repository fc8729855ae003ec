"""The record of a conversation tells how its turns have ended."""

import json

import pytest

from bullpen.agents.providers.gemini.transcript import read_line
from tests.agents.gemini.recorded import CHAT


def test_a_recorded_conversation_has_two_cancelled_turns_and_one_that_failed() -> None:
    facts = [read_line(line, "s") for line in CHAT.read_bytes().splitlines()]
    assert [fact.event_type for fact in facts if fact] == [
        "turn.interrupted",
        "turn.interrupted",
        "turn.failed",
    ]
    failed = [fact for fact in facts if fact][-1]
    assert failed.session_id == "s"
    assert failed.source_event_id == "7187f70e-f34c-4300-bdd2-17352110caa7"
    assert "INVALID_ARGUMENT" in failed.payload["message"]
    assert failed.at is not None


@pytest.mark.parametrize(
    "message",
    [
        '[API Error: {"error":{"code":429,"message":"slow down"}}]',
        '[API Error: {"error": {"code": 429, "message": "slow down"}}]',
        '[API Error: {"error":{"status":"RESOURCE_EXHAUSTED"}}]',
    ],
)
def test_a_refusal_for_usage_is_told_from_other_errors(message: str) -> None:
    fact = read_line(json.dumps({"type": "error", "id": "e", "content": message}).encode(), "s")
    assert fact is not None
    assert fact.event_type == "turn.rate_limited"


def test_what_is_said_in_pieces_is_read_as_a_whole() -> None:
    line = {"type": "info", "content": [{"text": "Request "}, {"text": "cancelled."}]}
    fact = read_line(json.dumps(line).encode(), "s")
    assert fact is not None
    assert fact.event_type == "turn.interrupted"
    assert fact.source_event_id


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"type": "info", "content": "Update available"}',
        b'{"type": "user", "content": [{"text": "Request cancelled."}]}',
        b'{"type": "gemini", "content": "an error: code 429"}',
        b'{"$set": {"lastUpdated": "2026-11-15T14:13:10.759Z"}}',
        b"[" * 100_000,
    ],
)
def test_other_lines_say_nothing(line: bytes) -> None:
    assert read_line(line, "s") is None
