"""Has schemathesis ask a house for what its own description promises, and for what it does not."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bullpen.model.states import Activity
from tests.daemon.wrapping import ScriptedWrapper, wrapped

__all__ = ["answering", "fuzz", "within_reach"]

LIMIT = 2**20


@asynccontextmanager
async def answering(name: str) -> AsyncIterator[ScriptedWrapper]:
    """Have an agent that answers everything at once, for a block."""

    async def answer(agent: ScriptedWrapper) -> None:
        while True:
            asked = await agent.typed.get()
            await agent.answer(asked, "so it is")
            await agent.tell(Activity.IDLE)

    async with wrapped(name) as agent:
        answers = asyncio.create_task(answer(agent))
        try:
            yield agent
        finally:
            answers.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answers


def within_reach(description: dict[str, Any], url: str) -> dict[str, Any]:
    """Return a description by which nobody else on this machine, or elsewhere, is called.

    And by which an error of ours in JSON-RPC is a wrong answer, as it is by REST.
    """
    schemas = description["components"]["schemas"]
    for shape in (
        "Discover",
        "v1.TaskPushNotificationConfig.sent",
        "v0.3.PushNotificationConfig.sent",
        "v0.3.PushNotificationConfig.said",
    ):
        schemas[shape]["properties"]["url"] = {"enum": [url]}
    for path in ("/a2a/jsonrpc", "/a2a/jsonrpc/"):
        answered = description["paths"][path]["post"]["responses"]["200"]["content"]
        error = answered["application/json"]["schema"]["properties"]["error"]
        error["properties"]["code"]["not"] = {"enum": [-32603]}
    return description


CONFIGURATION = """
[generation]
database = "none"

[checks]
# Who is refused for what cannot be said in a shape hears 400: a part that is no text, for one.
positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 429]

[[operations]]
include-path-regex = "/jsonrpc/?$"
# JSON-RPC says in the body what is wrong.
checks.negative_data_rejection.enabled = false
checks.missing_required_header.enabled = false
"""


async def fuzz(
    description: Mapping[str, Any], directory: Path, *options: str, token: str = ""
) -> tuple[int, str]:
    """Run schemathesis; return how it ended, and what it said."""
    schema, configuration = directory / "openapi.json", directory / "schemathesis.toml"
    await asyncio.to_thread(schema.write_text, json.dumps(description))
    await asyncio.to_thread(configuration.write_text, CONFIGURATION)
    command: Sequence[str] = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "--config-file",
        str(configuration),
        "run",
        str(schema),
        "--url",
        description["servers"][0]["url"],
        "--no-color",
        "--suppress-health-check=all",  # a busy machine is no reason to complain
        "--request-timeout=60",
        *options,
    ]
    if token:
        command = [*command, "--header", f"Authorization:Bearer {token}"]
    program = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=LIMIT,
    )
    try:
        said, _ = await program.communicate()
    except BaseException:
        program.kill()
        await program.wait()
        raise
    assert program.returncode is not None
    return program.returncode, said.decode(errors="replace")
