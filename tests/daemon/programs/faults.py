"""As `sitecustomize`, this makes a daemon die, or wait, at a step of the receipt machine.

`FAULTS` is a directory. Its file `armed` names the point; `reached` appears when it is reached.
A point is `before-` and a step, or a step that has just been written down: `accepted`, `leased`,
`injected` …, `answered`. With `hold:` in front the daemon waits there until `armed` is gone.
"""

import asyncio
import os
import signal
import sys
from functools import wraps
from pathlib import Path
from typing import Any


def arm(directory: Path) -> None:
    from bullpen.mail.sqlite import SqliteMailboxes

    async def reach(point: str) -> None:
        try:
            wanted = (directory / "armed").read_text(encoding="utf-8")
        except OSError:
            return
        if wanted.removeprefix("hold:") != point:
            return
        (directory / "reached").touch()
        if wanted == point:
            os.kill(os.getpid(), signal.SIGKILL)
        while (directory / "armed").exists():  # noqa: ASYNC110 - it is somebody else's file
            await asyncio.sleep(0.01)

    append, lease, settle = SqliteMailboxes.append, SqliteMailboxes.lease, SqliteMailboxes.settle

    @wraps(append)
    async def append_there(self: Any, message: Any, **more: Any) -> Any:
        step = "answered" if message.reply_to else "accepted"
        await reach(f"before-{step}")
        appended = await append(self, message, **more)
        await reach(step)
        return appended

    @wraps(lease)
    async def lease_there(self: Any, recipient: str, **more: Any) -> Any:
        leased = await lease(self, recipient, **more)
        if leased:
            await reach("leased")
        return leased

    @wraps(settle)
    async def settle_there(
        self: Any, message_id: str, recipient: str, state: Any, **more: Any
    ) -> Any:
        await reach(f"before-{state}")
        settled = await settle(self, message_id, recipient, state, **more)
        await reach(str(state))
        return settled

    for name, method in (
        ("append", append_there),
        ("lease", lease_there),
        ("settle", settle_there),
    ):
        setattr(SqliteMailboxes, name, method)


if "daemon" in sys.orig_argv and "FAULTS" in os.environ:
    arm(Path(os.environ["FAULTS"]))
