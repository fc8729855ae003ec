"""Which of an app server's threads the terminal interface shows, and what it is doing.

The server of one terminal has few threads: the one it shows, those it showed before (`/new`,
`/resume`), a hidden one that thinks of a title, and those of subagents. Which one is shown is not
said. But whenever the terminal turns to a thread that thread is started, or its goal is told again,
or somebody says something in it: the last one of which this was heard is the one.
"""

from collections.abc import Collection
from typing import Any, Final

from bullpen.agents.providers.codex import appserver
from bullpen.agents.providers.codex.appserver import Thread, ThreadStatus
from bullpen.agents.providers.codex.facts import mapping, text

__all__ = ["ShownThread"]

MOST_THREADS: Final = 100

_TURNED_TO: Final = ("thread/goal/cleared", "thread/goal/updated")
_GONE: Final = ("thread/closed", "thread/deleted", "thread/archived")


class ShownThread:
    """The thread a terminal shows, as far as is known."""

    def __init__(self) -> None:
        self.thread_id = ""
        self._statuses: dict[str, ThreadStatus] = {}  # of threads somebody works in
        self._hidden: dict[str, None] = {}
        self._unknown: dict[str, bool] = {}  # whether the terminal has turned to it

    @property
    def status(self) -> ThreadStatus:
        """What the thread is doing; `notLoaded` if that is not known."""
        return self._statuses.get(self.thread_id, ThreadStatus())

    @property
    def unknown(self) -> tuple[str, ...]:
        """The threads to ask about."""
        return tuple(self._unknown)

    @property
    def is_ambiguous(self) -> bool:
        """Whether there are threads, and nothing says which of them is shown."""
        return not self.thread_id and len(self._statuses) > 1

    def begin(self, loaded: Collection[str]) -> None:
        """Take the threads that a server has, when it is (again) within hearing."""
        self._statuses = {each: status for each, status in self._statuses.items() if each in loaded}
        if self.thread_id not in loaded:
            self.thread_id = ""
        self._unknown = {each: False for each in loaded if each not in self._hidden}

    def hear(self, method: str, params: object) -> None:
        """Take a notification."""
        said = mapping(params)
        if method == "thread/started":
            if (thread := appserver.read_thread(params)) is not None:
                self._unknown[thread.thread_id] = True
                self.learn(thread)
            return
        thread_id = text(said.get("threadId"))
        if not thread_id or thread_id in self._hidden:
            return
        if method in _GONE:
            self.forget(thread_id)
        elif method == "thread/status/changed":
            status = appserver.read_status(said.get("status"))
            if thread_id in self._statuses:
                self._statuses[thread_id] = status
            else:
                self._ask_about(thread_id, is_turned_to=False)
        elif method in _TURNED_TO:
            self.turn_to(thread_id)

    def turn_to(self, thread_id: str) -> None:
        """Take it that the terminal shows a thread now."""
        if thread_id in self._statuses:
            self.thread_id = thread_id
        elif thread_id not in self._hidden:
            self._ask_about(thread_id, is_turned_to=True)

    def learn(self, thread: Thread) -> None:
        """Take what a server says about a thread."""
        is_turned_to = self._unknown.pop(thread.thread_id, False)
        if thread.is_hidden:
            self._hidden[thread.thread_id] = None
            _bound(self._hidden)
            return
        self._statuses[thread.thread_id] = thread.status
        _bound(self._statuses)
        if is_turned_to:
            self.thread_id = thread.thread_id

    def forget(self, thread_id: str) -> None:
        """Take it that a thread is no more."""
        self._unknown.pop(thread_id, None)
        self._statuses.pop(thread_id, None)
        if self.thread_id == thread_id:
            self.thread_id = ""

    def settle(self) -> None:
        """Once nothing is left to ask about: the only thread there is is the one that is shown."""
        if not self.thread_id and len(self._statuses) == 1:
            [self.thread_id] = self._statuses

    def _ask_about(self, thread_id: str, *, is_turned_to: bool) -> None:
        self._unknown[thread_id] = self._unknown.get(thread_id, False) or is_turned_to
        _bound(self._unknown)


def _bound(table: dict[str, Any]) -> None:
    if len(table) > MOST_THREADS:
        del table[next(iter(table))]
