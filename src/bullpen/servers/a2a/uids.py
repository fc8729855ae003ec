"""Whose the other end of a connection on this machine is, from the kernel's tables. No I/O."""

import socket
import sys

__all__ = ["Address", "uid_of"]

Address = tuple[str, int]
"""An IP address and a port."""

UID, INODE = 4, 6  # columns of /proc/net/tcp and tcp6, counted from behind the addresses
MAPPED = bytes(10) + b"\xff\xff"


def uid_of(client: Address, server: Address, *tables: str) -> int | None:
    """Return the user of the socket that a client speaks from, to a server on the same machine.

    `tables` are the texts of `/proc/net/tcp` and `/proc/net/tcp6`. None if it is in none of them,
    or was closed: then nobody owns it any more.
    """
    for table in tables:
        for is_wide in (False, True):
            ends = f" {_written(client, is_wide)} {_written(server, is_wide)} "
            _, found, rest = table.partition(ends)  # there may be thousands of others
            if found:
                columns = rest.partition("\n")[0].split()
                is_whole = len(columns) > INODE
                return int(columns[UID]) if is_whole and columns[INODE] != "0" else None
    return None


def _written(address: Address, is_wide: bool) -> str:
    """Return an address as it stands in a table: words of four bytes as the machine has them."""
    host, port = address
    if ":" in host:
        data = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    else:
        data = socket.inet_pton(socket.AF_INET, host)
        data = MAPPED + data if is_wide else data
    words = (data[i : i + 4] for i in range(0, len(data), 4))
    return "".join(f"{int.from_bytes(each, sys.byteorder):08X}" for each in words) + f":{port:04X}"
