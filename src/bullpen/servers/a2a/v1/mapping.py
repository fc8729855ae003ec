"""Our tasks in the words of A2A 1.0, and A2A's messages in ours. It decides, and does nothing.

A task of A2A is one or more of ours, its *turns*: the message that began it, and each that went on
from there with its id. It stands where its last turn stands. What A2A says of a message beside its
text is kept with it, under `a2a` in its metadata, and given back as it was.

What an agent answers is an artifact. An agent that answers through the api may say more about that,
under the same name in the metadata of its answer: see `Shape`.
"""

import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from bullpen.model.messages import Message, MessageType, Priority
from bullpen.model.tasks import Task, TaskState
from bullpen.servers.a2a.nesting import is_too_deep
from bullpen.servers.a2a.parts import as_a2a

__all__ = [
    "PRIORITY",
    "Kept",
    "Shape",
    "answer_message",
    "artifact_of",
    "artifacts_of",
    "context_of",
    "fold",
    "is_artifact",
    "is_over",
    "is_question",
    "kept_of",
    "priority_of",
    "read_message",
    "shape_of",
    "state_of",
    "status_of",
    "task_of",
]

PRIORITY = "urn:bullpen:priority:v1"
"""The extension by which a message has a priority: its key in the message's metadata."""

DIALOG = "urn:bullpen:dialog:v1"
"""In the metadata of a status message: what is asked; and of an answer: what it is meant for."""

A2A = "a2a"
ANSWER = "answer"
SAFE_INTEGER = 2**53  # above it, a JSON number of A2A loses digits

_STATES = {
    TaskState.SUBMITTED: pb.TaskState.TASK_STATE_SUBMITTED,
    TaskState.WORKING: pb.TaskState.TASK_STATE_WORKING,
    TaskState.INPUT_REQUIRED: pb.TaskState.TASK_STATE_INPUT_REQUIRED,
    TaskState.COMPLETED: pb.TaskState.TASK_STATE_COMPLETED,
    TaskState.FAILED: pb.TaskState.TASK_STATE_FAILED,
    TaskState.CANCELED: pb.TaskState.TASK_STATE_CANCELED,
}
_OVER = {
    pb.TaskState.TASK_STATE_COMPLETED,
    pb.TaskState.TASK_STATE_FAILED,
    pb.TaskState.TASK_STATE_CANCELED,
    pb.TaskState.TASK_STATE_REJECTED,
}


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of an A2A message beside its text."""

    message_id: str = ""
    task_id: str = ""
    """The task it goes on with; empty if it began one."""
    context_id: str = ""
    """The name the client gave the conversation, if it gave one."""
    parts: list[dict[str, Any]] = []
    """As they came, unless there was one text only."""
    metadata: dict[str, Any] = {}
    extensions: list[str] = []
    reference_task_ids: list[str] = []


class Shape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent says of how its answer is to look to A2A peers."""

    parts: list[dict[str, Any]] = []
    """What it answers, in A2A's own form; without any it is the answer's text."""
    name: str = ANSWER
    artifact_id: str = ""
    append: bool = False
    """Of a chunk: it goes on with the artifact of this id."""
    last_chunk: bool = False
    is_artifact: bool = True
    """False: it is the message of the task's status, and no artifact."""
    is_message: bool = False
    """True: who waits for the answer gets it as a message instead of the task."""
    is_refusal: bool = False
    """True: the agent does not take the task."""


S = TypeVar("S", Kept, Shape)

# ------------------------------------------------------------------------------- from A2A


def read_message(message: pb.Message, *, is_lenient: bool = False) -> tuple[str, Kept]:
    """Return the text an agent is to read, and what else is to be kept of a message.

    Several parts stand one below the other. With `is_lenient`, what cannot be text is named
    instead of refused.

    Raises:
        InvalidParamsError: it is no message that could be sent.
        ContentTypeNotSupportedError: a part of it cannot be text.
    """
    if not message.message_id:
        raise InvalidParamsError("message.messageId: a message has an id")
    if message.role != pb.Role.ROLE_USER:
        raise InvalidParamsError("message.role: what is sent to an agent has the role ROLE_USER")
    if not message.parts:
        raise InvalidParamsError("message.parts: a message has parts")
    texts = [_text_of(part, index, is_lenient) for index, part in enumerate(message.parts)]
    text = "\n".join(texts).strip()
    if not text:
        raise InvalidParamsError("message.parts: there is no text in it")
    is_plain = len(message.parts) == 1 and _is_plain(message.parts[0])
    kept = Kept(
        message_id=message.message_id,
        task_id=message.task_id,
        context_id=message.context_id,
        parts=[] if is_plain else [MessageToDict(each) for each in message.parts],
        metadata=MessageToDict(message.metadata) if message.HasField("metadata") else {},
        extensions=list(message.extensions),
        reference_task_ids=list(message.reference_task_ids),
    )
    if is_too_deep(msgspec.to_builtins(kept)):
        raise InvalidParamsError("message: it is nested too deeply")
    return text, kept


def _is_plain(part: pb.Part) -> bool:
    return (
        part.WhichOneof("content") == "text"
        and part.ByteSize() == pb.Part(text=part.text).ByteSize()
    )


def _text_of(part: pb.Part, index: int, is_lenient: bool) -> str:
    name = f"{part.filename}: " if part.filename else ""
    match part.WhichOneof("content"):
        case "text":
            return part.text
        case "url":
            return name + part.url
        case "data":
            value = _plain(MessageToDict(part.data))  # whose keys come in no order
            return name + json.dumps(value, ensure_ascii=False, sort_keys=True)
        case "raw":
            return _decoded(part, name, is_lenient)
    raise InvalidParamsError(
        f"message.parts[{index}]: a part has one of text, url, data and raw; it has none we know"
    )


def _decoded(part: pb.Part, name: str, is_lenient: bool) -> str:
    try:
        if part.media_type.startswith("text/") or not part.media_type:
            return part.raw.decode()
    except UnicodeDecodeError:
        pass
    kind = part.media_type or "bytes"
    if is_lenient:
        return f"{name}{kind}, {len(part.raw)} bytes"
    raise ContentTypeNotSupportedError(f"an agent in a terminal takes text, and no {kind}")


def _plain(value: Any) -> Any:
    """Return numbers as they were written: in a protobuf value each is a float."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= SAFE_INTEGER:
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def priority_of(*metadata: Mapping[str, Any]) -> Priority:
    """Return the priority that a message, or else its request, was given by the extension.

    Raises:
        InvalidParamsError: it is none.
    """
    found = next((each[PRIORITY] for each in metadata if PRIORITY in each), None)
    try:
        match found:
            case None:
                return Priority.NORMAL
            case str() if not found.isdecimal():
                return Priority(found)
            case int() | float() | str():
                return Priority.of_rank(int(found))
    except ValueError as error:
        raise InvalidParamsError(f"{PRIORITY}: {error}") from error
    raise InvalidParamsError(f"{PRIORITY}: a priority is a number from 1 to 5, or its name")


# --------------------------------------------------------------------------------- to A2A


def fold(found: Sequence[Task]) -> dict[str, list[Task]]:
    """Return tasks of ours as the turns of A2A's, by the id of these; each oldest first."""
    turns: dict[str, list[Task]] = {}
    for task in sorted(found, key=lambda each: each.created_at):
        turns.setdefault(kept_of(task.message).task_id or task.id, []).append(task)
    return turns


def task_of(
    turns: Sequence[Task], *, history_length: int | None = None, with_artifacts: bool = True
) -> pb.Task:
    """Return the A2A task that has these turns, the oldest first."""
    first, last = turns[0], turns[-1]
    told = pb.Task(id=first.id, context_id=context_of(first), status=status_of(last, first))
    history = [each for turn in turns for each in _said(turn, first)]
    if history_length is not None:
        history = history[-history_length:] if history_length > 0 else []
    told.history.extend(history)
    if with_artifacts:
        told.artifacts.extend(artifacts_of(turns))
    return told


def context_of(first: Task) -> str:
    """Return the id of the conversation a task belongs to: the client's, if it gave one."""
    return kept_of(first.message).context_id or first.context_id


def state_of(turn: Task) -> pb.TaskState:
    """Return where a task with this last turn stands."""
    if turn.state is TaskState.FAILED and turn.answers and shape_of(turn.answers[-1]).is_refusal:
        return pb.TaskState.TASK_STATE_REJECTED
    return _STATES[turn.state]


def is_over(state: pb.TaskState) -> bool:
    """Whether a task in a state stays there."""
    return state in _OVER


def is_question(turn: Task) -> bool:
    """Whether the agent itself asked something, and waits for who sent the message to answer.

    A dialog that it shows in its terminal is none.
    """
    return (
        turn.state is TaskState.INPUT_REQUIRED
        and bool(turn.answers)
        and turn.answers[-1].type is MessageType.PROGRESS
        and bool(turn.answers[-1].metadata.extra.get("asks"))
    )


def status_of(turn: Task, first: Task) -> pb.TaskStatus:
    """Return the status of a task with this last turn."""
    status = pb.TaskStatus(state=state_of(turn))
    status.timestamp.FromDatetime(turn.updated_at)
    said = turn.answers[-1] if turn.answers else None
    if said is not None and not is_artifact(said):
        status.message.CopyFrom(answer_message(said, first))
    elif turn.reason and turn.state not in (TaskState.COMPLETED, TaskState.WORKING):
        status.message.CopyFrom(
            pb.Message(
                message_id=f"{turn.id}-{turn.state}",
                task_id=first.id,
                context_id=context_of(first),
                role=pb.Role.ROLE_AGENT,
                parts=[pb.Part(text=turn.reason)],
            )
        )
        if turn.dialog is not None:
            status.message.message_id = f"{turn.id}-{turn.dialog.id}"
            status.message.metadata.update({DIALOG: turn.dialog.id})
    return status


def artifacts_of(turns: Sequence[Task]) -> list[pb.Artifact]:
    """Return what came of a task, chunks put together."""
    found: dict[str, pb.Artifact] = {}
    for turn in turns:
        for answer in turn.answers:
            if not is_artifact(answer):
                continue
            artifact = artifact_of(answer)
            if shape_of(answer).append and artifact.artifact_id in found:
                found[artifact.artifact_id].parts.extend(artifact.parts)
            else:
                found[artifact.artifact_id] = artifact
    return list(found.values())


def artifact_of(answer: Message) -> pb.Artifact:
    """Return an answer as an artifact, or as a chunk of one."""
    shape = shape_of(answer)
    return pb.Artifact(
        artifact_id=shape.artifact_id or f"{answer.reply_to}-{ANSWER}",
        name=shape.name,
        parts=_parts(shape.parts, answer.content),
    )


def answer_message(answer: Message, first: Task) -> pb.Message:
    """Return what an agent said as a message of its."""
    return pb.Message(
        message_id=answer.id,
        task_id=first.id,
        context_id=context_of(first),
        role=pb.Role.ROLE_AGENT,
        parts=_parts(shape_of(answer).parts, answer.content),
    )


def _said(turn: Task, first: Task) -> list[pb.Message]:
    """Return what was said in a turn, but for what is an artifact."""
    kept = kept_of(turn.message)
    asked = pb.Message(
        message_id=kept.message_id or turn.id,
        task_id=first.id,
        context_id=context_of(first),
        role=pb.Role.ROLE_USER,
        parts=_parts(kept.parts, turn.message.content),
        extensions=kept.extensions,
        reference_task_ids=kept.reference_task_ids,
    )
    if kept.metadata:
        asked.metadata.update(kept.metadata)
    told = [answer_message(each, first) for each in turn.answers if not is_artifact(each)]
    return [asked, *told]


def is_artifact(answer: Message) -> bool:
    """Whether what an agent said is a result, or a chunk of one; otherwise it is a message."""
    if answer.type in (MessageType.PROGRESS, MessageType.PING):
        return bool(shape_of(answer).artifact_id)  # a chunk
    failed = answer.type in (MessageType.TASK_FAILED, MessageType.ERROR)
    return shape_of(answer).is_artifact and not failed


def _parts(given: Sequence[Mapping[str, Any]], text: str) -> list[pb.Part]:
    parts = []
    for each in as_a2a(given):
        try:
            parts.append(ParseDict(each, pb.Part(), ignore_unknown_fields=True))
        except (ParseError, binascii.Error, ValueError, TypeError):
            return [pb.Part(text=text)]  # an agent may be wrong about A2A
    return parts or [pb.Part(text=text)]


def kept_of(message: Message) -> Kept:
    """Return what was kept of an A2A message; nothing if it came by another door."""
    return _read(message, Kept)


def shape_of(answer: Message) -> Shape:
    """Return what an agent says of how its answer is to look."""
    return _read(answer, Shape)


def _read(message: Message, kind: type[S]) -> S:
    said = message.metadata.extra.get(A2A, {})
    if is_too_deep(said):
        return kind()  # it came by another door, and nobody could be told of it
    try:
        return msgspec.convert(said, kind)
    except msgspec.ValidationError:
        return kind()
