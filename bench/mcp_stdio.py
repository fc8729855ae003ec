"""What the MCP SDK's `stdio_client` has between two pipes and a dispatcher, over a socket.

The two loops are those of `mcp.client.stdio`, step by step, with nothing added.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import mcp_types
from anyio.abc import ByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from anyio.streams.text import TextReceiveStream
from mcp.shared.message import SessionMessage

__all__ = ["stdio_streams"]

READ_BYTES = 65536  # as anyio reads from a process

Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


class _Output(ByteReceiveStream):
    """An asyncio reader as anyio hands out a process's stdout."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def receive(self, max_bytes: int = READ_BYTES) -> bytes:
        if data := await self._reader.read(max_bytes):
            return data
        raise anyio.EndOfStream

    async def aclose(self) -> None: ...


@asynccontextmanager
async def stdio_streams(connected: socket.socket) -> AsyncIterator[Streams]:
    """Open the two message streams a dispatcher runs on."""
    reader, writer = await asyncio.open_connection(sock=connected)
    read_stream_writer, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](
        0
    )
    write_stream, write_stream_reader = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        buffer = ""
        async with read_stream_writer:
            async for chunk in TextReceiveStream(_Output(reader)):
                lines = (buffer + chunk).split("\n")
                buffer = lines.pop()
                for line in lines:
                    message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                    await read_stream_writer.send(SessionMessage(message))

    async def write() -> None:
        async with write_stream_reader:
            async for item in write_stream_reader:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write((text + "\n").encode())
                await writer.drain()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            yield read_stream, write_stream
            tasks.cancel_scope.cancel()
    finally:
        writer.close()
        await writer.wait_closed()
        for stream in (read_stream, write_stream, read_stream_writer, write_stream_reader):
            stream.close()
