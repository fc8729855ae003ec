"""What goes on, as lines of JSON in a file of our own.

Every room logs through the standard library. What is bound here (`bound(source="poller")`) goes
with every record made inside, also in tasks that were begun there. Records are written by a thread,
so that a slow disk is nobody's problem but the log's; if more come than it can write, or the disk
is full, they are counted and dropped, and `trouble` says so.
"""

import contextlib
import copy
import logging
import os
import queue
import stat
import sys
import threading
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.stdlib import ExtraAdder, ProcessorFormatter, add_log_level, add_logger_name
from structlog.typing import EventDict, Processor, WrappedLogger

__all__ = ["Log", "bound", "open_log"]

OURS = "bullpen"
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}
MAX_BYTES = 5_000_000
FILES = 3
MOST_WAITING = 10_000  # records that are not written yet
CLOSE_SECONDS = 2.0  # for the last records; a disk that hangs does not keep us

bound = structlog.contextvars.bound_contextvars
"""Bind fields for a block: `with bound(source="poller", pane="%3"):`."""


def open_log(
    path: Path | None,
    *,
    level: str = "info",
    max_bytes: int = MAX_BYTES,
    files: int = FILES,
    console: TextIO | None = None,
    as_json: bool = False,
) -> "Log":
    """Begin to log to a file, and to a console in the foreground; whoever called this closes it.

    On the console lines are for people, unless `as_json`, as a process wants it whose lines another
    one takes up. It never fails: a file that cannot be written is `Log.trouble`.
    """
    handlers: list[logging.Handler] = []
    if path is not None:
        handlers.append(_PrivateFile(path, max_bytes, files))
        handlers[-1].setFormatter(_formatter(structlog.processors.JSONRenderer(sort_keys=False)))
    if console is not None:
        handlers.append(logging.StreamHandler(console))
        handlers[-1].setFormatter(_formatter(_console_renderer(console, as_json=as_json)))
    return Log(handlers, LEVELS[level])


class Log:
    """The log of this process, from `open_log` to `close`. There is one at a time."""

    def __init__(self, handlers: list[logging.Handler], level: int) -> None:
        self._handlers = handlers
        self._queue: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
        self._entrance = _Entrance(self._queue)
        self._writer = threading.Thread(target=self._write, name="bullpen-log", daemon=True)
        self._root, self._ours = logging.getLogger(), logging.getLogger(OURS)
        self._before = (self._root.handlers, self._root.level, self._ours.level)
        self._root.handlers = [self._entrance]
        self._root.setLevel(max(level, logging.WARNING))  # of others, what is wrong is enough
        self._ours.setLevel(level)
        logging.captureWarnings(capture=True)
        _configure_structlog()
        self._writer.start()

    @property
    def dropped(self) -> int:
        """How many records nobody will read."""
        lost = sum(handler.lost for handler in self._files)
        return self._entrance.dropped + lost

    @property
    def trouble(self) -> str:
        """Why records are lost; empty if none were, or if they can be written again."""
        for handler in self._files:
            if handler.trouble:
                return handler.trouble
        return "more was logged than could be written" if self._entrance.dropped else ""

    def close(self) -> None:
        """Write what is left and let go. Twice is the same as once."""
        if not self._writer.is_alive():
            return
        self._root.handlers, root_level, our_level = self._before
        self._root.setLevel(root_level)
        self._ours.setLevel(our_level)
        logging.captureWarnings(capture=False)
        structlog.reset_defaults()
        self._queue.put(None)
        self._writer.join(CLOSE_SECONDS)

    @property
    def _files(self) -> "list[_PrivateFile]":
        return [each for each in self._handlers if isinstance(each, _PrivateFile)]

    def _write(self) -> None:
        while (record := self._queue.get()) is not None:
            for handler in self._handlers:
                handler.handle(record)
        for handler in self._handlers:
            handler.close()


class _Entrance(logging.Handler):
    """Takes records in whichever thread they are made, and never waits."""

    def __init__(self, records: "queue.SimpleQueue[logging.LogRecord | None]") -> None:
        super().__init__()
        self.dropped = 0
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        if self._records.qsize() >= MOST_WAITING:
            self.dropped += 1
            return
        self._records.put(_frozen(record))


def _frozen(record: logging.LogRecord) -> logging.LogRecord:
    """Return a record as it is here and now: arguments, traceback and what is bound."""
    frozen = copy.copy(record)
    if not isinstance(record.msg, dict):  # which is structlog's own way
        try:
            frozen.msg = record.getMessage()
        except Exception:  # noqa: BLE001 - whatever an argument's __str__ raises
            frozen.msg = f"{record.msg!r} with {len(record.args or ())} arguments that do not fit"
    frozen.args = None
    if record.exc_info:
        frozen.exc_text = logging.Formatter().formatException(record.exc_info)
        frozen.exc_info = None
    frozen.__dict__["bound_fields"] = structlog.contextvars.get_contextvars()
    return frozen


class _PrivateFile(RotatingFileHandler):
    """A file for us alone that is put aside when it is full; what cannot be written is counted."""

    def __init__(self, path: Path, max_bytes: int, files: int) -> None:
        self.lost = 0
        self.trouble = ""
        super().__init__(
            path,
            maxBytes=max_bytes,
            backupCount=files,
            encoding="utf-8",
            errors="backslashreplace",
            delay=True,
        )

    def _open(self) -> Any:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.baseFilename, flags, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # and not /dev/null
            os.fchmod(descriptor, 0o600)  # should it have been made by somebody less careful
        return open(  # noqa: PTH123 - of a descriptor; closed by the handler
            descriptor, "a", encoding=self.encoding, errors=self.errors
        )

    def doRollover(self) -> None:  # noqa: N802 - the library's name
        if self.backupCount == 0 and self.stream is not None:
            # The library would let the only file grow for ever.
            self.stream.close()
            self.stream = None
            Path(self.baseFilename).unlink(missing_ok=True)
        super().doRollover()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + self.terminator  # once: the library does it twice
            if self.stream is None:
                self.stream = self._open()
            if self._is_full(self.stream.fileno(), len(line)):
                self.doRollover()
                self.stream = self._open()
            self.stream.write(line)
            self.stream.flush()
        except Exception:  # noqa: BLE001 - whatever it is, it is counted
            self.handleError(record)
        else:
            self.trouble = ""

    def _is_full(self, descriptor: int, more: int) -> bool:
        found = os.fstat(descriptor)
        return 0 < self.maxBytes <= found.st_size + more and stat.S_ISREG(found.st_mode)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802
        self.lost += 1
        error = sys.exc_info()[1]
        self.trouble = f"{self.baseFilename}: {getattr(error, 'strerror', None) or error}"
        # What could not be written would stay in the stream's buffer, with all that comes after it.
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


# ------------------------------------------------------------------------------- what a line has


def _formatter(renderer: Processor) -> logging.Formatter:
    return ProcessorFormatter(
        foreign_pre_chain=[add_log_level, add_logger_name, ExtraAdder(), _add_fields],
        processors=[_add_time, ProcessorFormatter.remove_processors_meta, renderer],
    )


def _console_renderer(console: TextIO, *, as_json: bool) -> Processor:
    if as_json:
        return structlog.processors.JSONRenderer(sort_keys=False)
    return structlog.dev.ConsoleRenderer(
        colors=console.isatty(), exception_formatter=structlog.dev.plain_traceback
    )


def _add_fields(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    record: logging.LogRecord = event["_record"]
    event.pop("bound_fields", None)
    for name, value in record.__dict__.get("bound_fields", {}).items():
        event.setdefault(name, value)
    if record.exc_text:
        event["exception"] = record.exc_text
    return event


def _add_time(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    record: logging.LogRecord = event["_record"]
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return {"timestamp": at.replace("+00:00", "Z"), **event}


def _configure_structlog() -> None:
    """Have structlog's own loggers go the same way."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            add_log_level,
            add_logger_name,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.format_exc_info,
            ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
