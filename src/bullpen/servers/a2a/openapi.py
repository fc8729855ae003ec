"""The description of what is answered over HTTP, as OpenAPI 3.1 has it. It decides, does nothing.

document(operations, schemas, url="http://localhost:8100")             # of one agent
document(operations, schemas, url="http://localhost:41607", under="/agents/{agent}")
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from bullpen.model.version import VERSION
from bullpen.servers.a2a.operations import Operation, Query

__all__ = ["document"]

Json = dict[str, Any]

EVENTS = "text/event-stream"
JSON = "application/json"
BEARER = "bearer"
COMPONENTS = "#/components/schemas/"

EVERYBODY = (401, 403, 408, 413, 421, 429, 500, 503)
"""What anybody may be refused with, whatever is asked for."""

_REFUSALS = {
    400: "It has the right shape, and is still not possible: the reason is told",
    401: "A token is needed, or nobody was given this one",
    403: "Who asks may not, or a page in a browser asks",
    404: "There is no such thing",
    405: "There is such a path, but it is not asked so",
    408: "The request did not come in time",
    409: "It is too late for that",
    413: "The request is too large: 8 MB in all, 1 MB for a message",
    421: "We are called by a name that is not ours",
    422: "The request is not what is expected; it is told where",
    429: "Too often, or too much waits already",
    500: "It could not be done, for reasons of ours",
    503: "The agent does not run, the daemon does not answer, or too many are connected",
}
SEED, A2A = "Seed", "A2a"
_ERRORS = {SEED: ("Refused",), A2A: ("Refused", "v1.Error")}
"""In which shapes it may be told that something is refused: by the door, and by A2A itself."""
_HEADERS = {
    401: ("WWW-Authenticate", {"type": "string"}),
    405: ("Allow", {"type": "string"}),
    429: ("Retry-After", {"type": "string", "pattern": "^[0-9]+$"}),
}
_TAGS = {
    "seed": "As Synapse agents speak",
    "a2a": "A2A 1.0: cards, JSON-RPC and REST",
    "a2a-0.3": "A2A 0.3 by REST, for clients that have not moved on",
    "about": "What there is",
}
_WRONG: Json = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "loc": {"type": "array", "items": {"type": "string"}},
            "msg": {"type": "string"},
            "type": {"type": "string"},
        },
        "required": ["loc", "msg", "type"],
        "additionalProperties": False,
    },
}


def document(
    operations: Sequence[Operation], schemas: Mapping[str, Json], *, url: str, under: str = ""
) -> Json:
    """Return the description of some operations at an address, each `under` a path.

    `schemas` are those that the schemas in the operations refer to.
    """
    described = _Described(operations)
    paths: dict[str, Json] = {}
    for each in operations:
        path = each.path if each.tag == "about" else under + each.path
        paths.setdefault(path, {})[each.method.lower()] = described.operation(each, path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "bullpen",
            "summary": "Agents in terminals, as A2A agents",
            "description": "On loopback, programs of your own user need no token to read and send.",
            "version": VERSION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": url}],
        "tags": [{"name": name, "description": told} for name, told in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": {**schemas, **described.schemas, "Refused": _refused()},
            "responses": {
                f"{prefix}{status}": _refusal(status, either)
                for prefix, either in _ERRORS.items()
                for status in _REFUSALS
            },
            "securitySchemes": {
                BEARER: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of `bullpen a2a token`, or the secret of an agent. "
                    "Its scopes are read, send and control.",
                }
            },
        },
    }


class _Described:
    """The operations with what they refer to."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        said = (kind for each in operations for kind in (each.body, each.answer, each.events))
        types = list(dict.fromkeys(kind for kind in said if _is_type(kind)))
        found, components = msgspec.json.schema_components(
            types, ref_template=COMPONENTS + "{name}"
        )
        self._by_type = dict(zip(types, found, strict=True))
        self.schemas: dict[str, Json] = {
            name.removeprefix("_"): _renamed(each) for name, each in components.items()
        }

    def operation(self, each: Operation, path: str) -> Json:
        """Return an operation at a path."""
        told: Json = {
            "operationId": each.name,
            "summary": each.tells,
            "tags": [each.tag],
            "security": _security(each.scope),
            "responses": self._responses(each),
        }
        parameters = [*_path_parameters(path), *map(_parameter, each.query)]
        if parameters:
            told["parameters"] = parameters
        if each.body is not None:
            content = {JSON: {"schema": self._schema(each.body)}}
            told["requestBody"] = {"required": each.needs_body, "content": content}
        return told

    def _responses(self, each: Operation) -> Json:
        answered: Json = {"description": "It is so"}
        answered["content"] = content = {}
        if each.answer is not None:
            schema = self._schema(each.answer)
            content.update({kind: {"schema": schema} for kind in each.media_types})
        if each.events is not None:
            content[EVENTS] = {"schema": _event(self._schema(each.events))}
        if each.leads_to:
            answered["links"] = self._links(each)
        refused = {*EVERYBODY, *each.refusals}
        if each.tag != "about":
            refused.add(404)  # there may be no such agent, or not any more
        if each.tag == "seed" and (each.body is not None or each.query):
            refused.add(422)
        return {
            "200": answered,
            **{
                str(status): {"$ref": f"#/components/responses/{_dialect(each)}{status}"}
                for status in sorted(refused)
            },
        }

    def _links(self, each: Operation) -> Json:
        """Return what can be asked next: what is about one thing that the answer names."""
        return {
            other.name: {
                "operationId": other.name,
                "parameters": {
                    name: f"$response.body#{place}" for name, place in each.leads_to.items()
                },
            }
            for other in self._operations
            if other.tag == each.tag
            and set(each.leads_to) == set(_names(other.path))
            and other.method != "DELETE"
        }

    def _schema(self, kind: Any) -> Json:
        if not _is_type(kind):
            return dict(kind)
        return dict(_renamed(self._by_type[kind]))


def _event(told: Json) -> Json:
    """Return the schema of an event that tells something; OpenAPI 3.1 has no word for many."""
    data = {"type": "string", "contentMediaType": JSON, "contentSchema": told}
    return {
        "type": "object",
        "properties": {"event": {"type": "string"}, "data": data},
        "required": ["data"],
    }


def _is_type(kind: Any) -> bool:
    return kind is not None and not isinstance(kind, Mapping)


def _renamed(schema: Any) -> Any:
    """Return a schema that refers to private types by names without the underscore."""
    if isinstance(schema, dict):
        return {
            key: each.replace(f"{COMPONENTS}_", COMPONENTS) if key == "$ref" else _renamed(each)
            for key, each in schema.items()
            if key != "title"
        }
    return [_renamed(each) for each in schema] if isinstance(schema, list) else schema


def _names(path: str) -> list[str]:
    return [name for name in re.findall(r"{(\w+)}", path) if name != "agent"]


def _path_parameters(path: str) -> Iterable[Json]:
    for name in re.findall(r"{(\w+)}", path):
        schema = {"type": "string", "pattern": "^[^/]+$"}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _parameter(query: Query) -> Json:
    told: Json = {
        "name": query.name,
        "in": query.place,
        "required": query.is_required,
        "schema": query.schema,
    }
    if query.tells:
        told["description"] = query.tells
    return told


def _security(scope: str) -> list[Json]:
    return [{BEARER: [scope]}, {}]


def _dialect(each: Operation) -> str:
    return SEED if each.tag in ("seed", "about") else A2A


def _refusal(status: int, shapes: Sequence[str]) -> Json:
    refused = [{"$ref": COMPONENTS + each} for each in shapes]
    schema: Json = {"anyOf": refused} if len(refused) > 1 else refused[0]
    told: Json = {"description": _REFUSALS[status], "content": {JSON: {"schema": schema}}}
    if status == 503:
        told["content"]["text/plain"] = {"schema": {"type": "string"}}  # too many are connected
    if status in _HEADERS:
        name, schema = _HEADERS[status]
        told["headers"] = {name: {"schema": schema}}
    return told


def _refused() -> Json:
    return {
        "type": "object",
        "properties": {"detail": {"anyOf": [{"type": "string"}, _WRONG]}},
        "required": ["detail"],
        "additionalProperties": False,
    }
