"""Running commands: in this process for what they say, as a program for how they behave."""

import asyncio
import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bullpen.cli.group import run

PROGRAM = str(Path(sys.executable).with_name("bullpen"))
SECONDS = 30.0  # a hang, on however busy a machine


class Done(NamedTuple):
    """What became of a command."""

    code: int
    out: str
    err: str = ""

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


async def invoke(*arguments: str) -> Done:
    """Run a command in a thread of this process: its daemon may be served by this one's loop."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = await asyncio.to_thread(run, arguments)
    return Done(code, _content(out), _content(err))


async def show(*arguments: str) -> Done:
    """Run a command that is to succeed."""
    done = await invoke(*arguments)
    assert done.code == 0, done
    return done


async def execute(*arguments: str, **environment: str) -> Done:
    """Run the program itself, as a shell would."""
    return await pipe(b"", *arguments, **environment)


async def pipe(data: bytes, *arguments: str, **environment: str) -> Done:
    """Run the program itself, and let it read this."""
    done = await asyncio.to_thread(
        subprocess.run,
        [PROGRAM, *arguments],
        input=data,
        capture_output=True,
        timeout=SECONDS,
        check=False,
        env=os.environ | environment,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def _content(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
