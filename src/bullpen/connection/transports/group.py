"""A child that leads a process group, which is signalled and waited for as a whole."""

import asyncio
import os

__all__ = ["GroupLeader"]

POLL_SECONDS = 0.01  # nothing tells when the last of a group is gone; somebody has to look


class GroupLeader(asyncio.SubprocessProtocol):
    """Whose `pid` is that of its group. The group may outlive it, and is then still ours."""

    def __init__(self) -> None:
        self.pid = 0
        self._exited = asyncio.Event()
        self._has_group = True  # whether anybody of its group may be left

    def process_exited(self) -> None:
        self._has_group = self._signal(0)  # at once: later, the number might be somebody else's
        self._exited.set()

    async def _wait_group(self, seconds: float) -> bool:
        """Wait a while for the end of everybody in the group; return whether it came."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._signal(0):
            if loop.time() > deadline:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return self._exited.is_set()

    def _signal(self, number: int) -> bool:
        """Signal the group; return whether there is anybody in it."""
        if not self._has_group or not self.pid:
            return False
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            self._has_group = False
        except PermissionError:  # so macOS says of a group of which only a zombie is left
            self._has_group = not self._exited.is_set()
        return self._has_group
