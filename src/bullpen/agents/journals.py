"""The journals that agent programs keep of their sessions, read for one agent at a time.

A journal tells the exact words: what an agent was asked, and what it said at the end. It is read
while an agent has a message, so that one without hooks, and without a terminal of ours, has exact
receipts as well. `find_journal` finds the file, a `Journal` tells what was added to it, and `Ears`
puts both together with what hooks tell.

Whoever keeps no such file, as opencode, which has a database, is not read here.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bullpen.agents.providers.claude.errors import NotUnderstood
from bullpen.agents.providers.claude.journal import TranscriptTurns
from bullpen.agents.providers.claude.paths import (
    config_directory,
    is_session_id,
    transcript_path,
)
from bullpen.agents.providers.claude.sessions import parse_session_file
from bullpen.agents.providers.codex.journal import RolloutTurns
from bullpen.agents.providers.codex.paths import (
    codex_home,
    is_rollout,
    sessions_directory,
    thread_of_rollout,
)
from bullpen.agents.providers.codex.rollout import read_meta
from bullpen.agents.providers.copilot.journal import RecordTurns
from bullpen.agents.providers.gemini.journal import ChatTurns
from bullpen.agents.providers.told import JournalReader
from bullpen.agents.tail import FileTail
from bullpen.agents.turns import is_amid, is_end, journal_of_hook, turn_of_hook
from bullpen.model.states import Provider
from bullpen.model.turns import Turn, Utterance

__all__ = ["JOURNALS", "Ears", "Journal", "find_journal"]

LINE_LIMIT: Final = 16 * 2**20  # an answer is a line, and must not be skipped for its length
READS_AT_ONCE: Final = 32  # of a megabyte each
MOST_FILES: Final = 5000  # looked at for one session
FIRST_LINE_BYTES: Final = 2**20
SESSIONS_HEARD: Final = 200
LOOKS: Final = 10
LINES_BEFORE: Final = 100
BETWEEN_LOOKS_SECONDS: Final = 0.1  # Copilot writes down what it said so much later

JOURNALS: Final[Mapping[Provider, Callable[[], JournalReader]]] = {
    Provider.CLAUDE: TranscriptTurns,
    Provider.CODEX: RolloutTurns,
    Provider.COPILOT: RecordTurns,
    Provider.GEMINI: ChatTurns,
}
"""Whose journals can be read, and by what."""


class Journal:
    """What is added to one journal, from now on or from some lines before.

    Reading is bounded and never fails: what cannot be read now is read the next time.
    """

    def __init__(self, provider: Provider, path: Path, *, last_lines: int | None = 0) -> None:
        """Nothing is read yet.

        Args:
            provider: whose it is, one of `JOURNALS`.
            path: the file, which need not be there yet.
            last_lines: with how many of the lines that are there at the first look to begin; None
                for all of them.
        """
        self.path = path
        self._provider = provider
        self._tail = FileTail(path, last_lines=last_lines, line_limit=LINE_LIMIT)
        self._reader = JOURNALS[provider]()
        self._is_reading = asyncio.Lock()
        self.has_been_read = False
        """Whether all that is read from now on is new."""

    async def read(self) -> list[Turn]:
        """Return what was told since the last look. The first finds the place to begin at."""
        async with self._is_reading:
            turns = await asyncio.to_thread(self._read)
            self.has_been_read = True
            return turns

    @property
    def said(self) -> Turn | None:
        """What was said since the last prompt, for who knows that the turn is over."""
        told = self._reader.told
        return told.so_far() if told.text else None

    def _read(self) -> list[Turn]:
        turns: list[Turn] = []
        for _ in range(READS_AT_ONCE):
            try:
                batch = self._tail.read_blocking()
            except OSError:
                break
            if batch.restarted:
                self._reader = JOURNALS[self._provider]()
            for line in batch.lines:
                turns += self._reader.read(line.data)
            if not batch.lines and not batch.has_more:
                turns += self._reader.pause()
            if not batch.has_more:
                break
        return turns


class Ears:
    """Hears hooks, and tells of turns: in the journal's words where a hook does not have them."""

    def __init__(
        self,
        on_turn: Callable[[str, Turn], None],
        on_said: Callable[[str, Utterance], None] = lambda *_: None,
    ) -> None:
        """Nothing is heard yet.

        Args:
            on_turn: told of each turn, with the agent whose it is.
            on_said: told what is said in one before it is over, where its journal has that in time.
        """
        self._on_turn = on_turn
        self._on_said = on_said
        self._said: dict[str, str] = {}  # by agent, the last; bounded as the journals are
        self._journals: dict[str, Journal] = {}  # by place; the one heard of last is the last
        self._looks: set[asyncio.Task[None]] = set()
        self._amid: dict[str, object] = {}  # by agent, as long as its turn goes on: the last hook

    async def hear(self, agent: str, provider: Provider, payload: Any) -> None:
        """Take what a hook has told. It takes a moment: the program waits for its hook.

        What is not to be found at once is looked for beside, for a second.
        """
        is_over, is_under_way = is_end(provider, payload), is_amid(provider, payload)
        has_begun = is_over or is_under_way
        journal = self._journal(provider, journal_of_hook(payload), has_begun=has_begun)
        turn = turn_of_hook(provider, payload)
        self._amid.pop(agent, None)
        if turn is not None:
            self._on_turn(agent, turn)
        if journal is None or (turn is not None and is_over):
            return
        if is_over:
            self._begin(self._look(agent, provider, journal))
        elif is_under_way:
            self._amid[agent] = payload
            self._begin(self._listen(agent, journal, payload))
        elif turn is not None:
            await journal.read()  # what comes from now on is of this turn

    async def aclose(self) -> None:
        """Look no more."""
        for look in self._looks:
            look.cancel()
        await asyncio.gather(*self._looks, return_exceptions=True)

    def _begin(self, look: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(look, name="ears")
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    async def _listen(self, agent: str, journal: Journal, hook: object) -> None:
        """Look what was said before a tool is used, or was, until the next hook is heard."""
        for look in range(LOOKS):
            if look:
                await asyncio.sleep(BETWEEN_LOOKS_SECONDS)
            await journal.read()
            if self._amid.get(agent) is not hook:
                return
            said = journal.said.text if journal.said is not None else ""
            if said not in ("", self._said.get(agent)):
                self._note_said(agent, said)
                return

    def _note_said(self, agent: str, text: str) -> None:
        self._said.pop(agent, None)
        self._said[agent] = text
        if len(self._said) > SESSIONS_HEARD:
            del self._said[next(iter(self._said))]
        self._on_said(agent, Utterance(text=text, is_new=True))

    async def _look(self, agent: str, provider: Provider, journal: Journal) -> None:
        """Look for the end of a turn that is said to be over."""
        for look in range(LOOKS):
            if look:
                await asyncio.sleep(BETWEEN_LOOKS_SECONDS)
            is_first = not journal.has_been_read
            turns = await journal.read()
            if is_first:
                turns = _last_of(turns)
            told = _from_end_to_end(turns)
            if not told and provider is Provider.GEMINI and journal.said is not None:
                told = [journal.said]
            for turn in told:
                self._on_turn(agent, turn)
            if told:
                return

    def _journal(self, provider: Provider, path: str, *, has_begun: bool) -> Journal | None:
        if not path or provider not in JOURNALS:
            return None
        journal = self._journals.pop(path, None)
        if journal is None:  # what was said in a turn that began before we heard is a little before
            journal = Journal(provider, Path(path), last_lines=LINES_BEFORE if has_begun else 0)
        self._journals[path] = journal
        if len(self._journals) > SESSIONS_HEARD:
            del self._journals[next(iter(self._journals))]
        return journal


def _last_of(turns: list[Turn]) -> list[Turn]:
    """Leave out what an old journal tells before the last prompt: it is of turns long over."""
    begins = [index for index, turn in enumerate(turns) if turn.prompt is not None]
    return turns[begins[-1] :] if begins else turns


def _from_end_to_end(turns: list[Turn]) -> list[Turn]:
    """Leave out what is before the first end and after the last.

    A program that writes late has ended one turn more by the time we read: what it was asked in
    between tells whose end is whose.
    """
    ends = [index for index, turn in enumerate(turns) if turn.end is not None]
    return turns[ends[0] : ends[-1] + 1] if ends else []


# ---------------------------------------------------------------------------------- where they are


def find_journal(
    provider: Provider,
    *,
    session_id: str = "",
    pid: int = 0,
    cwd: str = "",
    environment: Mapping[str, str] | None = None,
    proc: Path = Path("/proc"),
) -> Path | None:
    """Return the journal of an agent's session; None if there is none that is certainly its own.

    It blocks, though not for long. Who knows the process need not know the session: what the
    process says of itself is newer.

    Args:
        provider: whose it is.
        session_id: the program's own id of the session, or our key of it (`claude:…`).
        pid: the agent's process.
        cwd: where the agent was started.
        environment: where the program's directories are looked up; by default our own.
        proc: where the system shows its processes.
    """
    environ = os.environ if environment is None else environment
    home = Path(environ.get("HOME") or Path.home())
    session_id = session_id.removeprefix(f"{provider.value}:")
    with contextlib.suppress(OSError, ValueError):
        match provider:
            case Provider.CLAUDE:
                config = Path(config_directory(environ, str(home)))
                return _claude(config, session_id, pid, cwd)
            case Provider.CODEX:
                return _codex(codex_home(environ, home), session_id, pid, proc)
            case Provider.COPILOT:
                root = Path(environ.get("COPILOT_HOME") or home / ".copilot")
                return _copilot(root / "session-state", session_id, pid)
            case Provider.GEMINI:
                return _gemini(home / ".gemini" / "tmp", session_id)
    return None


def _claude(config: Path, session_id: str, pid: int, cwd: str) -> Path | None:
    if pid:
        with contextlib.suppress(OSError, NotUnderstood):
            file = parse_session_file((config / "sessions" / f"{pid}.json").read_bytes())
            session_id, cwd = file.session_id, file.cwd
    if not is_session_id(session_id):
        return None
    expected = transcript_path(config, cwd, session_id)
    if cwd and expected.exists():
        return expected
    name = f"{session_id}.jsonl"
    projects = _newest(config / "projects")
    found = next((each / name for each in projects if (each / name).exists()), None)
    return found or (expected if cwd else None)  # it is written with the first prompt


def _codex(home: Path, session_id: str, pid: int, proc: Path) -> Path | None:
    for path in _open_rollouts(proc, pid):
        meta = read_meta(_first_line(path))
        if meta is not None and not meta.is_hidden:
            return path
    if not session_id:
        return None
    for path in _rollouts(sessions_directory(home)):
        if thread_of_rollout(path.name) == session_id:
            return path
    return None


def _open_rollouts(proc: Path, pid: int) -> Iterator[Path]:
    """Find the session files that a process has open, or one it has started, the newest first."""
    if not pid:
        return
    pids = [str(pid)]
    with contextlib.suppress(OSError):  # the program may be the child of a launcher
        pids += (proc / str(pid) / "task" / str(pid) / "children").read_text().split()
    found: set[Path] = set()
    for each in pids:
        with contextlib.suppress(OSError):
            links = list((proc / each / "fd").iterdir())
            for link in links:
                with contextlib.suppress(OSError):
                    target = link.readlink()
                    if is_rollout(target.name):
                        found.add(target)
    yield from sorted(found, key=lambda path: path.name, reverse=True)


def _rollouts(sessions: Path) -> Iterator[Path]:
    """Go through the files of all days, the newest first."""
    count = 0
    for year in _by_name(sessions):
        for month in _by_name(year):
            for day in _by_name(month):
                for path in _by_name(day):
                    count += 1
                    if count > MOST_FILES:
                        return
                    yield path


def _copilot(sessions: Path, session_id: str, pid: int) -> Path | None:
    if pid:
        lock = f"inuse.{pid}.lock"
        for directory in _newest(sessions):
            if (directory / lock).exists():
                return directory / "events.jsonl"
    if not session_id or "/" in session_id or session_id.startswith("."):
        return None
    return sessions / session_id / "events.jsonl"


def _gemini(projects: Path, session_id: str) -> Path | None:
    short = session_id.partition("-")[0]
    if not short.isalnum():
        return None
    for path in sorted(projects.glob(f"*/chats/session-*-{short}.jsonl"), reverse=True):
        if session_id.encode() in _first_line(path):
            return path
    return None


def _by_name(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir(), key=lambda path: path.name, reverse=True)
    except OSError:
        return []


def _newest(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            found = [(entry.stat().st_mtime, entry.path) for entry in entries if entry.is_dir()]
    except OSError:
        return []
    return [Path(path) for _, path in sorted(found, reverse=True)[:MOST_FILES]]


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline(FIRST_LINE_BYTES)
