"""What the user types: keys for the program, and `@name message` for somebody else.

Keys go on at once. A message is sent, and its answer awaited, beside that: nothing here ever makes
the terminal wait for the daemon.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from bullpen.api.talk import ListContacts, SendMessage, WaitMessage
from bullpen.connection import ConnectionClosed, RemoteError, RequestTimeout
from bullpen.errors import BullpenError
from bullpen.model.reasons import Reason
from bullpen.terminal.keyboard import (
    Address,
    Keyboard,
    not_found_notice,
    sent_notice,
)
from bullpen.terminal.pty import PtyClosed
from bullpen.wrapper.injecting import Injector
from bullpen.wrapper.link import Link
from bullpen.wrapper.notices import failed_notice, reply_lines
from bullpen.wrapper.pulse import Pulse
from bullpen.wrapper.reading import LineReader
from bullpen.wrapper.watching import Watch

__all__ = ["Addressing"]

logger = logging.getLogger("bullpen.wrapper")

SETTLE_SECONDS = 0.05  # after which a lone ESC was the key of that name
SHOWN_SECONDS = 0.5  # after a key; what it does to the line is shown by then
CONTACTS_SECONDS = 30.0  # between two looks at who there is, if nobody begins an address
SEND_SECONDS = 10.0
RESPONSE_SECONDS = 60.0
MOST_SENDING = 16  # messages on their way, or waited for, at once

ENTERS = (b"\r", b"\n")

Notice = Callable[[str], Awaitable[None]]


class Addressing:
    """The keyboard of one wrapped program."""

    def __init__(
        self, watch: Watch, link: Link, name: str, log: Path, *, addresses: bool, notice: Notice
    ) -> None:
        self._watch = watch
        self._link = link
        self._log = log
        self._addresses = addresses
        self._notice = notice
        self._names: frozenset[str] = frozenset()
        self._elsewhere: frozenset[str] = frozenset()
        self._keyboard = Keyboard(self._knows)
        self._settling: asyncio.TimerHandle | None = None
        self._typed_at = 0.0
        self._wanted = Pulse()
        self._sending: set[asyncio.Task[None]] = set()
        self.name = name
        self.injector: Injector | None = None

    @property
    def has_draft(self) -> bool:
        """Whether something was typed on the line and not sent, as far as can be known."""
        return self._keyboard.line != ""

    async def type(self, data: bytes) -> None:
        """Take what the user typed.

        Raises:
            PtyClosed: there is no program any more.
        """
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(
            SETTLE_SECONDS, self._keyboard.settle
        )
        is_fresh = self._is_fresh()
        if is_fresh and self._is_shown():
            self._keyboard.forget_line()
        self._typed_at = asyncio.get_running_loop().time()
        had_line = bool(self._keyboard.line)
        for typed in self._keyboard.feed(data, is_fresh=is_fresh, is_by_line=self._is_by_line()):
            if isinstance(typed, Address):
                await self._watch.terminal.write(typed.clear)
                self._send_soon(typed)
            else:
                self._note(typed.data)
                await self._watch.terminal.write(typed.data)
        if not had_line and self._keyboard.line:
            self._wanted.beat()  # somebody may have come since we looked

    async def run(self) -> None:
        """Keep knowing who there is. Runs until cancelled."""
        while True:
            with contextlib.suppress(BullpenError):
                contacts = await self._link.request(ListContacts(), seconds=SEND_SECONDS)
                names = (name for each in contacts for name in (each.name, *each.also))
                self._names = frozenset(name.lower() for name in names)
                self._elsewhere = frozenset(each.name for each in contacts if each.is_elsewhere)
            await self._wanted.wait(CONTACTS_SECONDS if self._link.is_open else 1.0)

    async def aclose(self) -> None:
        """Wait for nothing more. What was sent stays sent."""
        if self._settling is not None:
            self._settling.cancel()
        sending = list(self._sending)
        for each in sending:
            each.cancel()
        if sending:
            await asyncio.wait(sending)

    # --------------------------------------------------------------------------------------- typing

    def _knows(self, address: Address) -> bool:
        """Whether an address is one, and no mention of a file.

        Only programs with a screen have mentions; to others the user means somebody, and is told
        if nobody is called so.
        """
        if not self._addresses:
            return False
        is_known = bool({address.name, _full_name(address)} & self._names)
        return is_known or not self._watch.is_painted

    def _is_fresh(self) -> bool:
        reading = self._watch.reading
        return reading.prompt == "empty" and not self._watch.is_dialog

    def _is_shown(self) -> bool:
        """Whether the terminal shows what came of the keys typed so far.

        Then an empty prompt is empty: what was typed there was rubbed out, or was no text, such as
        an answer to a dialog.
        """
        now = asyncio.get_running_loop().time()
        return self._typed_at < min(self._watch.terminal.last_output, now - SHOWN_SECONDS)

    def _is_by_line(self) -> bool:
        process = self._watch.terminal.process
        return process is not None and process.line_limit is not None

    def _note(self, data: bytes) -> None:
        """Note what keys do to what we know of the program."""
        reader = self._watch.reader
        if isinstance(reader, LineReader) and any(each in data for each in ENTERS):
            reader.status.type_line(self._watch.terminal.context.end)
            self._watch.note_output()
        if self.injector is not None:
            self.injector.note_keys(data)

    # -------------------------------------------------------------------------------------- sending

    def _send_soon(self, address: Address) -> None:
        if len(self._sending) >= MOST_SENDING:
            work = self._notice(failed_notice(address.name, "too many messages are on their way"))
        else:
            work = self._send(address)
        sending = asyncio.get_running_loop().create_task(_run(work), name="send")
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, address: Address) -> None:
        to = _full_name(address)
        outcome = await self._sent(address, to)
        size = len(address.message.encode())
        line = f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {self.name} -> {to}"
        try:
            await asyncio.to_thread(_append, self._log, f"{line} {size} bytes: {outcome}\n")
        except OSError as error:
            logger.warning("cannot log what was sent: %s", error)

    async def _sent(self, address: Address, to: str) -> str:
        request = SendMessage(
            to=to,
            content=address.message,
            metadata={"via": self.name},
            awaits=address.wants_response,
        )
        try:
            reply = await self._link.request(request, seconds=SEND_SECONDS)
        except BullpenError as error:
            await self._notice(_refusal(to, error))
            return f"not sent, {error}"
        is_local = address.host is None and to not in self._elsewhere
        await self._notice(sent_notice(to, is_local=is_local))
        if not address.wants_response:
            return f"sent as {reply.message.id}"
        return await self._answer(to, reply.message.id)

    async def _answer(self, to: str, message_id: str) -> str:
        """Wait for the answer, and show it."""
        request = WaitMessage(message_id=message_id, timeout_seconds=RESPONSE_SECONDS, take=True)
        try:
            waited = await self._link.request(request, seconds=RESPONSE_SECONDS + SEND_SECONDS)
        except BullpenError as error:
            await self._notice(failed_notice(to, f"sent, but no answer: {error}"))
            return f"sent as {message_id}, no answer: {error}"
        if waited.reply is not None:
            await self._notice(reply_lines(to, waited.reply.content))
            return f"sent as {message_id}, answered by {waited.reply.id}"
        if waited.outcome == "timeout":
            reason = f"no answer within {RESPONSE_SECONDS:g} s; it will be in `bullpen inbox`"
        else:
            reason = waited.reason or "it ended without an answer"
        await self._notice(failed_notice(to, reason))
        return f"sent as {message_id}, {reason}"


async def _run(work: Awaitable[None]) -> None:
    try:
        await work
    except PtyClosed:
        return
    except Exception:  # a notice that cannot be shown ends nothing
        logger.exception("sending a message failed")


def _full_name(address: Address) -> str:
    return f"{address.name}@{address.host}" if address.host else address.name


def _refusal(name: str, error: BullpenError) -> str:
    if isinstance(error, RemoteError):
        if error.code == Reason.AGENT_NOT_FOUND:
            return not_found_notice(name)
        return failed_notice(name, f"refused: {error.message}")
    if isinstance(error, RequestTimeout):
        return failed_notice(name, "the daemon does not answer")
    if isinstance(error, ConnectionClosed):
        return failed_notice(name, "not sent, there is no daemon")
    return failed_notice(name, str(error))


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
