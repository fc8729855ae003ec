"""Things that are closed at the end of an `async with` block."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Closable"]


class Closable(ABC):
    """Something with an `aclose`, which leaving a block calls."""

    @abstractmethod
    async def aclose(self) -> None:
        """Let go of everything. Idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
