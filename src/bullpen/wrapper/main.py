"""Running a program as an agent, from its start to its end."""

import asyncio
import contextlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from bullpen.api.runtime import Paths, prepare
from bullpen.connection.errors import CommandNotFound
from bullpen.errors import BullpenError
from bullpen.wrapper.agent import WrappedAgent
from bullpen.wrapper.options import WrapperOptions
from bullpen.wrapper.signals import Signals
from bullpen.wrapper.user_terminal import UserTerminal

__all__ = ["run"]

NOT_FOUND = 127  # as a shell says it
FAILED = 1
LOG_FORMAT = "%(asctime)s %(process)d %(levelname)s %(message)s"


def run(options: WrapperOptions) -> int:
    """Run a program as an agent in this terminal, or in none, until it ends.

    Returns its exit status as a shell would say it: 128 and the number of a signal that ended it.
    What cannot be started is told on standard error; once it runs, nothing is ever written to the
    terminal but what it writes, and notices to the user.
    """
    try:
        return asyncio.run(_run(options))
    except CommandNotFound as error:
        _complain(str(error))
        return NOT_FOUND
    except BullpenError as error:
        _complain(str(error))
        return FAILED
    except re.error as error:
        _complain(f"the idle_regex of {options.profile.name} is none: {error}")
        return FAILED


async def _run(options: WrapperOptions) -> int:
    user = None if options.is_detached else UserTerminal.open()
    log_path = options.log_path or options.paths.agent_logs / "wrapper.log"
    log = await asyncio.to_thread(_open_log, options.paths, log_path)
    try:
        with _quiet(log):
            agent = WrappedAgent(options, user)
            try:
                if trouble := await agent.open():
                    _complain(f"{trouble}; {agent.name} runs, and will be found when there is one")
                with Signals(agent, user):
                    if note := await agent.start():
                        _complain(note)
                    if user is not None:
                        user.make_raw()
                    return _exit_code(await agent.run())
            finally:
                await agent.aclose()
    finally:
        if user is not None:
            user.close()
        if log is not None:
            log.close()


def _exit_code(status: int) -> int:
    return status if status >= 0 else 128 - status


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"bullpen: {text}\r\n".encode(errors="replace"))


def _open_log(paths: Paths, path: Path) -> TextIO | None:
    """Open the log, or do without."""
    with contextlib.suppress(BullpenError):  # which whoever needs the directories will say
        prepare(paths)

    def private(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, 0o600)

    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open(path, "a", encoding="utf-8", errors="replace", opener=private)
    return None


@contextlib.contextmanager
def _quiet(log: TextIO | None) -> Iterator[None]:
    """Have all that the interpreter and its libraries complain about go to a log, or nowhere."""
    root = logging.getLogger()
    handler = logging.StreamHandler(log) if log is not None else logging.NullHandler()
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    before, root.handlers = root.handlers, [handler]
    complaints, sys.stderr = sys.stderr, log or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    logging.captureWarnings(True)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        logging.captureWarnings(False)
        root.handlers, sys.stderr = before, complaints
