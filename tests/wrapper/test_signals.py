"""A program that stops itself takes its wrapper with it to the shell, however that is learned."""

import asyncio
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from bullpen.agents.instances import Instance
from bullpen.agents.processes import start_of
from bullpen.testing.tmux import eventually
from bullpen.wrapper import reach
from bullpen.wrapper.signals import Signals
from bullpen.wrapper.user_terminal import UserTerminal

STOPS_ITSELF = "import os, signal; os.setsid(); os.kill(os.getpid(), signal.SIGSTOP); print('on')"


class User:
    """A terminal whose owner comes back at once."""

    size = (80, 24)

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1


@pytest.mark.parametrize("has_waitid", [True, False], ids=["waitid", "ps"])
async def test_a_program_that_stops_itself_stops_the_wrapper_and_goes_on_with_it(
    has_waitid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_waitid:
        monkeypatch.delattr(os, "waitid", raising=False)
    elif not hasattr(os, "waitid"):
        pytest.skip("on macOS, Python has it since 3.13")
    terminal = SimpleNamespace(process=None, resize=lambda *_: None)
    agent, user = SimpleNamespace(terminal=terminal, stop=lambda: None), User()
    with Signals(cast("Any", agent), cast("UserTerminal", user)):
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", STOPS_ITSELF), stdout=asyncio.subprocess.PIPE
        )
        terminal.process = program
        try:

            async def is_stopped() -> bool:
                os.kill(os.getpid(), signal.SIGCHLD)  # the first may have come too early
                return user.stops > 0

            await eventually(is_stopped)
            said, _ = await asyncio.wait_for(program.communicate(), 20)
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
    assert said == b"on\n"
    assert user.stops == 1


async def test_a_terminal_that_is_gone_has_the_usual_size() -> None:
    master, slave = os.openpty()
    terminal = UserTerminal(slave)
    os.close(master)
    try:
        assert terminal.size == (80, 24)
    finally:
        terminal.close()


def test_where_no_descriptor_stands_for_a_process_its_start_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["sleep", "600"]) as program:
        try:
            monkeypatch.delattr(os, "pidfd_open", raising=False)
            monkeypatch.setattr("sys.platform", "darwin")
            start = start_of(program.pid) or ""
            known = Instance(name="a", profile="dummy", pid=program.pid, start=start)
            another = msgspec.structs.replace(known, start="Sun Nov 15 14:00:37 2020")
            reach._signal(another, signal.SIGKILL)
            reach._signal(known, signal.SIGTERM)
            assert program.wait(20) == -signal.SIGTERM
            reach._signal(known, signal.SIGTERM)  # it has ended
        finally:
            program.kill()
