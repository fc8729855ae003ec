"""Pages of tasks: which, in which order, where the next one begins. It decides, and does nothing.

The order is that of the last change, newest first. A page begins behind a task, not at a number:
so a task that changes between two pages does not push another from both.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError

from bullpen.model.tasks import Task
from bullpen.servers.a2a.v1 import mapping

__all__ = ["DEFAULT_PAGE", "LARGEST_PAGE", "page_of"]

DEFAULT_PAGE = 50
LARGEST_PAGE = 100


class _Cursor(NamedTuple):
    changed: datetime
    task_id: str

    def encode(self) -> str:
        return base64.urlsafe_b64encode(
            f"{self.changed.isoformat()} {self.task_id}".encode()
        ).decode()

    @classmethod
    def decode(cls, token: str) -> "_Cursor":
        try:
            text = base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
            changed, _, task_id = text.partition(" ")
            at = datetime.fromisoformat(changed)
            if at.tzinfo is None or not task_id:
                raise ValueError(text)
            return cls(at, task_id)
        except (ValueError, binascii.Error) as error:
            raise InvalidParamsError("pageToken: this is none that was given here") from error


def page_of(found: Iterable[Sequence[Task]], request: pb.ListTasksRequest) -> pb.ListTasksResponse:
    """Return the page that is asked for, of tasks each of which is its turns.

    Raises:
        InvalidParamsError: it asks for something that cannot be.
    """
    size = request.page_size if request.HasField("page_size") else DEFAULT_PAGE
    if not 1 <= size <= LARGEST_PAGE:
        raise InvalidParamsError(f"pageSize: from 1 to {LARGEST_PAGE}, and not {size}")
    if request.HasField("history_length") and request.history_length < 0:
        raise InvalidParamsError("historyLength: it is not negative")
    behind = _Cursor.decode(request.page_token) if request.page_token else None
    wanted = sorted(
        (
            (_Cursor(turns[-1].updated_at, turns[0].id), turns)
            for turns in found
            if _fits(turns, request)
        ),
        key=lambda each: each[0],
        reverse=True,
    )
    rest = [each for each in wanted if behind is None or each[0] < behind]
    shown = rest[:size]
    history_length = request.history_length if request.HasField("history_length") else None
    response = pb.ListTasksResponse(
        page_size=size,
        total_size=len(wanted),
        next_page_token=shown[-1][0].encode() if len(rest) > size else "",
    )
    response.tasks.extend(
        mapping.task_of(
            turns, history_length=history_length, with_artifacts=request.include_artifacts
        )
        for _, turns in shown
    )
    return response


def _fits(turns: Sequence[Task], request: pb.ListTasksRequest) -> bool:
    if request.context_id and mapping.context_of(turns[0]) != request.context_id:
        return False
    if request.status and mapping.state_of(turns[-1]) != request.status:
        return False
    if request.HasField("status_timestamp_after"):
        after = request.status_timestamp_after.ToDatetime(tzinfo=UTC)
        return bool(turns[-1].updated_at >= after)
    return True
