"""Taking over the ports of wrapped agents.

A wrapper holds its agent's port for as long as the agent lives. It connects here, shows the agent's
secret, and hands its listening socket over; as long as that connection is open we serve the port,
and the wrapper does not. So the port is always held, by whoever is there.
"""

import asyncio
import contextlib
import functools
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bullpen.api.peers import authorize_owner

__all__ = ["readable", "take_ports"]

logger = logging.getLogger("bullpen.a2a")

LOOK_SECONDS = 5.0  # how long the socket may be missing before it is made anew
HELLO_SECONDS = 5.0
SHORTAGE_SECONDS = 1.0  # until a file handle may be free again
SERVED = b"\n"  # our only word
MOST_BYTES = 4096
MOST_WRAPPERS = 512
BACKLOG = 64

Whose = Callable[[str], Awaitable[str | None]]
"""Returns whose a secret is."""
ServePort = Callable[[socket.socket, str], Awaitable[None]]
"""Serves an agent's port until it is cancelled."""


class _Hello(msgspec.Struct):
    secret: str


async def take_ports(path: Path, whose: Whose, serve_port: ServePort) -> None:
    """Serve the ports that are handed over at a socket, until this is cancelled."""
    async with asyncio.TaskGroup() as group:
        while True:
            try:
                async with _listening(path) as listening:
                    accepting = group.create_task(_accept(listening, group, whose, serve_port))
                    try:
                        await _removal(path)
                    finally:
                        accepting.cancel()
                        await asyncio.wait([accepting])
                logger.warning("the socket for agents' ports was removed; it is made anew")
            except OSError as error:
                logger.error("agents' ports cannot be taken over: %s", error.strerror or error)
                await asyncio.sleep(LOOK_SECONDS)


async def _accept(
    listening: socket.socket, group: asyncio.TaskGroup, whose: Whose, serve_port: ServePort
) -> None:
    loop = asyncio.get_running_loop()
    room = asyncio.Semaphore(MOST_WRAPPERS)
    while True:
        await room.acquire()
        try:
            connected, _ = await loop.sock_accept(listening)
        except OSError as error:
            room.release()
            logger.error("a wrapper cannot be accepted: %s", error.strerror or error)
            await asyncio.sleep(SHORTAGE_SECONDS)
            continue
        serving = group.create_task(_serve(connected, whose, serve_port))
        serving.add_done_callback(functools.partial(_let_go, connected, room))


def _let_go(connected: socket.socket, room: asyncio.Semaphore, _: "asyncio.Task[None]") -> None:
    """Do so also if it was cancelled before it began."""
    connected.close()
    room.release()


async def _serve(connected: socket.socket, whose: Whose, serve_port: ServePort) -> None:
    """Serve what one wrapper hands over, until it hangs up."""
    connected.setblocking(False)
    if authorize_owner(connected) is not None:
        return
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            hello, listening = await _receive(connected)
    except (TimeoutError, OSError, msgspec.MsgspecError, ValueError) as error:
        logger.warning("a wrapper handed over nothing that can be served: %s", error)
        return
    with listening:
        name = await whose(hello.secret)
        if name is None or not _is_loopback(listening):
            return  # it hears nothing, and tries again when it knows better
        serving = asyncio.ensure_future(serve_port(listening, name))
        leaving = asyncio.ensure_future(_until_gone(connected))
        try:
            await asyncio.wait([serving, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            serving.cancel()
            leaving.cancel()
            await asyncio.wait([serving, leaving])
        if not serving.cancelled() and (trouble := serving.exception()) is not None:
            logger.error("the port of %s cannot be served", name, exc_info=trouble)


async def _until_gone(connected: socket.socket) -> None:
    """Say that the port is served, and wait until the wrapper hangs up."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        await loop.sock_sendall(connected, SERVED)
        while await loop.sock_recv(connected, len(SERVED)):
            pass


async def _receive(connected: socket.socket) -> tuple[_Hello, socket.socket]:
    await readable(connected)
    data, handles, _, _ = socket.recv_fds(connected, MOST_BYTES, 1)
    if not handles:
        raise ValueError("no port came with it")
    try:
        listening = socket.socket(fileno=handles[0])
    except OSError:
        os.close(handles[0])  # it is no socket
        raise
    try:
        os.set_inheritable(handles[0], False)
        listening.setblocking(False)
        return msgspec.json.decode(data, type=_Hello), listening
    except BaseException:
        listening.close()
        raise


async def readable(sock: socket.socket) -> None:
    """Wait until something can be read from a socket, or somebody accepted."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(sock, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(sock)


def _is_loopback(listening: socket.socket) -> bool:
    try:
        is_listening = listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:
        is_listening = 1  # where that cannot be asked
    return (
        bool(is_listening)
        and listening.family == socket.AF_INET
        and listening.getsockname()[0] == "127.0.0.1"
    )


@asynccontextmanager
async def _listening(path: Path) -> AsyncIterator[socket.socket]:
    """Have a socket at a path for a block."""
    with socket.socket(socket.AF_UNIX) as listening:
        made = await asyncio.to_thread(_bind, listening, path)
        try:
            yield listening
        finally:
            if await asyncio.to_thread(_identity, path) == made:
                await asyncio.to_thread(path.unlink, missing_ok=True)


async def _removal(path: Path) -> None:
    """Wait until somebody has removed the socket, as those do who clean up in /tmp."""
    made = found = await asyncio.to_thread(_identity, path)
    while found == made:
        await asyncio.sleep(LOOK_SECONDS)  # nothing tells: we have to look
        found = await asyncio.to_thread(_identity, path)


def _bind(listening: socket.socket, path: Path) -> tuple[int, int] | None:
    path.unlink(missing_ok=True)  # a dead daemon's: there is one at a time, by its lock
    listening.bind(str(path))
    path.chmod(0o600)  # before anybody could connect
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return _identity(path)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return which file is there, if there is any."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
