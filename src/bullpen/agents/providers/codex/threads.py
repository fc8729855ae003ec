"""What one app server has told about its threads, and what of that is news.

The same status is told in lists and in notifications; here it becomes one fact. A list may be older
than a notification that came before it: a status that was told since the list was asked for stands.

The terminal interface has a hidden thread think of a title. It is on servers that are shared only,
and what is told of it (`thread/started`) may have been told before we came. So on such a server, a
thread that we do not know has to wait until we have asked about it.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bullpen.agents.providers.codex import appserver
from bullpen.agents.providers.codex.appserver import Thread, ThreadStatus
from bullpen.agents.providers.codex.facts import CodexFact

__all__ = ["ThreadWatch"]

RECENT: Final = timedelta(minutes=15)
MOST_THREADS: Final = 1000
MOST_HELD: Final = 100


class ThreadWatch:
    """The threads of one server, and what has been told of them so far."""

    def __init__(self, tell: Callable[[CodexFact], None], *, is_shared: bool = False) -> None:
        self._tell = tell
        self._is_shared = is_shared
        self._threads: dict[str, Thread] = {}  # the one heard of last is the last
        self._hidden: set[str] = set()
        self._cards: dict[str, dict[str, Any]] = {}
        self._told: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._changed: set[str] = set()  # those whose status was told since a list was asked for
        self._unknown: dict[str, None] = {}
        self._held: dict[str, list[CodexFact]] = {}

    def cwd_of(self, thread_id: str) -> str:
        """Return the directory of a thread, if it is known."""
        thread = self._threads.get(thread_id)
        return thread.cwd if thread is not None else ""

    @property
    def unknown(self) -> tuple[str, ...]:
        """The threads to ask about."""
        return tuple(self._unknown)

    def ask_about(self, thread_ids: Iterable[str]) -> None:
        """Note that there are these threads."""
        for thread_id in thread_ids:
            is_known = thread_id in self._threads or thread_id in self._hidden
            if not is_known and len(self._unknown) < MOST_THREADS:
                self._unknown[thread_id] = None

    def forget(self, thread_id: str) -> None:
        """Take it that nobody knows a thread, whatever was told of it."""
        self._unknown.pop(thread_id, None)
        self._held.pop(thread_id, None)

    def ask_for_list(self) -> None:
        """Note that a list is being asked for: what is told from now on is newer than it."""
        self._changed.clear()

    def hear(self, method: str, params: object, now: datetime) -> None:
        """Take a notification."""
        if method == "thread/started":
            if (thread := appserver.read_thread(params)) is not None:
                self.learn(thread, now)
            return
        fact = appserver.translate(method, params)
        if fact is None or fact.thread_id in self._hidden:
            return
        if self._is_shared and fact.thread_id not in self._threads:
            self._hold(fact)
        else:
            self._say(fact)

    def learn(self, thread: Thread, now: datetime) -> None:
        """Take what a server says about a thread, and tell what is new."""
        thread_id = thread.thread_id
        self._unknown.pop(thread_id, None)
        if thread.is_hidden:
            self._hide(thread_id)
            return
        self._know(thread)
        for fact in self._held.pop(thread_id, ()):
            self._say(fact)
        if _is_worth_telling(thread, now):
            self._tell_card(thread)
            if thread.name:
                self._say(_fact("session.named", thread_id, title=thread.name))
        event_type = thread.status.event_type
        if event_type is None or thread_id in self._changed:
            return
        if self._told.get(thread_id) != event_type:
            self._say(_fact(event_type, thread_id, **_status_words(thread.status)))

    def _tell_card(self, thread: Thread) -> None:
        """Tell where a thread is and when it was used, once each. It asserts no activity."""
        card = {
            "cwd": thread.cwd,
            "status": thread.status.type,
            "updated_at": _iso_time(thread.updated_at),
            "preview": thread.preview,
            "source": thread.source,
        }
        if self._cards.get(thread.thread_id) != card:
            self._cards[thread.thread_id] = card
            self._tell(_fact("thread.listed", thread.thread_id, **card))

    def _say(self, fact: CodexFact) -> None:
        if fact.event_type.startswith("thread."):
            self._told[fact.thread_id] = fact.event_type
            self._changed.add(fact.thread_id)
        elif fact.event_type == "session.ended":
            self._told.pop(fact.thread_id, None)
        elif fact.event_type == "session.named":
            title = fact.payload["title"]
            if self._names.get(fact.thread_id) == title:
                return
            self._names[fact.thread_id] = title
        self._tell(fact)

    def _know(self, thread: Thread) -> None:
        self._threads.pop(thread.thread_id, None)
        self._threads[thread.thread_id] = thread
        if len(self._threads) > MOST_THREADS:
            oldest = next(iter(self._threads))
            for table in (self._threads, self._cards, self._told, self._names):
                table.pop(oldest, None)

    def _hide(self, thread_id: str) -> None:
        self._held.pop(thread_id, None)
        if len(self._hidden) >= MOST_THREADS:
            self._hidden.clear()  # we shall ask again
        self._hidden.add(thread_id)

    def _hold(self, fact: CodexFact) -> None:
        if fact.thread_id not in self._held and len(self._held) >= MOST_HELD:
            return
        facts = self._held.setdefault(fact.thread_id, [])
        facts.append(fact)
        del facts[:-MOST_HELD]
        self.ask_about([fact.thread_id])


def _is_worth_telling(thread: Thread, now: datetime) -> bool:
    """Whether a thread is more than history: it runs, or was used not long ago."""
    if thread.status.event_type is not None or not thread.updated_at:
        return True
    return now.timestamp() - thread.updated_at <= RECENT.total_seconds()


def _status_words(status: ThreadStatus) -> dict[str, Any]:
    return {"status": status.type, "flags": list(status.flags)}


def _fact(event_type: str, thread_id: str, **payload: Any) -> CodexFact:
    return CodexFact(event_type=event_type, thread_id=thread_id, payload=payload)


def _iso_time(seconds: float) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else None
    except (OverflowError, ValueError, OSError):  # no time of this world
        return None
