"""What opencode's server tells of its sessions while somebody follows its events.

A message of the user begins a turn, and each answer of the model names the message it answers. What
was said comes piece by piece (`message.part.delta`), and each part whole (`message.part.updated`),
the answer being the parts of the last message; a turn is over when its session is idle. One that
was given to a busy session is answered in the same run. Sessions of subagents belong to a turn of
their parent and have none of their own.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from bullpen.agents.providers.turn_news import Sign, TurnNews
from bullpen.agents.providers.values import clip, mapping, text
from bullpen.model.messages import MAX_THINKING_BYTES
from bullpen.model.turns import Turn, TurnEnd, Utterance

__all__ = [
    "BY",
    "SessionReader",
    "SessionShown",
    "is_its_title",
    "message_id",
    "prompt_body",
    "shown_session",
]

BY: Final = "opencode"

MOST: Final = 256
MOST_THOUGHTS: Final = (
    MAX_THINKING_BYTES // 4
)  # characters: as many as fit however they are written
TOO_MANY_REQUESTS: Final = 429

_ABORTED: Final = "MessageAbortedError"
_ASKED: Final = ("permission.asked", "question.asked")
_ANSWERED: Final = ("permission.replied", "question.replied", "question.rejected")
_UNTITLED: Final = "New session - "
_HOME: Final = "OpenCode"
_TITLED: Final = "OC | "
_CUT: Final = "..."


class _Spoken(msgspec.Struct):
    """A message of the agent."""

    session_id: str
    turn_id: str
    is_finished: bool = False
    error: Any = None
    texts: dict[str, str] = msgspec.field(default_factory=dict)
    thoughts: dict[str, str] = msgspec.field(default_factory=dict)
    told: str = ""
    """What was told of its text, while it was said."""

    @property
    def text(self) -> str:
        return "\n".join(filter(None, self.texts.values()))


class SessionReader:
    """Reads the sessions of one server."""

    def __init__(self) -> None:
        self.dialogs: dict[str, dict[str, Any]] = {}
        """What is asked of the user just now, by the ids of that."""
        self.last_used = ""
        """The session in which the user said something last."""
        self.sessions: dict[str, dict[str, Any]] = {}
        """What is known of each session."""
        self._busy: dict[str, None] = {}
        self._asked: dict[str, str] = {}  # messages of users: their sessions
        self._open: dict[str, str] = {}  # those whose turns have not ended
        self._prompts: dict[str, None] = {}  # those that were told
        self._spoken: dict[str, _Spoken] = {}
        self._ended: dict[str, None] = {}

    @property
    def busy(self) -> str:
        """A session that works; empty if none does."""
        return next((each for each in self._busy if not self._is_part(each)), "")

    @property
    def has_open(self) -> bool:
        """Whether turns run, as far as was told."""
        return bool(self._open)

    def begin(self, statuses: object, dialogs: Iterable[object]) -> None:
        """Take how everything stands when the server is (again) within hearing."""
        known = mapping(statuses)
        busy = (each for each, status in known.items() if mapping(status).get("type") != "idle")
        self._busy = dict.fromkeys(busy)
        asked = [mapping(each) for each in dialogs]
        self.dialogs = {text(each.get("id")): each for each in asked if text(each.get("id"))}

    def hear(self, event: object) -> list[TurnNews]:
        """Take an event; return what is new in it."""
        kind, said = text(mapping(event).get("type")), mapping(mapping(event).get("properties"))
        session_id = text(said.get("sessionID"))
        if kind in _ASKED:
            _note(self.dialogs, text(said.get("id")), said)
        elif kind in _ANSWERED:
            self.dialogs.pop(text(said.get("requestID")), None)
        elif kind in ("session.created", "session.updated"):
            self.learn(said.get("info"))
        elif kind == "session.deleted":
            self.sessions.pop(session_id, None)
        elif kind == "message.updated":
            return self._message(session_id, mapping(said.get("info")))
        elif kind == "message.part.updated":
            return self._part(session_id, mapping(said.get("part")))
        elif kind == "message.part.delta":
            return self._piece(session_id, said)
        elif kind == "session.error":
            self._fail(session_id, said.get("error"))
        elif kind == "session.status":
            return self._status(session_id, text(mapping(said.get("status")).get("type")))
        elif kind == "session.idle":
            return self._status(session_id, "idle")
        return []

    def learn(self, info: object) -> None:
        """Take what is said of a session itself."""
        session = mapping(info)
        _note(self.sessions, text(session.get("id")), session)

    def _is_part(self, session_id: str) -> bool:
        """Whether it is the session of a subagent."""
        return bool(mapping(self.sessions.get(session_id)).get("parentID"))

    def recall(
        self, messages: Iterable[object], awaited: Collection[str], *, is_over: bool
    ) -> list[TurnNews]:
        """Take the latest messages of a session, as they were looked up, oldest first.

        Only turns that run, or that are `awaited`, are news. If `is_over`, the session is idle, and
        so these have ended.
        """
        news: list[TurnNews] = []
        sessions: set[str] = set()
        for each in map(mapping, messages):
            info, parts = mapping(each.get("info")), each.get("parts")
            session_id = text(info.get("sessionID"))
            turn_id = text(info.get("parentID")) or text(info.get("id"))
            if turn_id in self._ended or not (turn_id in awaited or turn_id in self._open):
                continue
            sessions.add(session_id)
            news += self._message(session_id, info)
            for part in parts if isinstance(parts, list) else ():
                news += self._part(session_id, mapping(part))
        for session_id in sessions if is_over else ():
            news += self._end(session_id)
        return news

    def _status(self, session_id: str, status: str) -> list[TurnNews]:
        if status == "idle":
            self._busy.pop(session_id, None)
            return self._end(session_id)
        if status:
            _note(self._busy, session_id)
        return []

    def _message(self, session_id: str, info: dict[str, Any]) -> list[TurnNews]:
        message_id, role = text(info.get("id")), text(info.get("role"))
        if not message_id or self._is_part(session_id):
            return []
        if role == "user":
            if message_id in self._asked:
                return []
            _note(self._asked, message_id, session_id)
            _note(self._open, message_id, session_id)
            self.last_used = session_id
            return [_news(Sign.ASKED, session_id, message_id, client_id=message_id)]
        turn_id = text(info.get("parentID"))
        if role != "assistant" or not turn_id or turn_id in self._ended:
            return []
        is_new = message_id not in self._spoken
        spoken = self._spoken.get(message_id) or _Spoken(session_id, turn_id)
        _note(self._open, turn_id, session_id)
        if is_new:
            _note(self._spoken, message_id, spoken)
        spoken.is_finished = bool(info.get("finish"))
        spoken.error = info.get("error") or spoken.error
        return [_news(Sign.WORKING, session_id, turn_id)] if is_new else []

    def _part(self, session_id: str, part: dict[str, Any]) -> list[TurnNews]:
        message_id, kind = text(part.get("messageID")), text(part.get("type"))
        if part.get("synthetic") or part.get("ignored"):
            return []
        said = text(part.get("text"))
        if message_id in self._asked and kind == "text" and message_id not in self._prompts:
            _note(self._prompts, message_id)
            told = Turn(by=BY, prompt=said, session_id=session_id, turn_id=message_id)
            return [_news(Sign.ASKED, session_id, message_id, client_id=message_id, turn=told)]
        if (spoken := self._spoken.get(message_id)) is not None:
            table = {"text": spoken.texts, "reasoning": spoken.thoughts}.get(kind)
            if table is not None:
                _note(table, text(part.get("id")), said)
                return _tell_said(spoken)
        return []

    def _piece(self, session_id: str, said: dict[str, Any]) -> list[TurnNews]:
        """Take a piece of a part whose beginning was heard."""
        spoken = self._spoken.get(text(said.get("messageID")))
        part_id = text(said.get("partID"))
        if spoken is None or said.get("field") != "text" or spoken.session_id != session_id:
            return []
        table = spoken.texts if part_id in spoken.texts else spoken.thoughts
        if part_id in table:
            table[part_id] += text(said.get("delta"))
        return _tell_said(spoken)

    def _fail(self, session_id: str, error: object) -> None:
        """Note an error that may not be said of the message as well."""
        for spoken in reversed(self._spoken.values()):
            if spoken.session_id == session_id:
                spoken.error = spoken.error or error
                return

    def _end(self, session_id: str) -> list[TurnNews]:
        """End the turns of a session that has nothing more to do."""
        over = [each for each, where in self._open.items() if where == session_id]
        heard = [each for each in self._spoken.values() if each.session_id == session_id]
        news = []
        for turn_id in over:
            del self._open[turn_id]
            _note(self._ended, turn_id)
            own = [each for each in heard if each.turn_id == turn_id]
            # What came in while it worked is answered together with what it worked on.
            last = own[-1] if own and own[-1].text else (heard or [_Spoken(session_id, "")])[-1]
            end, said = _how(own[-1] if own and own[-1].error else last)
            thoughts = [each for one in own for each in one.thoughts.values()]
            told = Turn(
                by=BY,
                end=end,
                text=said,
                thinking="\n\n".join(filter(None, thoughts))[:MOST_THOUGHTS],
                session_id=session_id,
                turn_id=turn_id,
            )
            news.append(_news(Sign.ENDED, session_id, turn_id, turn=told))
        if over:
            self._spoken = {
                each: spoken
                for each, spoken in self._spoken.items()
                if spoken.session_id != session_id
            }
        return news


class SessionShown(msgspec.Struct, frozen=True):
    """The session to speak in, and with which of opencode's agents and models."""

    session_id: str
    body: dict[str, Any] = {}


def is_its_title(title: str) -> bool:
    """Whether a terminal's title is one that opencode gives it, once it has drawn its screen."""
    return title == _HOME or title.startswith(_TITLED)


def shown_session(sessions: Iterable[object], title: str, last_used: str) -> SessionShown | None:
    """Return the session a terminal shows; None if it shows none yet.

    Which one that is, its title says: that of the session, which may be cut, or opencode's own for
    one without a title and where there is none. Without any title it is the one last used.
    """
    known = [mapping(each) for each in sessions]
    known = [each for each in known if not each.get("parentID") and text(each.get("id"))]
    if title.startswith(_TITLED):
        shown = title.removeprefix(_TITLED)
        meant = [each for each in known if _is_called(text(each.get("title")), shown)]
    else:
        meant = [each for each in known if each.get("id") == last_used]
        if title:
            meant = [each for each in meant if text(each.get("title")).startswith(_UNTITLED)]
    latest = max(meant, key=lambda each: (each["id"] == last_used, _updated(each)), default=None)
    return _as_shown(latest) if latest is not None else None


def message_id(milliseconds: int, random: str) -> str:
    """Return an id for a message, in opencode's own form: it sorts messages by their ids."""
    return f"msg_{(milliseconds * 0x1000 + 1) % 2**48:012x}{random}"


def prompt_body(message: str, mark: str, shown: SessionShown) -> dict[str, Any]:
    """Return what begins a turn, in the mode and with the model of the turn before."""
    return {"messageID": mark, "parts": [{"type": "text", "text": message}], **shown.body}


def _is_called(title: str, shown: str) -> bool:
    return title == shown or (shown.endswith(_CUT) and title.startswith(shown.removesuffix(_CUT)))


def _updated(session: dict[str, Any]) -> float:
    updated = mapping(session.get("time")).get("updated")
    return float(updated) if isinstance(updated, int | float) else 0.0


def _as_shown(session: dict[str, Any]) -> SessionShown:
    body: dict[str, Any] = {}
    if agent := text(session.get("agent")):
        body["agent"] = agent  # one that must not write stays so
    model = mapping(session.get("model"))
    if text(model.get("id")) and text(model.get("providerID")):
        body["model"] = {"providerID": model["providerID"], "modelID": model["id"]}
        if (variant := text(model.get("variant"))) not in ("", "default"):
            body["variant"] = variant
    return SessionShown(text(session.get("id")), body)


def _how(spoken: _Spoken) -> tuple[TurnEnd, str]:
    error = mapping(spoken.error)
    if not error:
        return (TurnEnd.DONE if spoken.is_finished else TurnEnd.INTERRUPTED), spoken.text
    if error.get("name") == _ABORTED:
        return TurnEnd.INTERRUPTED, spoken.text
    data = mapping(error.get("data"))
    said = clip(data.get("message")) or clip(error.get("name")) or "opencode did not say why"
    is_limit = data.get("statusCode") == TOO_MANY_REQUESTS
    return (TurnEnd.RATE_LIMITED if is_limit else TurnEnd.FAILED), said


def _tell_said(spoken: _Spoken) -> list[TurnNews]:
    """Tell what was said in a message since that was last told."""
    whole, told = spoken.text, spoken.told
    if whole == told:
        return []
    spoken.told = whole
    is_new = not told or not whole.startswith(told)
    piece = whole if is_new else whole[len(told) :]
    said = Utterance(text=piece, turn_id=spoken.turn_id, is_new=is_new)
    return [_news(Sign.WORKING, spoken.session_id, spoken.turn_id, said=said)]


def _news(sign: Sign, session_id: str, turn_id: str, **more: Any) -> TurnNews:
    return TurnNews(sign=sign, session_id=session_id, turn_id=turn_id, **more)


def _note(table: dict[str, Any], key: str, value: Any = None) -> None:
    if key:
        table[key] = value
    if len(table) > MOST:
        del table[next(iter(table))]
