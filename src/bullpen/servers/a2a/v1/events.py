"""What is told of one task as it changes, in A2A's events. It decides, and does nothing.

The first event is the task. What the agent says while it works comes as chunks of its answer, the
first of which begins the artifact; when the answer is whole, the rest of it follows, or, if the
agent said something else on the way, the whole in the place of the chunks. The last event is the
status in which the task ends, or waits for somebody.
"""

from collections.abc import Iterator, Sequence

from a2a.types import a2a_pb2 as pb

from bullpen.model.messages import Message
from bullpen.model.tasks import Task, TaskState
from bullpen.servers.a2a.v1 import mapping

__all__ = ["Event", "Telling"]

Event = pb.Task | pb.Message | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent

_WORKING = pb.TaskState.TASK_STATE_WORKING


class Telling:
    """What one listener has been told of a task. `earlier` are its turns before the last one."""

    def __init__(self, earlier: Sequence[Task], turn: Task) -> None:
        self._earlier = tuple(earlier)
        self._turn = turn
        self._state = mapping.state_of(turn)
        self._answers = len(turn.answers)
        self._chunks: dict[str, str] = {}
        for artifact in mapping.artifacts_of([*earlier, turn]):
            self._chunks[artifact.artifact_id] = "".join(each.text for each in artifact.parts)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is told: the task has ended, or waits for somebody."""
        return self._turn.state.is_over or self._turn.state is TaskState.INPUT_REQUIRED

    @property
    def has_ended(self) -> bool:
        """Whether the task has ended."""
        return self._turn.state.is_over

    def task(self) -> pb.Task:
        """Return the task as it is known: the first event."""
        return mapping.task_of([*self._earlier, self._turn])

    def say(self, text: str, *, is_new: bool = False) -> Iterator[Event]:
        """Yield what is told when the agent has said something.

        With `is_new` what it said before was not its answer.
        """
        artifact_id = f"{self._turn.id}-{mapping.ANSWER}"
        artifact = pb.Artifact(
            artifact_id=artifact_id, name=mapping.ANSWER, parts=[pb.Part(text=text)]
        )
        yield from self._work()
        told = "" if is_new else self._chunks.get(artifact_id, "")
        yield self._chunk(artifact, append=bool(told))
        self._chunks[artifact_id] = told + text

    def change(self, turn: Task) -> Iterator[Event]:
        """Yield what is told when the last turn of the task is another."""
        self._turn = turn
        answers = turn.answers[self._answers :]
        self._answers = max(self._answers, len(turn.answers))
        for answer in answers:
            yield from self._answer(answer, is_last=answer is turn.answers[-1])
        state = mapping.state_of(turn)
        if state == pb.TaskState.TASK_STATE_SUBMITTED and self._state == _WORKING:
            return  # it works already: what came of that was told before that it does
        if state != self._state:
            if state == pb.TaskState.TASK_STATE_COMPLETED:
                yield from self._work()
            self._state = state
            yield self._status(mapping.status_of(turn, self._first))

    def go_on(self, turn: Task) -> Iterator[Event]:
        """Yield what is told when the task has another turn."""
        self._earlier = (*self._earlier, self._turn)
        self._answers = 0
        # As it began, whenever that is heard of: all who listen are told the same.
        self._state = pb.TaskState.TASK_STATE_SUBMITTED
        status = pb.TaskStatus(state=self._state)
        status.timestamp.FromDatetime(turn.created_at)
        yield self._status(status)
        yield from self.change(turn)

    @property
    def _first(self) -> Task:
        return self._earlier[0] if self._earlier else self._turn

    def _answer(self, answer: Message, *, is_last: bool) -> Iterator[Event]:
        if not mapping.is_artifact(answer):
            if is_last and mapping.state_of(self._turn) != self._state:
                return  # the status says it
            status = pb.TaskStatus(state=_WORKING)
            status.timestamp.FromDatetime(answer.timestamp)
            status.message.CopyFrom(mapping.answer_message(answer, self._first))
            self._state = _WORKING
            yield self._status(status)
            return
        yield from self._work()
        shape, artifact = mapping.shape_of(answer), mapping.artifact_of(answer)
        told = self._chunks.get(artifact.artifact_id)
        is_chunk = answer.type == "progress"
        text = "".join(each.text for each in artifact.parts)
        if told is None:
            append = False
        elif is_chunk:
            append = shape.append
        elif append := not shape.parts and text.startswith(told):
            artifact.parts[0].text = text.removeprefix(told)
        yield self._chunk(artifact, append=append, is_last=shape.last_chunk or not is_chunk)
        self._chunks[artifact.artifact_id] = (told or "") + text if append and is_chunk else text

    def _work(self) -> Iterator[Event]:
        """Tell first that the agent works on it, if only what came of that is known."""
        if self._state == pb.TaskState.TASK_STATE_SUBMITTED:
            self._state = _WORKING
            status = pb.TaskStatus(state=_WORKING)
            status.timestamp.FromDatetime(self._turn.updated_at)
            yield self._status(status)

    def _status(self, status: pb.TaskStatus) -> pb.TaskStatusUpdateEvent:
        return pb.TaskStatusUpdateEvent(
            task_id=self._first.id, context_id=mapping.context_of(self._first), status=status
        )

    def _chunk(
        self, artifact: pb.Artifact, *, append: bool, is_last: bool = False
    ) -> pb.TaskArtifactUpdateEvent:
        return pb.TaskArtifactUpdateEvent(
            task_id=self._first.id,
            context_id=mapping.context_of(self._first),
            artifact=artifact,
            append=append,
            last_chunk=is_last,
        )
