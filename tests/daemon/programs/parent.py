"""A supervisor that is killed: `parent.py SOCKET WITNESS`. It says so when its child is ready."""

import asyncio
import sys
from pathlib import Path

from bullpen.daemon.supervisor import ChildSpec, Supervisor
from bullpen.model.alerts import AlertLevel, ResolvePolicy

CHILD = Path(__file__).parent / "child.py"


class Silence:
    def sound(
        self,
        key: str,
        level: AlertLevel,
        reason: str,
        message: str,
        *,
        policy: ResolvePolicy = ResolvePolicy.AUTO,
    ) -> None: ...

    def clear(self, key: str) -> None: ...


async def main() -> None:
    socket, witness = sys.argv[1:]
    command = (sys.executable, str(CHILD), witness, "well", "--socket-path", socket)
    async with Supervisor(
        [ChildSpec(name="poller", command=command, socket=Path(socket))], Silence()
    ):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


asyncio.run(main())
