"""The MCP server beside a real daemon: what is sent through it is in the one store of mail."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.api.runtime import Paths, prepare
from bullpen.daemon.main import Daemon
from bullpen.servers.mcp import serve
from tests.cli.commands import PROGRAM, SECONDS
from tests.daemon.harness import Peer, settings
from tests.servers.mcp.room import raw_peer, there
from tests.servers.mcp.test_plain import LIST

HEAVY = {"anyio", "mcp", "pydantic", "starlette", "uvicorn"}


@asynccontextmanager
async def daemon_with_mcp(**sections: Any) -> AsyncIterator[tuple[Paths, Peer]]:
    paths = Paths.resolve()
    await asyncio.to_thread(prepare, paths)
    async with Daemon(settings(**sections), paths, companions=[serve]):
        await there(paths.mcp_socket)
        yield paths, Peer(paths.socket)


def test_the_sdk_is_not_loaded_before_somebody_needs_it() -> None:
    program = "import sys, bullpen.servers.mcp, bullpen.daemon.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    assert b"bullpen.servers.mcp.peer" in loaded
    assert not HEAVY & set(loaded.decode().split())


@pytest.mark.requirement("O-60", "O-75", "O-76")
async def test_what_is_sent_through_mcp_is_seen_at_every_other_door() -> None:
    async with daemon_with_mcp() as (paths, peer), raw_peer(paths) as mcp:
        ghost = await mcp.call("send_message", to="ghost", content="hi")
        assert ghost["error"]["code"] == -32000
        sent = await mcp.call("send_message", to="user", content="こんにちは", wait=False)
        [delivery] = (await peer.ask("mail.inbox"))["deliveries"]
        assert delivery["message"]["content"] == "こんにちは"
        assert delivery["message"]["id"] in sent["result"]["content"]
        late = await mcp.call("ask_user", question="which?", timeout_seconds=0.1)
        assert late["error"]["code"] == -32001
        assert late["error"]["data"] == {"timeout_seconds": 0.1, "agent_id": "user"}
        foreign = {"jsonrpc": "2.0", "method": "bullpen/hello", "params": {"secret": "made up"}}
    async with daemon_with_mcp() as (paths, _), raw_peer(paths) as mcp:
        mcp.write(foreign)
        refused = await mcp.call("send_message", to="user", content="hi")
        assert refused["error"]["data"]["reason"] == "identity_unknown"


@pytest.mark.requirement("mcp:pump")
def test_a_pump_without_a_daemon_starts_a_real_one(home: Path) -> None:
    environment = os.environ | {"BULLPEN_OBSERVE_TMUX_ONLY": "1", "BULLPEN_SOURCES_POLLER": "0"}
    done = subprocess.run(
        [PROGRAM, "mcp"],
        input=json.dumps(LIST).encode(),
        capture_output=True,
        timeout=SECONDS * 2,
        env=environment,
        check=True,
    )
    try:
        assert json.loads(done.stdout)["result"]["tools"][0]["name"] == "send_message"
    finally:
        ended = subprocess.run(
            [PROGRAM, "down"], capture_output=True, timeout=SECONDS, env=environment, check=False
        )
    assert ended.returncode == 0, ended
