"""What `conftest.py` and the settings promise every other test is true."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from blockbuster import BlockingError

import bullpen
from tests.thorough import IS_WANTED


async def test_asyncio_debug_is_on_for_who_has_the_time() -> None:
    assert asyncio.get_running_loop().get_debug() is IS_WANTED


async def test_a_blocking_call_of_ours_in_a_loop_raises() -> None:
    ours = compile("time.sleep(0)", f"{bullpen.__path__[0]}/module.py", "eval")
    with pytest.raises(BlockingError):
        eval(ours, {"time": time})


def test_home_and_runtime_directories_are_the_tests_own(home: Path) -> None:
    assert Path.home() == home
    assert list(home.iterdir()) == [Path(os.environ["XDG_RUNTIME_DIR"])]


def test_a_socket_fits_into_the_runtime_directory() -> None:
    longest = 103  # bytes of a Unix socket's path on macOS, which allows less than Linux
    assert len(os.environ["XDG_RUNTIME_DIR"]) + len("/daemon-0123456789.socket") <= longest
