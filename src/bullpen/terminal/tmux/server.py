"""A tmux server that may not run yet, may end, and may come back."""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from bullpen.terminal.tmux.backoff import Backoff
from bullpen.terminal.tmux.client import TmuxClient
from bullpen.terminal.tmux.errors import TmuxError, TmuxNoServer, TmuxRefused, TmuxTooOld
from bullpen.terminal.tmux.executor import TmuxExecutor
from bullpen.terminal.tmux.runner import TIMEOUT_SECONDS, Answer, TmuxCommandRunner, one_answer
from bullpen.terminal.tmux.target import (
    NAME_VARIABLE,
    PATH_VARIABLE,
    ServerIdentity,
    TmuxTarget,
    resolve_target,
)

__all__ = ["TmuxServer", "find_targets"]

logger = logging.getLogger("bullpen.terminal.tmux")

FALLBACK_SECONDS = 60.0  # then a connection is tried again: tmux may have been replaced


class TmuxServer:
    """A `TmuxCommandRunner` that connects when it is used, and again after the connection ended.

    Nothing runs in the background: whoever uses it every second finds a server within moments of
    its start. After a failure, the next attempts fail at once until a pause is over. A tmux that is
    too old for a connection, or refuses one, is used by a process per command for a while.
    """

    def __init__(
        self,
        target: TmuxTarget,
        *,
        environment: Mapping[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        backoff: Backoff | None = None,
    ) -> None:
        self._target = target
        self._environment = dict(os.environ if environment is None else environment)
        self._timeout = timeout_seconds
        self._backoff = backoff or Backoff()
        self._client: TmuxClient | None = None
        self._executor: TmuxExecutor | None = None
        self._executor_until = 0.0
        self._last_error: TmuxError | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False

    @property
    def target(self) -> TmuxTarget:
        return self._target

    @property
    def identity(self) -> ServerIdentity | None:
        """Which run of the server it is connected to; None while it is not."""
        return self._client.identity if self._is_connected and self._client else None

    @property
    def version(self) -> str:
        """The version of tmux there; empty while it is not connected."""
        return self._client.version if self._is_connected and self._client else ""

    @property
    def is_fallback(self) -> bool:
        """Whether a process is started for every command."""
        return self._executor is not None

    async def run(self, *words: str, timeout_seconds: float | None = None) -> Answer:
        return await one_answer(self, words, timeout_seconds)

    async def run_many(
        self, commands: Sequence[Sequence[str]], *, timeout_seconds: float | None = None
    ) -> list[Answer | TmuxError]:
        runner = await self._runner()
        return await runner.run_many(commands, timeout_seconds=timeout_seconds)

    async def aclose(self) -> None:
        self._is_closed = True
        async with self._opening:
            if self._client is not None:
                await self._client.aclose()

    @property
    def _is_connected(self) -> bool:
        return self._client is not None and self._client.end_cause is None

    async def _runner(self) -> TmuxCommandRunner:
        runner = self._current()
        if runner is None:
            async with self._opening:  # the first opens it for all who wait
                runner = self._current() or await self._open()
        return runner

    def _current(self) -> TmuxCommandRunner | None:
        if self._executor and asyncio.get_running_loop().time() >= self._executor_until:
            self._executor = None
        return self._executor or (self._client if self._is_connected else None)

    async def _open(self) -> TmuxCommandRunner:
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise TmuxNoServer("it was closed here", target=str(self._target))
        if not self._backoff.may_try(loop.time()) and self._last_error is not None:
            raise _copy(self._last_error)
        if self._client is not None:
            await self._client.aclose()
            self._client = None
        try:
            if not await asyncio.to_thread(os.path.exists, self._target.socket_path):
                raise TmuxNoServer("there is no socket", target=str(self._target))
            self._client = await TmuxClient.open(
                self._target, environment=self._environment, timeout_seconds=self._timeout
            )
        except (TmuxTooOld, TmuxRefused) as error:
            logger.warning("tmux is used by a process per command: %s", error)
            self._executor = TmuxExecutor(
                self._target, environment=self._environment, timeout_seconds=self._timeout
            )
            self._executor_until = loop.time() + FALLBACK_SECONDS
            return self._executor
        except TmuxError as error:
            self._backoff.failed(loop.time())
            self._last_error = error
            raise
        else:
            self._backoff.succeeded()
            logger.info("connected to tmux %s at %s", self._client.version, self._target)
            return self._client


async def find_targets(environment: Mapping[str, str] | None = None) -> list[TmuxTarget]:
    """Return every server of the user that has its socket where tmux puts it, running or not."""
    environment = os.environ if environment is None else environment
    default = resolve_target({**environment, **_UNSET}, user_id=os.getuid())
    return await asyncio.to_thread(_sockets, Path(default.socket_path).parent)


_UNSET = {PATH_VARIABLE: "", NAME_VARIABLE: "", "TMUX": ""}


def _sockets(directory: Path) -> list[TmuxTarget]:
    try:
        return [
            TmuxTarget(str(path), "found")
            for path in sorted(directory.iterdir())
            if path.is_socket()
        ]
    except OSError:  # nobody has ever started a server there
        return []


def _copy(error: TmuxError) -> TmuxError:
    """Return the same error for somebody else, to whom it is news."""
    copy = type(error).__new__(type(error), *error.args)
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error
    return copy
