"""Reaching wrappers from outside, with or without a daemon: finding them, asking them, ending them.

A wrapper is found by its file, and is believed only as long as the very process that wrote it runs.
"""

import asyncio
import contextlib
import difflib
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from bullpen.agents.instances import Instance, Instances
from bullpen.agents.registry import AgentRegistry, RegistryError
from bullpen.api.runtime import Paths
from bullpen.connection import Connection, SocketTransport, TypedRequest
from bullpen.errors import BullpenError
from bullpen.wrapper.attaching import AskStop

__all__ = [
    "Instance",
    "NotWrapped",
    "StillThereError",
    "ask",
    "clean",
    "end",
    "find",
    "leftovers",
    "read",
    "running",
    "wait_gone",
]

ANSWER_SECONDS = 5.0
STOP_ANSWER_SECONDS = 1.0
STEP_SECONDS = 2.0  # for a wrapper to end its program and itself; it takes less than one
LOOK_SECONDS = 0.01  # nothing tells when a process has ended that is not ours

R = TypeVar("R")


class NotWrapped(BullpenError):
    """No wrapped agent of that name runs. The message names those that do."""

    def __init__(self, name: str, there: Sequence[str]) -> None:
        close = difflib.get_close_matches(name, there, n=1)
        if close:
            more = f"; did you mean {close[0]}?"
        else:
            more = f"; there are {', '.join(there)}" if there else "; `bullpen run` starts one"
        super().__init__(f"no agent called {name!r} runs in a wrapper{more}")
        self.name = name
        self.there = tuple(there)


class StillThereError(BullpenError):
    """A wrapper was killed, and its process is there all the same. It may yet end."""

    def __init__(self, name: str, pid: int) -> None:
        super().__init__(f"{name} (pid {pid}) does not end, not even when it is killed")
        self.name = name
        self.pid = pid


def running(paths: Paths) -> tuple[Instance, ...]:
    """Return the wrappers that run."""
    return Instances(paths.agents).running()


def read(paths: Paths, name: str) -> Instance | None:
    """Return what is known of a wrapper, whether it runs or not."""
    return Instances(paths.agents).read(name)


def find(paths: Paths, name: str) -> Instance:
    """Return the wrapper of a name; of a profile's name or `profile-port`, if there is one only.

    Raises:
        NotWrapped: there is none.
    """
    there = running(paths)
    for names in (
        lambda each: each.name,
        lambda each: each.profile,
        lambda each: f"{each.profile}-{each.port}",
    ):
        found = [each for each in there if names(each) == name]
        if len(found) == 1:
            return found[0]
    raise NotWrapped(name, [each.name for each in there])


async def ask(
    instance: Instance, request: TypedRequest[R], *, seconds: float = ANSWER_SECONDS
) -> R:
    """Ask a wrapper over its own socket.

    Raises:
        BullpenError: nobody answers there.
    """
    transport = SocketTransport.unix(instance.socket)
    async with Connection.builder().name("reach").connect(transport) as connection:
        return await connection.request(request, timeout=seconds)


async def end(instance: Instance, *, is_asked: bool = False) -> str:
    """End a wrapper and its agent; return how: `stopped`, `terminated` or `killed`.

    It is asked first, unless somebody has; one that does not listen is signalled, and only if it
    is still the same process. What it then leaves behind is taken away.

    Raises:
        StillThereError: it does not end.
    """
    if not is_asked:
        with contextlib.suppress(BullpenError):  # then it is signalled
            await ask(instance, AskStop(), seconds=STOP_ANSWER_SECONDS)
    if await wait_gone(instance, STEP_SECONDS):
        return "stopped"
    for number, how in ((signal.SIGTERM, "terminated"), (signal.SIGKILL, "killed")):
        await asyncio.to_thread(_signal, instance, number)
        if await wait_gone(instance, STEP_SECONDS):
            await asyncio.to_thread(_forget, instance)
            return how
    raise StillThereError(instance.name, instance.pid)


async def wait_gone(instance: Instance, seconds: float) -> bool:
    """Wait until a wrapper's process is gone; return whether it is."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while await asyncio.to_thread(lambda: instance.is_running):
        if loop.time() > deadline:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


def leftovers(paths: Paths) -> tuple[str, ...]:
    """Return what wrappers that were killed have left behind, in words."""
    instances = Instances(paths.agents)
    dead = AgentRegistry(instances=instances).dead()
    return (
        *(f"the wrapper of {each.name} (pid {each.pid}) is gone" for each in instances.dead()),
        *(f"the process of {each} in the registry is gone" for each in dead),
    )


def clean(paths: Paths) -> tuple[str, ...]:
    """Take away what wrappers that were killed have left behind; return what that was, in words.

    Raises:
        RegistryError: the registry cannot be used.
    """
    found = leftovers(paths)
    instances = Instances(paths.agents)
    AgentRegistry(instances=instances).clean()  # by what is known of the dead, so that is last
    instances.clean()
    return found


def _signal(instance: Instance, number: int) -> None:
    """Signal a wrapper, and nobody who has its number by now."""
    try:
        if not hasattr(os, "pidfd_open"):
            if instance.is_running:
                os.kill(instance.pid, number)
            return
        descriptor = os.pidfd_open(instance.pid)  # whom it means cannot change any more
        try:
            if instance.is_running:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)
    except OSError:  # it has ended
        return


def _forget(instance: Instance) -> None:
    """Take away what a wrapper that was signalled may have left."""
    if instance.agent_id:
        with contextlib.suppress(RegistryError):
            AgentRegistry().unregister(instance.agent_id, pid=instance.pid)
    Instances(Path(instance.socket).parent).bury(instance)
