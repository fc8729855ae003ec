"""Real agent programs call our tools: the server as `mcp install` writes it, the pump, the SDK."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from bullpen.agents.mcp_install import install
from bullpen.api import talk
from bullpen.model.states import Provider
from bullpen.testing.models import ModelServer
from bullpen.testing.programs import NodeMissing, launch
from tests.servers.mcp.room import served

pytestmark = [
    pytest.mark.program,
    pytest.mark.timeout(900),  # the first run downloads
    pytest.mark.xdist_group("real-programs"),
]

SECONDS = 120.0
CALL = '{"to": "middle_manager", "content": "6*7 は?"}'
PROMPTS = {
    "claude": f"<<tool mcp__bullpen__send_message {CALL} ;; results>>",
    "copilot": f"<<tool bullpen-send_message {CALL} ;; results>>",
    "gemini": f"<<tool mcp_bullpen_send_message {CALL} ;; results>>",
    "opencode": f"<<tool bullpen_send_message {CALL} ;; results>>",
    "codex": f"<<tool mcp__bullpen::send_message {CALL} ;; results>>",
}
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "copilot": ("--allow-all-tools",),
    "gemini": ("--approval-mode", "yolo"),
    "opencode": (),
    "claude": ("--allowedTools", "mcp__bullpen__send_message"),
    "codex": ("-s", "danger-full-access", "--dangerously-bypass-approvals-and-sandbox"),
}


@pytest.mark.requirement("O-14", "O-60", "mcp:install")
@pytest.mark.parametrize("provider", list(PROMPTS))
async def test_a_program_sends_a_message_and_its_model_reads_the_answer(
    provider: str, home: Path
) -> None:
    project = home / "project"
    project.mkdir()
    private = home / "private"
    locations = {name: os.environ[name] for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME")}
    async with ModelServer() as models, served() as (room, _):
        try:
            started = await asyncio.to_thread(
                launch,
                provider,
                "prompt",
                home=private,
                model_url=models.url,
                project=project,
                prompt=PROMPTS[provider],
                arguments=ARGUMENTS[provider],
                variables={"BULLPEN_SECRET": "secret-of-boss", **locations},
            )
        except NodeMissing as missing:
            pytest.skip(str(missing))
        await asyncio.to_thread(install, Provider(provider), environment={"HOME": str(private)})
        said = await run(started)
    assert [each.from_agent for each in room.messages.values()] == ["grand_boss"], said
    [sent] = room.asked(talk.SendMessage)
    assert sent.content == "6*7 は?"
    assert "middle_manager: 6*7 は?" in said.replace("\\u306f", "は")


async def run(started: Any) -> str:
    process = await asyncio.create_subprocess_exec(
        *started.argv,
        env=dict(started.env),
        cwd=started.cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return out.decode(errors="replace")
