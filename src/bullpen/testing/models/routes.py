"""Which API a path belongs to, and the answers that need no model. Pure."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from bullpen.testing.models.anthropic import Anthropic
from bullpen.testing.models.conversation import Json
from bullpen.testing.models.dialect import CREATED, INPUT_TOKENS, Dialect
from bullpen.testing.models.errors import RequestRefused
from bullpen.testing.models.gemini import Gemini
from bullpen.testing.models.openai_chat import OpenAIChat
from bullpen.testing.models.openai_responses import OpenAIResponses

__all__ = ["MODEL", "dialect_of", "fixed_answer", "gate_of"]

MODEL = "scripted-model"

# Only the end counts: programs differ in what they put before it, and some say /v1 twice.
_DIALECTS: tuple[tuple[re.Pattern[str], Dialect], ...] = (
    (re.compile(r"/messages$"), Anthropic()),
    (re.compile(r"/responses$"), OpenAIResponses()),
    (re.compile(r"/chat/completions$"), OpenAIChat()),
    (re.compile(r"/models/[^/]+:(generateContent|streamGenerateContent)$"), Gemini()),
)
_GATE = re.compile(r"/gates/([^/]+)")


def dialect_of(target: str) -> Dialect | None:
    """Return the API in which a path asks a model, if it does.

    Raises:
        RequestRefused: it does, but in a way this server does not know.
    """
    parts = urlsplit(target)
    path = parts.path.rstrip("/")
    for pattern, dialect in _DIALECTS:
        if pattern.search(path):
            if path.endswith(":streamGenerateContent") and "alt=sse" not in parts.query:
                raise RequestRefused(400, "this server streams only with alt=sse")
            return dialect
    return None


def gate_of(target: str) -> str | None:
    """Return the gate a path asks to release, if it does."""
    found = _GATE.fullmatch(urlsplit(target).path)
    return found[1] if found else None


def fixed_answer(method: str, target: str, headers: Mapping[str, str]) -> Json | None:
    """Return the answer to a request that needs no model, or None if there is no such thing."""
    path = urlsplit(target).path.rstrip("/")
    if method == "POST":
        if path.endswith("/messages/count_tokens"):
            return {"input_tokens": INPUT_TOKENS}
        if path.endswith(":countTokens"):
            return {"totalTokens": INPUT_TOKENS}
        return None
    if not path:
        return {"server": "bullpen.testing.models"}
    if path.endswith("/models"):
        return _models(path, headers)
    return None


def _models(path: str, headers: Mapping[str, str]) -> Json:
    if "/v1beta" in path:
        return {"models": [{"name": f"models/{MODEL}", "displayName": MODEL}]}
    if "anthropic-version" in headers:
        created = "2026-01-01T00:00:00Z"
        model = {"type": "model", "id": MODEL, "display_name": MODEL, "created_at": created}
        return {"data": [model], "has_more": False, "first_id": MODEL, "last_id": MODEL}
    listed = {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "bullpen"}
    return {"object": "list", "data": [listed], "models": []}  # "models" is for Codex
