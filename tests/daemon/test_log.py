"""What goes on is in the log, line by line, and the log is nobody's burden."""

import asyncio
import io
import json
import logging
import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog

from bullpen.api.settings import resolve
from bullpen.daemon import log as room
from bullpen.daemon.log import Log, bound, open_log

LOGGER = Path(__file__).parent / "programs/logger.py"

logger = logging.getLogger("bullpen.test")

Open = Callable[..., Log]


@pytest.fixture
def path(home: Path) -> Path:
    return home / "bullpen.log"


@pytest.fixture
def opened(path: Path) -> Iterator[Open]:
    with ExitStack() as stack:

        def open_and_close(at: Path | None = path, **options: Any) -> Log:
            log = open_log(at, **options)
            stack.callback(log.close)
            return log

        yield open_and_close


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_record_is_one_line_of_json(opened: Open, path: Path) -> None:
    log = opened()
    logger.warning("%s\nof %d lines", "a message", 2, extra={"count": 3})
    log.close()
    [line] = lines(path)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "a message\nof 2 lines",
        "level": "warning",
        "logger": "bullpen.test",
        "count": 3,
    }


def test_what_is_bound_goes_with_every_record_also_of_tasks_begun_there(
    opened: Open, path: Path
) -> None:
    async def look(pane: str) -> None:
        with bound(pane=pane):
            await asyncio.sleep(0)
            logger.info("looked")

    async def main() -> None:
        with bound(source="poller", session="claude:1"):
            tasks = [asyncio.ensure_future(look(pane)) for pane in ("%1", "%2")]
        logger.info("outside")
        await asyncio.gather(*tasks)

    log = opened()
    asyncio.run(main())
    log.close()
    outside, *inside = lines(path)
    assert "source" not in outside
    assert [(each["source"], each["session"], each["pane"]) for each in inside] == [
        ("poller", "claude:1", "%1"),
        ("poller", "claude:1", "%2"),
    ]


def test_a_failure_is_logged_with_its_traceback(opened: Open, path: Path) -> None:
    log = opened()
    try:
        raise KeyError("lost")
    except KeyError:
        logger.exception("it failed")
    log.close()
    [line] = lines(path)
    assert line["event"] == "it failed"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("KeyError: 'lost'")


def test_structlogs_own_loggers_and_warnings_go_the_same_way(opened: Open, path: Path) -> None:
    log = opened()
    structlog.get_logger("bullpen.other").info("said %s", "so", pane="%1")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("careful", stacklevel=1)
    log.close()
    said, warned = lines(path)
    assert (said["event"], said["pane"], said["level"]) == ("said so", "%1", "info")
    assert "careful" in warned["event"]


@pytest.mark.parametrize(
    ("message", "arguments", "event"),
    [
        ("%d of %s", ("x",), "'%d of %s' with 1 arguments that do not fit"),
        ("%s", ("\ud83d",), "\ud83d"),
        ("%s", (b"\xff",), "b'\\xff'"),
    ],
)
def test_an_odd_record_is_written_all_the_same(
    opened: Open, path: Path, message: str, arguments: tuple[Any, ...], event: str
) -> None:
    log = opened()
    logger.info(message, *arguments, extra={"odd": object()})
    log.close()
    [line] = lines(path)
    assert line["event"] == event
    assert line["odd"].startswith("<object")


# The level


@pytest.mark.requirement("LOG-1")
@pytest.mark.parametrize(
    ("environment", "levels"),
    [
        ({}, ["info", "warning", "error"]),
        ({"BULLPEN_LOG": "debug"}, ["debug", "info", "warning", "error"]),
        ({"BULLPEN_LOG": "warn", "RUST_LOG": "debug"}, ["warning", "error"]),
        ({"RUST_LOG": "bullpen=error"}, ["error"]),
    ],
)
def test_the_level_is_the_one_of_the_settings(
    opened: Open, path: Path, environment: dict[str, str], levels: list[str]
) -> None:
    log = opened(level=resolve(None, environment).settings.daemon.log_level)
    for name in ("debug", "info", "warning", "error"):
        getattr(logger, name)("said")
    log.close()
    assert [line["level"] for line in lines(path)] == levels


def test_of_other_libraries_what_is_wrong_is_enough(opened: Open, path: Path) -> None:
    log = opened(level="debug")
    logging.getLogger("asyncio").info("chatter")
    logging.getLogger("asyncio").error("trouble")
    log.close()
    assert [line["event"] for line in lines(path)] == ["trouble"]


def test_afterwards_logging_is_as_before(opened: Open) -> None:
    root = logging.getLogger()
    before = (root.handlers, root.level, logging.getLogger("bullpen").level)
    log = opened()
    assert root.handlers != before[0]
    log.close()
    log.close()  # twice is the same as once
    assert (root.handlers, root.level, logging.getLogger("bullpen").level) == before


# The file


def test_the_file_is_for_us_alone_whatever_it_was(opened: Open, path: Path) -> None:
    path.write_text("")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        log = opened()
        logger.info("x")
        log.close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        log = opened(max_bytes=300, files=1)
        for _ in range(10):
            logger.info("x" * 100)
        log.close()
    finally:
        os.umask(before)
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.glob("*.log*")}
    assert modes == {"bullpen.log": 0o600, "bullpen.log.1": 0o600}


def test_it_is_never_larger_than_allowed(opened: Open, path: Path) -> None:
    log = opened(max_bytes=10_000, files=2)
    for number in range(2000):
        logger.info("record %d", number)
    log.close()
    found = {each.name: each.stat().st_size for each in path.parent.glob("*.log*")}
    assert sorted(found) == ["bullpen.log", "bullpen.log.1", "bullpen.log.2"]
    assert max(found.values()) <= 10_000
    assert lines(path)[-1]["event"] == "record 1999"
    assert log.dropped == 0


def test_without_old_files_it_is_bounded_as_well(opened: Open, path: Path) -> None:
    log = opened(max_bytes=10_000, files=0)
    for number in range(500):
        logger.info("record %d", number)
    log.close()
    assert [each.name for each in path.parent.glob("*.log*")] == ["bullpen.log"]
    assert path.stat().st_size <= 10_000


def test_a_link_in_its_place_is_not_followed_and_is_told(
    opened: Open, path: Path, home: Path
) -> None:
    path.symlink_to(home / "elsewhere")
    log = opened()
    logger.info("lost")
    log.close()
    assert not (home / "elsewhere").exists()
    assert log.dropped == 1
    assert str(path) in log.trouble


def test_a_log_that_cannot_be_written_is_told_and_stops_nobody(opened: Open, home: Path) -> None:
    log = opened(home / "missing/bullpen.log")
    logger.info("lost")
    logger.info("lost")
    log.close()
    assert log.dropped == 2
    assert log.trouble == f"{home / 'missing/bullpen.log'}: No such file or directory"


def test_a_full_disk_is_told_and_stops_nobody(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(LOGGER), str(path), "5000"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    dropped, _, trouble = done.stdout.partition(" ")
    assert int(dropped) > 50
    assert trouble == f"{path}: File too large\n"
    assert path.stat().st_size <= 5000


async def test_a_disk_that_hangs_makes_nobody_wait(
    opened: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOST_WAITING", 10)
    monkeypatch.setattr(room, "CLOSE_SECONDS", 0.05)
    os.mkfifo(path)  # opening it waits for a reader
    log = await asyncio.to_thread(opened)
    begun = asyncio.get_running_loop().time()
    for _ in range(100):
        logger.info("x")
    await asyncio.to_thread(log.close)
    assert asyncio.get_running_loop().time() - begun < 1
    assert log.dropped >= 89
    assert log.trouble == "more was logged than could be written"
    with path.open() as reader:  # lets the thread go
        await asyncio.to_thread(reader.read)


# The console


def test_in_the_foreground_it_is_also_on_the_console_for_people(opened: Open, path: Path) -> None:
    console = io.StringIO()
    log = opened(console=console)
    with bound(source="poller"):
        logger.warning("no tmux server")
    log.close()
    assert "[warning  ] no tmux server" in console.getvalue()
    assert "source=poller" in console.getvalue()
    assert "\x1b" not in console.getvalue()
    assert lines(path)[0]["event"] == "no tmux server"


def test_a_process_whose_lines_another_takes_up_writes_json(opened: Open) -> None:
    console = io.StringIO()
    log = opened(None, console=console, as_json=True)
    logger.warning("no tmux server")
    log.close()
    assert json.loads(console.getvalue())["event"] == "no tmux server"
