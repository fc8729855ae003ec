"""A connection to the HTTP server of one opencode terminal, kept up and listened to.

opencode tells all that happens in its sessions as a stream of events. What it asks its user is
heard, and answered only with what somebody said who may.
"""

import asyncio
import logging
import random
import string
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from bullpen.agents.http import HttpAnswer, HttpError, HttpServer
from bullpen.agents.providers.opencode.turns import (
    SessionReader,
    SessionShown,
    is_its_title,
    message_id,
    prompt_body,
    shown_session,
)
from bullpen.agents.providers.turn_news import TurnNews
from bullpen.agents.providers.values import mapping, text
from bullpen.daemon.doors.staying import stay_connected

__all__ = ["OpencodeLink"]

logger = logging.getLogger("bullpen.daemon")

USER: Final = "opencode"
ANSWER_SECONDS: Final = 5.0  # right after its start it may not answer at all
SILENCE_SECONDS: Final = 40.0  # it says every ten that it is there
READY_SECONDS: Final = 10.0
MOST_FAILURES: Final = 12
SESSIONS_LOOKED_AT: Final = 10
MESSAGES_LOOKED_AT: Final = 50
MOST_AWAITED: Final = 100

_LETTERS: Final = string.ascii_letters + string.digits


class OpencodeLink:
    """The connection to one server, from `start` to `aclose`, through losses of it.

    `tell` is called with what is new of turns, and `changed` when the agent or the connection is
    not as it was; both in the order things happened, and they must not wait.
    """

    def __init__(
        self,
        address: str,
        password: str,
        tell: Callable[[TurnNews], None],
        changed: Callable[[], None],
        *,
        awaited: Iterable[str] = (),
        answer_seconds: float = ANSWER_SECONDS,
        ready_seconds: float = READY_SECONDS,
        most_failures: int = MOST_FAILURES,
    ) -> None:
        """Nothing is done before `start`. `awaited` are turns whose end is to be looked up."""
        self.address = address
        self.reader = SessionReader()
        self.is_connected = False
        self.is_gone = False
        """Whether it was given up: the server did not come (back)."""
        self.is_drawn = False
        """Whether its terminal is there, and would show what is said."""
        self._server = HttpServer(address, user=USER, password=password, seconds=answer_seconds)
        self._tell = tell
        self._changed = changed
        self._title = ""
        self._ready_seconds = ready_seconds
        self._most_failures = most_failures
        self._awaited: dict[str, None] = dict.fromkeys(awaited)
        self._was_connected = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._announced: object = None

    @property
    def is_coming(self) -> bool:
        """Whether it is still to be expected, as right after its start."""
        return not (self._was_connected or self.is_gone)

    def start(self) -> None:
        """Connect, and stay connected."""
        self._task = asyncio.create_task(self._run(), name="opencode:link")

    async def aclose(self) -> None:
        """Let go of the server; it goes on."""
        self.is_gone = True
        self.is_connected = False
        if self._timer is not None:
            self._timer.cancel()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def titled(self, title: str) -> None:
        """Take the title of its terminal, which says what it shows."""
        if is_its_title(title):
            self._title = title
            self.is_drawn = True
            self._announce()

    def next_mark(self, milliseconds: int) -> str:
        """Return an id for a message."""
        return message_id(milliseconds, "".join(random.choices(_LETTERS, k=14)))  # noqa: S311

    async def choose(self) -> SessionShown:
        """Return the session that the terminal shows, making one where there is none yet.

        Raises:
            HttpError: it cannot be had; nothing was said in it.
        """
        shown = shown_session(self.reader.sessions.values(), self._title, self.reader.last_used)
        if shown is None:
            made = await self._ask("POST", "/session", {})
            shown = SessionShown(text(mapping(made.value).get("id")))
        if not shown.session_id:
            raise HttpError(self.address, "it made no session", was_sent=False)
        return shown

    async def prompt(self, message: str, mark: str, shown: SessionShown) -> HttpAnswer:
        """Say something in a session, and have the terminal show it.

        Where it is shown already that does nothing, and what the user types stays in any case.

        Raises:
            HttpError: it may have been taken, or not; the error knows.
        """
        self._awaited[mark] = None
        if len(self._awaited) > MOST_AWAITED:
            del self._awaited[next(iter(self._awaited))]
        path = f"/session/{shown.session_id}/prompt_async"
        show = self._server.request("POST", "/tui/select-session", {"sessionID": shown.session_id})
        prompt = self._server.request("POST", path, prompt_body(message, mark, shown))
        _, answer = await asyncio.gather(show, prompt, return_exceptions=True)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def interrupt(self) -> bool:
        """Interrupt the session that works; whether that was done."""
        session_id = self.reader.busy
        if not session_id or not self.is_connected:
            return False
        try:
            await self._ask("POST", f"/session/{session_id}/abort", None)
        except HttpError:
            return False
        return True

    async def answer(self, dialog_id: str, reply: str) -> bool:
        """Answer what is asked; return whether it was taken.

        Raises:
            HttpError: it may have been taken, or not; the error knows.
        """
        answer = await self._server.request(
            "POST", f"/permission/{dialog_id}/reply", {"reply": reply}
        )
        return answer.is_ok

    # ------------------------------------------------------------------------- being connected

    async def _run(self) -> None:
        await stay_connected(
            self._try_to_listen,
            was_connected=lambda: self._was_connected,
            most_failures=self._most_failures,
        )
        self.is_gone = True
        self._announce()

    async def _try_to_listen(self) -> None:
        try:
            await self._listen()
        except (HttpError, OSError, ValueError) as error:
            logger.debug("opencode at %s: %s", self.address, error)
        self.is_connected = False
        self._announce()

    async def _listen(self) -> None:
        stream = self._server.events("/event", silence_seconds=SILENCE_SECONDS)
        async with stream as events:
            async for event in events:
                if not self.is_connected:
                    await self._begin()  # what is told meanwhile waits
                for news in self.reader.hear(event):
                    self._tell(news)
                self._announce()

    async def _begin(self) -> None:
        """Find out how everything stands, at the first event."""
        statuses = await self._get("/session/status")
        dialogs = [each for path in ("/permission", "/question") for each in await self._list(path)]
        self.reader.begin(statuses, dialogs)
        sessions = await self._list("/session")
        for session in sessions:
            self.reader.learn(session)
        if self._awaited or self.reader.has_open:
            await self._recall(sessions, mapping(statuses))
        self.is_connected = self._was_connected = True
        if not self.is_drawn and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._ready_seconds, self._take_for_drawn)
        self._announce()

    async def _recall(self, sessions: list[Any], busy: Collection[str]) -> None:
        """Take what was said while nobody listened, in turns that are awaited or ran."""
        for session in map(mapping, sessions[:SESSIONS_LOOKED_AT]):
            if session_id := text(session.get("id")):
                path = f"/session/{session_id}/message?limit={MESSAGES_LOOKED_AT}"
                messages = await self._list(path)
                is_over = session_id not in busy
                for news in self.reader.recall(messages, self._awaited, is_over=is_over):
                    self._tell(news)

    def _take_for_drawn(self) -> None:
        """Nobody tells of titles: by now the terminal should be there."""
        self.is_drawn = True
        self._announce()

    def _announce(self) -> None:
        reader = self.reader
        link = (self.is_connected, self.is_gone, self.is_drawn)
        state = (*link, reader.busy, tuple(reader.dialogs))
        if state != self._announced:
            self._announced = state
            self._changed()

    async def _list(self, path: str) -> list[Any]:
        value = await self._get(path)
        return value if isinstance(value, list) else []

    async def _get(self, path: str) -> Any:
        return (await self._ask("GET", path, None)).value

    async def _ask(self, method: str, path: str, body: Any) -> HttpAnswer:
        answer = await self._server.request(method, path, body)
        if not answer.is_ok:
            raise HttpError(self.address, f"{path} has status {answer.status}", was_sent=False)
        return answer
