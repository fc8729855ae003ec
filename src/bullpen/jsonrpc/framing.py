"""Cutting a byte stream into frames and putting payloads into frames, without I/O.

The caller feeds what it read and gets the frames that are complete, in order; however the stream
is cut, the frames are the same. What cannot be a frame comes out as an error *value* in its
place, so that nothing before or after it is lost: `FrameTooLongError` (skipped without being
held in memory, the next frame can be read) or, once and as the last thing, `FramingLostError`.
"""

from typing import Protocol

from bullpen.jsonrpc.errors import FrameTooLongError, FramingLostError

__all__ = ["MAX_FRAME_BYTES", "ContentLengthFramer", "Frame", "Framer", "LineFramer"]

MAX_FRAME_BYTES = 64 * 2**20  # a long session replayed in one response, with a few inlined images
MAX_HEADER_BYTES = 8 * 2**10  # no peer sends more than two short header lines

_BLANK = (b"", b"\r")

Frame = bytes | FrameTooLongError | FramingLostError


class Framer(Protocol):
    """A way to mark where one frame ends and the next begins. One framer serves one stream."""

    has_faults: bool
    """Whether there is anything but bytes in what `feed` returned last."""

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes read from the stream and return what they complete."""
        ...

    def frame(self, payloads: list[bytes]) -> bytes:
        """Return the bytes to write for some payloads, each in a frame of its own."""
        ...


class LineFramer:
    """One JSON text on one line, as ACP, MCP and Codex speak it on stdio.

    CRLF and blank lines are tolerated.
    """

    def __init__(self, *, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._partial: list[bytes] = []  # pieces of the line whose end has not come yet
        self._partial_bytes = 0
        self.has_faults = False
        self._skipping = False  # inside a line already known to be too long

    def feed(self, data: bytes) -> list[Frame]:
        self.has_faults = False
        frames: list[Frame] = data.split(b"\n")  # type: ignore[assignment]
        tail: bytes = frames.pop()  # type: ignore[assignment]
        if frames and (self._partial or self._skipping):
            frames[0] = self._complete(frames[0])  # type: ignore[arg-type]
        if tail:
            self._hold(tail)
        if len(data) > self._limit:
            frames = [self._checked(frame) for frame in frames]
        if b"" in frames or b"\r" in frames:
            return [frame for frame in frames if frame not in _BLANK]
        return frames

    def frame(self, payloads: list[bytes]) -> bytes:
        frames = b"\n".join(payloads)
        if frames.count(b"\n") >= len(payloads):
            # A newline can only stand between tokens here, in text a peer had pretty-printed and
            # a proxy passes on unparsed: inside a string JSON escapes it. A space means the same.
            frames = b"\n".join([payload.replace(b"\n", b" ") for payload in payloads])
        return frames + b"\n"

    def _complete(self, end: bytes) -> Frame:
        if self._skipping:
            self._skipping = False
            return self._too_long()
        self._partial.append(end)
        line = b"".join(self._partial)
        self._partial.clear()
        self._partial_bytes = 0
        return self._checked(line)

    def _hold(self, tail: bytes) -> None:
        if self._skipping:
            return
        self._partial.append(tail)
        self._partial_bytes += len(tail)
        if self._partial_bytes > self._limit:
            self._partial.clear()
            self._partial_bytes = 0
            self._skipping = True

    def _checked(self, frame: Frame) -> Frame:
        if isinstance(frame, bytes) and len(frame) > self._limit:
            return self._too_long()
        return frame

    def _too_long(self) -> FrameTooLongError:
        self.has_faults = True
        return FrameTooLongError(self._limit)


class ContentLengthFramer:
    """A `Content-Length` header, an empty line, then that many bytes, as LSP and Copilot speak it.

    Header names are taken in any case and other headers are ignored.
    """

    def __init__(self, *, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._awaited: int | None = None  # bytes of the body whose header has been read
        self._to_skip = 0  # bytes of an oversized body still to come
        self._is_lost = False
        self.has_faults = False

    def feed(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        self.has_faults = False
        if self._is_lost:
            return frames
        self._buffer += data
        position = 0
        while (end := self._next(frames, position)) != position:
            position = end
        del self._buffer[:position]
        return frames

    def frame(self, payloads: list[bytes]) -> bytes:
        return b"".join(
            [b"Content-Length: %d\r\n\r\n%b" % (len(payload), payload) for payload in payloads]
        )

    def _next(self, frames: list[Frame], start: int) -> int:
        """Consume one header or one body at `start`; return where the next begins."""
        available = len(self._buffer) - start
        if self._is_lost:
            return start
        if self._to_skip:
            skipped = min(self._to_skip, available)
            self._to_skip -= skipped
            if skipped and not self._to_skip:
                self.has_faults = True
                frames.append(FrameTooLongError(self._limit))
            return start + skipped
        if self._awaited is not None:
            if available < self._awaited:
                return start
            end = start + self._awaited
            self._awaited = None
            with memoryview(self._buffer) as view:  # a slice of the buffer would copy it twice
                frames.append(bytes(view[start:end]))
            return end
        return self._read_header(frames, start, available)

    def _read_header(self, frames: list[Frame], start: int, available: int) -> int:
        end = self._buffer.find(b"\r\n\r\n", start, start + MAX_HEADER_BYTES)
        if end < 0:
            if available >= MAX_HEADER_BYTES:
                return self._lose(frames, start, "the header does not end")
            return start
        length = _content_length(bytes(self._buffer[start:end]))
        if length is None:
            header = bytes(self._buffer[start : min(end, start + 80)])
            return self._lose(frames, start, f"no valid Content-Length in {header!r}")
        if length > self._limit:
            self._to_skip = length
        elif length:  # an empty body is no frame
            self._awaited = length
        return end + 4

    def _lose(self, frames: list[Frame], start: int, reason: str) -> int:
        self._is_lost = self.has_faults = True
        frames.append(FramingLostError(reason))
        self._buffer.clear()
        return start


def _content_length(header: bytes) -> int | None:
    length = None
    for line in header.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if not colon:
            return None
        if name.strip().lower() == b"content-length":
            digits = value.strip()
            if not digits.isdigit() or len(digits) > 18 or length is not None:
                return None
            length = int(digits)
    return length
