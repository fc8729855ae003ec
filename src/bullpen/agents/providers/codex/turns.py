"""What an app server tells of the turns in threads one takes part in.

A turn begins with what somebody said, and may get more of that while it runs. What the agent says
comes in pieces while it is said, and whole when it was (`item/completed`); the last of it is the
answer, what came before was said on the way. Each beginning and each end is told once, whether it
is heard or looked up later; each piece once, and only if the beginning of it was heard.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from bullpen.agents.providers.codex.facts import mapping, text
from bullpen.agents.providers.codex.failures import failed_turn
from bullpen.agents.providers.turn_news import Sign, TurnNews
from bullpen.model.messages import MAX_THINKING_BYTES
from bullpen.model.turns import Turn, TurnEnd, Utterance

__all__ = [
    "BY",
    "INTERRUPT",
    "RESUME",
    "START",
    "TURNS",
    "TurnReader",
    "introduction",
    "is_doubtful",
    "resume_params",
    "start_params",
    "turns_params",
]

BY: Final = "codex_appserver"

START: Final = "turn/start"
INTERRUPT: Final = "turn/interrupt"
RESUME: Final = "thread/resume"
TURNS: Final = "thread/turns/list"

TURNS_PER_LOOK: Final = 10
MOST_TURNS: Final = 32
MOST_KEPT: Final = 256
MOST_THOUGHTS: Final = (
    MAX_THINKING_BYTES // 4
)  # characters: as many as fit however they are written

# What is done and thought piece by piece is told whole later; what a turn costs is nothing to us.
UNWANTED: Final = (
    "account/rateLimits/updated",
    "command/exec/outputDelta",
    "item/commandExecution/outputDelta",
    "item/commandExecution/terminalInteraction",
    "item/fileChange/outputDelta",
    "item/fileChange/patchUpdated",
    "item/mcpToolCall/progress",
    "item/plan/delta",
    "item/reasoning/summaryPartAdded",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/textDelta",
    "process/outputDelta",
    "thread/tokenUsage/updated",
    "turn/diff/updated",
    "turn/plan/updated",
)

_ENDS: Final = {"completed": TurnEnd.DONE, "interrupted": TurnEnd.INTERRUPTED}
_COMMENTARY: Final = "commentary"


class _Open(msgspec.Struct):
    """A turn that runs."""

    thread_id: str
    answer: str | None = None
    is_commentary: bool = True
    thinking: str = ""
    saying: str = ""
    """The item in which something is being said that may be the answer."""
    has_begun: bool = False
    """Whether a piece of it was told."""


class TurnReader:
    """Reads the turns of one server's threads."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._ended: dict[str, None] = {}
        self._asked: dict[str, None] = {}  # the items of users

    def running(self, thread_id: str) -> str:
        """Return the turn that runs in a thread, as far as was told; empty if none does."""
        for turn_id, each in reversed(self._open.items()):
            if each.thread_id == thread_id:
                return turn_id
        return ""

    def forget(self) -> None:
        """Take it that nothing is known of turns that ran: the server was out of hearing."""
        self._open.clear()

    def hear(self, method: str, params: object) -> TurnNews | None:
        """Take a notification; return what is new in it, if anything is."""
        said = mapping(params)
        thread_id = text(said.get("threadId"))
        match method:
            case "turn/started" | "turn/completed":
                turn = mapping(said.get("turn"))
                turn_id = text(turn.get("id"))
                if not thread_id or not turn_id or turn_id in self._ended:
                    return None
                if method == "turn/completed":
                    return self._end(thread_id, turn_id, turn)
                is_new = turn_id not in self._open
                self._opened(thread_id, turn_id)
                return _news(Sign.BEGUN, thread_id, turn_id) if is_new else None
            case "item/started" | "item/completed":
                turn_id, item = text(said.get("turnId")), mapping(said.get("item"))
                if not thread_id or not turn_id or turn_id in self._ended:
                    return None
                return self._take(thread_id, turn_id, item, is_whole=method == "item/completed")
            case "item/agentMessage/delta":
                piece = (text(said.get("turnId")), text(said.get("itemId")), said.get("delta"))
                return self._say(thread_id, *piece)
        return None

    def _say(self, thread_id: str, turn_id: str, item_id: str, piece: object) -> TurnNews | None:
        turn = self._open.get(turn_id)
        if turn is None or not item_id or turn.saying != item_id or not isinstance(piece, str):
            return None
        return _said_in(turn, thread_id, turn_id, piece) if piece else None

    def recall(
        self,
        thread_id: str,
        turns: Iterable[object],
        awaited: Collection[str] | None,
        *,
        is_active: bool,
        is_sure: bool = False,
    ) -> list[TurnNews]:
        """Take the latest turns of a thread, as they were looked up, newest first.

        Of those that have ended, one is news only if it was awaited, by its id or by the mark of
        what was said in it; None awaits all. In a thread that is not active none runs, though the
        last one of a server that was killed looks so. And one that is just beginning looks
        interrupted: the newest is believed to be so only if this is a look that is `sure`.
        """
        news: list[TurnNews] = []
        looked_up = [mapping(each) for each in turns]
        if is_doubtful(looked_up) and (is_active or not is_sure):
            del looked_up[0]
        for turn in reversed(looked_up):
            turn_id, items = text(turn.get("id")), turn.get("items")
            if not turn_id or turn_id in self._ended:
                continue
            known = [mapping(each) for each in items] if isinstance(items, list) else []
            marks = {turn_id, *(text(each.get("clientId")) for each in known)}
            is_over = turn.get("status") != "inProgress"
            if is_over and awaited is not None and marks.isdisjoint(awaited):
                continue
            if not is_over and not is_active:
                continue
            self._opened(thread_id, turn_id)
            found = [self._take(thread_id, turn_id, each, is_whole=True) for each in known]
            news += [each for each in found if each is not None]
            ended = self._end(thread_id, turn_id, turn) if is_over else None
            news += [ended] if ended is not None else []
        return news

    def _take(
        self, thread_id: str, turn_id: str, item: dict[str, Any], *, is_whole: bool
    ) -> TurnNews | None:
        turn = self._opened(thread_id, turn_id)
        kind = text(item.get("type"))
        if kind == "userMessage":
            item_id = text(item.get("id"))
            if item_id in self._asked:
                return None
            _note(self._asked, item_id)
            client_id = text(item.get("clientId"))
            told = Turn(by=BY, prompt=_said(item), session_id=thread_id, turn_id=turn_id)
            return _news(Sign.ASKED, thread_id, turn_id, client_id=client_id, turn=told)
        if kind == "agentMessage" and is_whole:
            is_commentary = item.get("phase") == _COMMENTARY
            if turn.is_commentary or not is_commentary:
                turn.answer, turn.is_commentary = text(item.get("text")), is_commentary
            is_told = turn.saying == text(item.get("id")) and turn.has_begun
            turn.saying, turn.has_begun = "", False
            whole = "" if is_commentary or is_told else text(item.get("text"))
            if whole:
                return _said_in(turn, thread_id, turn_id, whole)
        elif kind == "agentMessage":
            turn.saying = "" if item.get("phase") == _COMMENTARY else text(item.get("id"))
            turn.has_begun = False
        elif kind == "reasoning" and is_whole:
            turn.thinking = "\n\n".join(filter(None, [turn.thinking, _thoughts(item)]))
            turn.thinking = turn.thinking[:MOST_THOUGHTS]
        return _news(Sign.WORKING, thread_id, turn_id) if kind else None

    def _end(self, thread_id: str, turn_id: str, turn: dict[str, Any]) -> TurnNews | None:
        known = self._opened(thread_id, turn_id)
        end, said = _how(turn)
        if end is None:
            return None
        if known.answer is None and isinstance(items := turn.get("items"), list):
            for item in map(mapping, items):  # what was said is told once more at the end
                if item.get("type") == "agentMessage":
                    known.answer = text(item.get("text"))
        del self._open[turn_id]
        _note(self._ended, turn_id)
        told = Turn(
            by=BY,
            end=end,
            text=said or known.answer or "",
            thinking=known.thinking,
            session_id=thread_id,
            turn_id=turn_id,
        )
        return _news(Sign.ENDED, thread_id, turn_id, turn=told)

    def _opened(self, thread_id: str, turn_id: str) -> _Open:
        found = self._open.get(turn_id)
        if found is None:
            found = self._open[turn_id] = _Open(thread_id)
            if len(self._open) > MOST_TURNS:
                del self._open[next(iter(self._open))]
        return found


def is_doubtful(latest: Sequence[object]) -> bool:
    """Whether the newest of the turns that were looked up may only be about to begin."""
    return bool(latest) and mapping(latest[0]).get("status") == "interrupted"


def introduction(version: str) -> dict[str, Any]:
    """Return how somebody introduces himself who wants to talk, and hear whole things only."""
    return {
        "clientInfo": {"name": "bullpen", "title": "bullpen", "version": version},
        "capabilities": {"optOutNotificationMethods": list(UNWANTED)},
    }


def resume_params(thread_id: str, *, is_plain: bool = False) -> dict[str, Any]:
    """Return what makes one hear all of a thread that runs already; nothing of it is changed.

    A plain one has the history with it, and is all that works while a first turn is young.
    """
    return {"threadId": thread_id} | ({} if is_plain else {"excludeTurns": True})


def turns_params(thread_id: str) -> dict[str, Any]:
    """Return which turns are looked up: the latest, with all that was said in them."""
    return {"threadId": thread_id, "limit": TURNS_PER_LOOK, "itemsView": "full"}


def start_params(thread_id: str, message: str, client_id: str) -> dict[str, Any]:
    """Return what begins a turn, and changes no setting of the thread."""
    return {
        "threadId": thread_id,
        "clientUserMessageId": client_id,
        "input": [{"type": "text", "text": message}],
    }


def _news(sign: Sign, thread_id: str, turn_id: str, **more: Any) -> TurnNews:
    return TurnNews(sign=sign, session_id=thread_id, turn_id=turn_id, **more)


def _said_in(turn: _Open, thread_id: str, turn_id: str, piece: str) -> TurnNews:
    said = Utterance(text=piece, turn_id=turn_id, is_new=not turn.has_begun)
    turn.has_begun = True
    return _news(Sign.WORKING, thread_id, turn_id, said=said)


def _note(table: dict[str, None], key: str) -> None:
    table[key] = None
    if len(table) > MOST_KEPT:
        del table[next(iter(table))]


def _how(turn: dict[str, Any]) -> tuple[TurnEnd | None, str]:
    """Return how a turn ended, and its error if that was with one; None if it has not."""
    status = turn.get("status")
    if status != "failed":
        return _ENDS.get(text(status)), ""
    error = mapping(turn.get("error"))
    event_type, message = failed_turn(error.get("message"), error.get("codexErrorInfo"))
    end = TurnEnd.RATE_LIMITED if event_type == "turn.rate_limited" else TurnEnd.FAILED
    return end, message or "codex did not say why"


def _said(item: dict[str, Any]) -> str:
    content = item.get("content")
    parts = map(mapping, content) if isinstance(content, list) else ()
    return "\n".join(text(part.get("text")) for part in parts if part.get("type") == "text")


def _thoughts(item: dict[str, Any]) -> str:
    for key in ("summary", "content"):
        if isinstance(parts := item.get(key), list) and parts:
            return "\n\n".join(filter(None, map(text, parts)))
    return ""
