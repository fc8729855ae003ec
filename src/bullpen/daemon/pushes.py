"""What the daemon answers about who is told by post, to the server that posts and nobody else."""

from collections.abc import Callable
from typing import Any

from bullpen.api.errors import ApiError
from bullpen.api.push import EndPush, ListPush, RemovePush, SavePush
from bullpen.connection import Context, TypedRequest
from bullpen.daemon.callers import Callers
from bullpen.mail.policy import GUEST
from bullpen.model.push import PushAddress
from bullpen.model.reasons import Reason
from bullpen.store.errors import StoreError
from bullpen.store.push import PushAddresses

__all__ = ["push_requests"]

MOST_OF_TASK = 20
MOST = 2000

Handler = Callable[[Any, Context], Any]


def push_requests(
    addresses: PushAddresses, callers: Callers
) -> dict[type[TypedRequest[Any]], Handler]:
    """Return how each request about addresses to post to is answered."""

    async def save(request: SavePush) -> bool:
        return await addresses.save(request.address, most_of_task=MOST_OF_TASK, most=MOST)

    async def listed(request: ListPush) -> tuple[PushAddress, ...]:
        if request.task_id:
            return await addresses.of_task(request.task_id)
        return await addresses.unfinished()

    async def end(request: EndPush) -> None:
        await addresses.end(request.task_id, request.id)

    async def remove(request: RemovePush) -> None:
        await addresses.remove(request.task_id, request.id)

    def guarded(answer: Callable[[Any], Any]) -> Handler:
        async def handle(request: Any, context: Context) -> Any:
            if callers.peer(context.connection) != GUEST:
                raise ApiError(Reason.NOT_PERMITTED, "only the server that posts may ask for that")
            try:
                return await answer(request)
            except StoreError as error:
                raise ApiError(Reason.STORE_UNAVAILABLE, str(error)) from error

        return handle

    return {
        SavePush: guarded(save),
        ListPush: guarded(listed),
        EndPush: guarded(end),
        RemovePush: guarded(remove),
    }
