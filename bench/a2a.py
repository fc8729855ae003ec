"""What the rows about A2A share."""

import asyncio
from pathlib import Path

__all__ = ["a2a_port"]

SECONDS = 30.0


async def a2a_port(home: Path) -> int:
    """Return the port at which the daemon of a home serves all agents."""
    path = home / "bullpen/run/bullpend.a2a-port"
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return int(path.read_text())
            except (OSError, ValueError):
                await asyncio.sleep(0.05)
