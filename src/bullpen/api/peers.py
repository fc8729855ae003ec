"""Who is at the other end of a Unix socket, by the word of the kernel.

The socket is for its owner alone, and so is its directory; should either be opened by mistake, this
is what still keeps others out.
"""

import os
import socket
import struct
import sys

from bullpen.api.errors import ApiError
from bullpen.model.reasons import Reason

__all__ = ["authorize_owner", "peer_pid", "peer_uid"]

_UCRED = struct.Struct("3i")  # Linux: pid, uid, gid
_XUCRED = struct.Struct("2I")  # macOS and BSD: a version, the uid; groups follow
_XUCRED_BYTES = 76
_SOL_LOCAL = 0  # the last three are not in Python's socket module everywhere
_LOCAL_PEERCRED = 1
_LOCAL_PEERPID = 2


def peer_uid(connected: socket.socket) -> int:
    """Return the user who connected, as the kernel noted it then.

    Raises:
        OSError: the kernel does not tell.
    """
    if sys.platform == "linux":
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        _, uid, _ = _UCRED.unpack(credentials)
        return int(uid)
    credentials = connected.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES)
    _, uid = _XUCRED.unpack_from(credentials)
    return int(uid)


def peer_pid(connected: socket.socket) -> int:
    """Return the process that connected, as the kernel noted it then; 0 if it does not tell.

    The number may be another process's by now.
    """
    try:
        if sys.platform == "linux":
            credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            return int(_UCRED.unpack(credentials)[0])
        return connected.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID)
    except (OSError, struct.error):
        return 0


def authorize_owner(connected: socket.socket) -> ApiError | None:
    """Return why a peer may not be served: it is not us. For `listen_unix(authorize=…)`."""
    try:
        uid = peer_uid(connected)
    except (OSError, struct.error) as error:
        return ApiError(
            Reason.PEER_UID_MISMATCH, f"it cannot be told who you are: {error}", owner=os.getuid()
        )
    if uid == os.getuid():
        return None
    return ApiError(
        Reason.PEER_UID_MISMATCH,
        f"this is user {os.getuid()}'s, and you are user {uid}",
        peer=uid,
        owner=os.getuid(),
    )
