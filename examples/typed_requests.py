"""Requests and notifications as types: the type says the method, its params and its result.

    python examples/typed_requests.py

Both ends share the declarations. What does not fit is refused with the place where it does not.
"""

import asyncio

from bullpen.connection import (
    Connection,
    Context,
    RemoteError,
    TypedNotification,
    TypedRequest,
    channel_pair,
)


class Review(TypedRequest[list[str]]):
    """Asks for remarks on a file; the result is a list of them."""

    METHOD = "review"
    path: str
    most: int = 3


class Progress(TypedNotification):
    METHOD = "progress"
    percent: int


async def review(asked: Review, context: Context) -> list[str]:
    for percent in (50, 100):
        await context.connection.notify(Progress(percent=percent))
    return [f"{asked.path}:{line}: a name says more than a comment" for line in range(asked.most)]


def on_progress(progress: Progress, _: Context) -> None:
    print(f"{progress.percent} %")


async def main() -> None:
    here, there = channel_pair()
    reviewer = Connection.builder().name("reviewer").on_request(Review, review)
    client = Connection.builder().name("client").on_notification(Progress, on_progress)
    async with reviewer.connect(there), client.connect(here) as connection:
        remarks = await connection.request(Review(path="main.py", most=2))  # a list[str]
        print(*remarks, sep="\n")
        try:
            await connection.request("review", {"path": "main.py", "most": "many"})
        except RemoteError as error:
            print(error.code, error.message)


if __name__ == "__main__":
    asyncio.run(main())
