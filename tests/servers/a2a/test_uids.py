"""Whose a connection is, as the kernel's tables tell it."""

import os
import socket
import sys
from pathlib import Path

import pytest

from bullpen.servers.a2a.uids import uid_of

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  …\n"
ENDS = "0100007F:C350 0100007F:1F90"
OTHER = f"   1: {ENDS} 01 00000000:00000000 00:00000000 00000000  1000        0 77 1\n"

needs_tables = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such tables")
little = pytest.mark.skipif(sys.byteorder != "little", reason="the rows are of such a machine")


@little
@pytest.mark.requirement("a2a:loopback")
def test_the_row_of_the_callers_own_end_tells() -> None:
    client, server = ("127.0.0.1", 50000), ("127.0.0.1", 8080)
    assert uid_of(client, server, HEAD + OTHER) == 1000
    assert uid_of(server, client, HEAD + OTHER) is None  # that would be our end
    assert uid_of(client, ("127.0.0.1", 8081), HEAD + OTHER) is None
    closed = OTHER.replace(" 77 ", " 0 ")
    assert uid_of(client, server, HEAD + closed) is None
    mapped = OTHER.replace("0100007F", "0000000000000000FFFF00000100007F")
    assert uid_of(client, server, HEAD, HEAD + mapped) == 1000
    assert uid_of(client, server, HEAD + "  2: nonsense\n") is None


@needs_tables
@pytest.mark.requirement("a2a:loopback")
@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["4", "6"]
)
def test_a_real_connection_of_ours_is_ours(family: socket.AddressFamily, host: str) -> None:
    try:
        listening = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("there is no such address here")
    with listening, socket.create_connection(listening.getsockname()[:2]) as client:
        tables = [Path(f"/proc/net/{each}").read_text() for each in ("tcp", "tcp6")]
        ends = client.getsockname()[:2], listening.getsockname()[:2]
        assert uid_of(*ends, *tables) == os.getuid()
