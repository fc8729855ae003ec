"""Being found by others: the entry in the registry, and the file that says which wrapper we are."""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from bullpen.agents.instances import Instance, Instances
from bullpen.agents.processes import start_of
from bullpen.agents.registry import AgentEntry, AgentRegistry
from bullpen.errors import BullpenError
from bullpen.wrapper.options import WrapperOptions
from bullpen.wrapper.port import HeldPort
from bullpen.wrapper.status import Status

__all__ = ["Presence"]

logger = logging.getLogger("bullpen.wrapper")


class Presence:
    """Our entries, from before the program's start until after its end.

    Without them the agent runs all the same, so what goes wrong with them is only logged.
    """

    def __init__(self, options: WrapperOptions) -> None:
        self._options = options
        self._instances = Instances(options.paths.agents)
        self._registry = AgentRegistry(instances=self._instances)
        self._entry: AgentEntry | None = None
        self._instance: Instance | None = None
        self._status = Status.STARTING
        self._held: HeldPort | None = None

    @property
    def port(self) -> int | None:
        """The port the agent is announced at."""
        return self._options.port if self._entry is None else self._entry.port

    @property
    def is_named(self) -> bool:
        """Whether we are known by a name."""
        return self._instance is not None

    @property
    def socket(self) -> Path:
        """Where the agent can be attached to, by the first name it had."""
        if self._instance is not None:
            return Path(self._instance.socket)
        return self._options.paths.agents / f"{os.getpid()}.sock"

    @property
    def log(self) -> Path | None:
        """Where what the program writes is kept, if it is."""
        given = self._instance.log if self._instance is not None else ""
        return Path(given) if given else self._options.output_path

    async def enter(self) -> None:
        """Be in the registry."""
        try:
            self._entry = await asyncio.to_thread(self._enter)
            self._held = await HeldPort.open(self._entry.port)
        except (BullpenError, OSError) as error:
            logger.warning("others do not find us: %s", error)

    async def name(self, name: str) -> str:
        """Be known by a name, or by one like it if another wrapper has it; return which."""
        try:
            return await asyncio.to_thread(self._write, name)
        except (BullpenError, OSError) as error:
            logger.warning("we cannot be attached to: %s", error)
            return name

    async def update(self, status: Status) -> None:
        """Say what the program is doing."""
        if self._entry is None or status is self._status:
            return
        self._status = status
        self._entry = msgspec.structs.replace(self._entry, status=status)
        try:
            await asyncio.to_thread(self._update, self._entry)
        except (BullpenError, OSError) as error:
            logger.warning("our entry is not kept: %s", error)

    async def hand_over(self, secret: Callable[[], str]) -> None:
        """Have the agent's port served by the daemon as long as there is one. Until cancelled."""
        if self._held is not None:
            await self._held.hand_over(self._options.paths.a2a_socket, secret)

    async def leave(self) -> None:
        """Be gone."""
        if self._held is not None:
            self._held.close()
            self._held = None
        try:
            await asyncio.to_thread(self._leave)
        except (BullpenError, OSError) as error:
            logger.warning("our entry stays: %s", error)

    def _enter(self) -> AgentEntry:
        options, agent_type = self._options, self._options.profile.name
        given = options.port
        return self._registry.register(
            self._registry.get_agent_id(agent_type, options.cwd),
            agent_type,
            options.profile.port if given is None else given,
            Status.STARTING,
            working_dir=options.cwd,
            may_move=given is None,
        )

    def _update(self, entry: AgentEntry) -> None:
        if not self._registry.update_status(entry.agent_id, entry.status):
            self._registry.restore(entry)  # somebody took us for dead

    def _write(self, name: str) -> str:
        options, before = self._options, self._instance
        if before is not None and before.name == name:
            return name
        wanted = Instance(
            name=name,
            profile=options.profile.name,
            pid=os.getpid(),
            start=start_of(os.getpid()) or "",
            socket=before.socket if before is not None else "",
            agent_id=self._entry.agent_id if self._entry is not None else "",
            port=self.port,
            cwd=str(options.cwd),
            log=before.log if before is not None else str(options.output_path or ""),
            is_detached=options.is_detached,
        )
        logs = options.paths.agent_logs if options.is_detached else None
        self._instance, replaced = self._instances.claim(wanted, logs=logs)
        if before is not None:
            self._instances.remove(before)
        if replaced is not None:  # it can leave nothing in order any more
            self._instances.bury(replaced)
            self._registry.unregister(replaced.agent_id, pid=replaced.pid)
        return self._instance.name

    def _leave(self) -> None:
        # In this order: who is in the registry without a file of ours is taken for somebody else.
        if self._entry is not None:
            self._registry.unregister(self._entry.agent_id)
            self._entry = None
        if self._instance is not None:
            Path(self._instance.socket).unlink(missing_ok=True)
            self._instances.remove(self._instance)
            self._instance = None
