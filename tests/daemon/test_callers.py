"""Whose a caller is, is told by the processes above it, on every system."""

import asyncio
import os
import sys

import pytest

from bullpen.daemon import callers

MEANWHILE = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


@pytest.mark.parametrize("platform", ["linux", "darwin"])
async def test_the_processes_above_a_caller_are_found(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if platform == "linux" and sys.platform != "linux":
        pytest.skip("there is no /proc")
    caller = await asyncio.create_subprocess_exec(
        *("sh", "-c", '"$@"; true', "sh", sys.executable, "-I", "-S", "-c", MEANWHILE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert caller.stdin is not None
    assert caller.stdout is not None
    try:
        pid = int(await asyncio.wait_for(caller.stdout.readline(), 20))
        monkeypatch.setattr(sys, "platform", platform)
        found = await asyncio.to_thread(callers._ancestry, pid)
        assert found[:3] == (pid, caller.pid, os.getpid())
        assert await asyncio.to_thread(callers._ancestry, 2**22 + 1) == (2**22 + 1,)
    finally:
        caller.stdin.close()
        await asyncio.wait_for(caller.wait(), 20)
