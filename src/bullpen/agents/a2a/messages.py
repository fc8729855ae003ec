"""What is said to an agent and by it, in every dialect: messages, tasks, artifacts, events.

Whatever the dialect, a task becomes an `A2ATask`, with the words of the seed for how it stands.
What we do not know in what an agent says is passed over; what is no task at all is an error.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, Self

import msgspec

from bullpen.agents.a2a.card import Card, Dialect
from bullpen.agents.providers.values import mapping, text

__all__ = [
    "A2AMessage",
    "A2ATask",
    "RemoteState",
    "fold",
    "message_body",
    "read_answer",
    "read_error",
    "read_task",
    "text_of_artifacts",
    "text_of_parts",
]

LONGEST_ID: Final = 512
LONGEST_REASON: Final = 2000
MOST_ARTIFACTS: Final = 1000


class RemoteState(StrEnum):
    """How a task stands, in the seed's words; those of A2A are the same but for their spelling."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    AUTH_REQUIRED = "auth_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    """A word that we do not know. It is not over, as far as we can tell."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self in _OVER

    @property
    def wants_something(self) -> bool:
        """Whether it goes on only if somebody answers."""
        return self in (RemoteState.INPUT_REQUIRED, RemoteState.AUTH_REQUIRED)


_OVER = frozenset(
    {RemoteState.COMPLETED, RemoteState.FAILED, RemoteState.CANCELED, RemoteState.REJECTED}
)
_SPELLINGS = {"cancelled": "canceled", "done": "completed", "error": "failed"}


class A2AMessage(msgspec.Struct, frozen=True):
    """A message as the seed has it: who says it, and its parts."""

    role: str
    parts: tuple[dict[str, Any], ...]

    @classmethod
    def from_text(cls, content: str) -> Self:
        """Return what a user says in words."""
        return cls("user", ({"type": "text", "text": content},))

    @property
    def text(self) -> str:
        """Its words."""
        return text_of_parts(self.parts)


class A2ATask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of an agent elsewhere, as of when it was last told."""

    id: str
    """Empty if the agent answered at once, without making a task of it."""
    status: RemoteState
    message: dict[str, Any] | None = None
    artifacts: tuple[dict[str, Any], ...] = ()
    created_at: str = ""
    updated_at: str = ""
    context_id: str = ""
    says: str = ""
    """What the agent says beside its artifacts: a question, a reason, how far it is."""

    @property
    def text(self) -> str:
        """The answer: what its artifacts say, or else what it says itself."""
        return text_of_artifacts(self.artifacts) or self.says


# ------------------------------------------------------------------------------------------ writing


def message_body(
    card: Card,
    content: str,
    *,
    message_id: str,
    sender: str = "",
    priority: int = 1,
    context_id: str = "",
    task_id: str = "",
    is_rest: bool = False,
) -> dict[str, Any]:
    """Return what is asked of an agent to have it take a message.

    An answer is wanted at once; what comes of it is followed.
    """
    if card.dialect is Dialect.SEED:
        return _seed_body(card, content, sender, context_id)
    message: dict[str, Any] = {"messageId": message_id}
    message |= {"contextId": context_id} if context_id else {}
    message |= {"taskId": task_id} if task_id else {}
    if card.dialect is Dialect.V03 and not is_rest:
        message |= {"kind": "message", "role": "user"}
        message["parts"] = [{"kind": "text", "text": content}]
        return {"message": message, "configuration": {"blocking": False}}
    message["role"] = "ROLE_USER"
    if card.dialect is Dialect.V03:  # its paths have the names of another draft
        message["content"] = [{"text": content}]
        return {"message": message, "configuration": {"blocking": False}}
    message["parts"] = [{"text": content}]
    body = {"message": message, "configuration": {"returnImmediately": True}}
    if card.priority_uri:
        message["extensions"] = [card.priority_uri]
        body["metadata"] = {card.priority_uri: priority}
    return body


def _seed_body(card: Card, content: str, sender: str, context_id: str) -> dict[str, Any]:
    message = A2AMessage.from_text(content)
    body: dict[str, Any] = {"message": {"role": message.role, "parts": list(message.parts)}}
    if context_id:
        body["context_id"] = context_id
    if card.has_priorities:
        # We look after the task ourselves, so nobody is to be told of its end.
        body["metadata"] = {"response_mode": "silent"}
        body["metadata"] |= {"sender": {"sender_id": sender}} if sender else {}
    return body


# ------------------------------------------------------------------------------------------ reading


def read_answer(value: object) -> A2ATask:
    """Return the task that a message became, or a task that has ended with a message.

    Raises:
        ValueError: it is neither.
    """
    answer = mapping(value)
    if isinstance(answer.get("task"), dict):
        return read_task(answer["task"])
    message = answer.get("message")
    if isinstance(message, dict) and "status" not in answer:
        return _answered(message)
    if answer.get("kind") == "message" or ("parts" in answer and "status" not in answer):
        return _answered(answer)
    return read_task(value)


def read_task(value: object) -> A2ATask:
    """Return a task.

    Raises:
        ValueError: it is none.
    """
    task = mapping(value)
    name, status = text(task.get("id")), task.get("status")
    if not name or len(name) > LONGEST_ID or not isinstance(status, str | dict):
        raise ValueError("this is no task")
    details = mapping(status)
    word = status if isinstance(status, str) else text(details.get("state"))
    message = task.get("message")
    return A2ATask(
        id=name,
        status=_state(word),
        message=message if isinstance(message, dict) else None,
        artifacts=_objects(task.get("artifacts")),
        created_at=text(task.get("created_at")),
        updated_at=text(task.get("updated_at")) or text(details.get("timestamp")),
        context_id=text(task.get("contextId")) or text(task.get("context_id")),
        says=_says(task, details),
    )


def read_error(value: object) -> tuple[int, str] | None:
    """Return the code and the words of an error of JSON-RPC or of a path; None if it is none."""
    answer = mapping(value)
    error = answer.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        return (code if isinstance(code, int) else 0), _reason(error.get("message"))
    if isinstance(error, str):
        return 0, _reason(error)
    detail = answer.get("detail")
    if isinstance(detail, list):  # one for each field that is wrong
        told = (text(mapping(each).get("msg")) for each in detail[:5])
        detail = "; ".join(filter(None, told))
    return (0, _reason(detail)) if detail else None


def fold(task: A2ATask | None, event: object) -> A2ATask | None:
    """Return a task after an event of its stream; as it was if the event says nothing to us."""
    told = mapping(event)
    kind = text(told.get("kind"))
    try:
        if kind in ("task", "message") or "task" in told or "message" in told:
            return read_answer(told)
    except ValueError:
        return task
    if task is None:
        return None
    if isinstance(told.get("statusUpdate"), dict):
        return _with_status(task, told["statusUpdate"])
    if isinstance(told.get("artifactUpdate"), dict):
        return _with_artifact(task, told["artifactUpdate"])
    if kind == "status-update":
        return _with_status(task, told)
    if kind == "artifact-update":
        return _with_artifact(task, told)
    return task


def text_of_artifacts(artifacts: Sequence[dict[str, Any]]) -> str:
    """Return what artifacts say, each on lines of its own."""
    return "\n".join(filter(None, map(_text_of_artifact, artifacts)))


def text_of_parts(parts: Sequence[dict[str, Any]]) -> str:
    """Return what parts say, each on lines of its own."""
    return "\n".join(filter(None, map(_text_of_part, parts)))


def _text_of_artifact(artifact: dict[str, Any]) -> str:
    if isinstance(artifact.get("parts"), list):
        return "".join(map(_text_of_part, _objects(artifact["parts"])))
    data = artifact.get("data")
    if isinstance(data, str):
        return data
    if isinstance(data, dict):  # newer ones of the seed's kind
        return text(data.get("content")) or text(data.get("text")) or _json(data)
    return _text_of_part(artifact)


def _text_of_part(part: dict[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return str(part["text"])
    if "data" in part:
        return _json(part["data"])
    file = mapping(part.get("file")) or part
    where = text(file.get("url")) or text(file.get("uri")) or text(file.get("fileWithUri"))
    name = text(file.get("filename")) or text(file.get("name"))
    has_content = any(each in file for each in ("raw", "bytes", "fileWithBytes"))
    if not where and not has_content:
        return ""  # of a kind that we do not know
    return f"[file {' '.join(filter(None, (name, where))) or 'without a name'}]"


def _answered(message: dict[str, Any]) -> A2ATask:
    return A2ATask(
        id="",
        status=RemoteState.COMPLETED,
        message=message,
        context_id=text(message.get("contextId")),
        says=_text_of_message(message),
    )


def _with_status(task: A2ATask, update: dict[str, Any]) -> A2ATask:
    status = mapping(update.get("status"))
    if not text(status.get("state")):
        return task
    return msgspec.structs.replace(
        task,
        status=_state(text(status.get("state"))),
        says=_text_of_message(mapping(status.get("message"))) or task.says,
        updated_at=text(status.get("timestamp")) or task.updated_at,
    )


def _with_artifact(task: A2ATask, update: dict[str, Any]) -> A2ATask:
    artifact = mapping(update.get("artifact"))
    name = artifact.get("artifactId")
    others = list(task.artifacts)
    at = next((n for n, each in enumerate(others) if each.get("artifactId") == name), None)
    if at is None:
        others.append(artifact)
    elif update.get("append"):
        parts = _joined(others[at].get("parts"), artifact.get("parts"))
        others[at] = {**others[at], "parts": parts}
    else:
        others[at] = artifact
    return msgspec.structs.replace(task, artifacts=tuple(others[:MOST_ARTIFACTS]))


def _joined(before: object, more: object) -> list[dict[str, Any]]:
    """Return parts with more behind them; words that follow words become one part."""
    parts = list(_objects(before))
    for each in _objects(more):
        if parts and "text" in each and isinstance(parts[-1].get("text"), str):
            parts[-1] = {**parts[-1], "text": parts[-1]["text"] + text(each["text"])}
        else:
            parts.append(each)
    return parts


def _says(task: dict[str, Any], status: dict[str, Any]) -> str:
    if said := _text_of_message(mapping(status.get("message"))):
        return said
    error = task.get("error")
    if isinstance(error, str | dict):
        return _reason(error if isinstance(error, str) else error.get("message"))
    spoken = [
        each
        for each in _objects(task.get("history"))
        if text(each.get("role")).lower().removeprefix("role_") == "agent"
    ]
    return _text_of_message(spoken[-1]) if spoken else ""


def _text_of_message(message: dict[str, Any]) -> str:
    return text_of_parts(_objects(message.get("parts") or message.get("content")))


def _state(word: str) -> RemoteState:
    plain = word.lower().removeprefix("task_state_").replace("-", "_")
    try:
        return RemoteState(_SPELLINGS.get(plain, plain))
    except ValueError:
        return RemoteState.UNKNOWN


def _objects(value: object) -> tuple[dict[str, Any], ...]:
    found = value if isinstance(value, list) else []
    return tuple(each for each in found if isinstance(each, dict))


def _reason(value: object) -> str:
    return " ".join(text(value)[:LONGEST_REASON].split())


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
