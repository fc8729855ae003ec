"""Only we ourselves are served, by the word of the kernel."""

import asyncio
import json
import os
import socket
import struct
import sys
from pathlib import Path
from typing import cast

import pytest

from bullpen.api import peers
from bullpen.api.errors import ApiError, reason_of
from bullpen.api.methods import ListPanes
from bullpen.api.peers import authorize_owner, peer_pid, peer_uid
from bullpen.connection import Connection, RemoteError, SocketTransport, listen_unix
from bullpen.model.reasons import Reason

STRANGER = Path(__file__).parent / "programs/stranger.py"
NOBODY = 65534

server = Connection.builder().on_request(ListPanes, lambda _, context: ())


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert peer_uid(ours) == os.getuid()
        assert peer_pid(ours) == os.getpid()
        assert authorize_owner(ours) is None


def test_of_a_socket_that_is_no_unix_socket_there_is_no_process() -> None:
    with socket.socket() as nobodys:
        nobodys.close()
        assert peer_pid(nobodys) == 0


async def test_we_ourselves_are_served(home: Path) -> None:
    path = str(home / "run/socket")
    async with (
        listen_unix(path, server, authorize=authorize_owner),
        Connection.builder().connect(SocketTransport.unix(path)) as connection,
    ):
        assert await connection.request(ListPanes()) == ()


@pytest.mark.requirement("A3-1", "A8-2", "ERR-9")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
async def test_another_user_is_refused_and_hung_up_on(home: Path) -> None:
    path = home / "run/socket"
    async with listen_unix(str(path), server, authorize=authorize_owner):
        for opened in (home, path.parent):  # as by somebody's mistake
            opened.chmod(0o755)
        path.chmod(0o666)
        stranger = await asyncio.create_subprocess_exec(
            sys.executable, "-I", STRANGER, path, str(NOBODY), stdout=asyncio.subprocess.PIPE
        )
        said, _ = await asyncio.wait_for(stranger.communicate(), 20)
        async with Connection.builder().connect(SocketTransport.unix(str(path))) as ours:
            assert await ours.request(ListPanes()) == ()
    assert json.loads(said) == {
        "jsonrpc": "2.0",
        "id": "mine",
        "error": {
            "code": Reason.PEER_UID_MISMATCH.value,
            "message": f"this is user 0's, and you are user {NOBODY}",
            "data": {"reason": "peer_uid_mismatch", "peer": NOBODY, "owner": 0},
        },
    }


@pytest.mark.requirement("A3-1")
async def test_one_of_whom_the_kernel_says_nothing_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(connected: socket.socket) -> int:
        raise OSError("not here")

    monkeypatch.setattr(peers, "peer_uid", silent)
    path = str(home / "run/socket")
    async with (
        listen_unix(path, server, authorize=authorize_owner),
        Connection.builder().connect(SocketTransport.unix(path)) as connection,
    ):
        with pytest.raises(RemoteError, match="it cannot be told who you are") as caught:
            await connection.request(ListPanes())
    assert reason_of(caught.value) == "peer_uid_mismatch"


def test_the_refusal_is_one_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "peer_uid", lambda connected: 4711)
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        refusal = authorize_owner(ours)
    assert isinstance(refusal, ApiError)
    assert (refusal.code, refusal.data["peer"]) == (-32024, 4711)


class OnMacOS:
    """A socket as the documentation of macOS has it: unix(4), and xucred in sys/ucred.h."""

    def getsockopt(self, level: int, option: int, size: int = 0) -> int | bytes:
        assert level == 0  # SOL_LOCAL
        if option == 2:  # LOCAL_PEERPID
            return 4711
        assert (option, size) == (1, 76)  # LOCAL_PEERCRED
        return struct.pack("=IIhxx16I", 0, 501, 1, *range(16))


def test_macos_tells_by_its_own_options_who_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    connected = cast("socket.socket", OnMacOS())
    assert peer_uid(connected) == 501
    assert peer_pid(connected) == 4711
    monkeypatch.setattr(os, "getuid", lambda: 501)
    assert authorize_owner(connected) is None
