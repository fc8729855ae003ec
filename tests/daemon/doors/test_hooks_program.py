"""The real programs get messages through their hooks: whole, once, and beside a draft."""

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.agents.hooks.install import Scope, default_runner, settings_path
from bullpen.agents.hooks.merge import put_in
from bullpen.agents.hooks.programs import PROGRAMS, Runner
from bullpen.agents.hooks.waiter import EVENTS, wake_hook
from bullpen.agents.journals import Journal, find_journal
from bullpen.agents.providers.claude.prompts import WAKE_MESSAGE, WAKE_SUMMARY
from bullpen.daemon.doors import hooks
from bullpen.mail.doors import Handed
from bullpen.model.deliveries import ReceiptState
from bullpen.model.states import Provider
from bullpen.model.turns import Turn, TurnEnd
from bullpen.testing.models import ModelServer, Request
from bullpen.testing.programs import NodeMissing, launch
from bullpen.testing.tmux import PrivateTmux
from tests.daemon.doors.hooked import SECRET, Hooked, listening, patient_shim
from tests.daemon.harness import until

pytestmark = [
    pytest.mark.program,
    pytest.mark.tmux,
    pytest.mark.timeout(1000),  # the first run downloads
    pytest.mark.xdist_group("real-programs"),  # two at a time are slow enough to look frozen
]

READY = {
    Provider.CLAUDE: "? for shortcuts",
    Provider.CODEX: "Ask Codex",
    Provider.COPILOT: "/ commands",
    Provider.GEMINI: "Type your message",
}
ARGUMENTS = {
    Provider.CODEX: ("--dangerously-bypass-hook-trust",),
    Provider.GEMINI: ("-m", "gemini-2.5-flash"),  # else another model is asked which to ask
}
IN_PANE = 'env -i {variables} TMUX="$TMUX" TMUX_PANE="$TMUX_PANE" {command}; exec sh'
LINE = "! zq7 日本語 😀 \"quoted\" 'and' \\ `code` {{}}"
PATIENCE_SECONDS = 1.4  # thrice of it is less than a program waits for a hook
SECONDS = 60.0

Told = tuple[str | None, TurnEnd | None, str]


class Program:
    """A real program in a pane, the model it asks and the daemon its hooks tell."""

    def __init__(
        self, provider: Provider, tmux: PrivateTmux, models: ModelServer, hooked: Hooked
    ) -> None:
        self.provider = provider
        self.tmux = tmux
        self.models = models
        self.hooked = hooked
        self.pane = ""
        self.environment: dict[str, str] = {}

    async def start(self, home: Path) -> None:
        started = await asyncio.to_thread(self._prepare, home)
        variables = shlex.join(f"{key}={value}" for key, value in self.environment.items())
        command = IN_PANE.format(variables=variables, command=shlex.join(started.argv))
        self.pane = await self.tmux.new_pane(command, cwd=started.cwd)
        await self.shows(READY[self.provider])

    def _prepare(self, home: Path) -> Any:
        provider, project = self.provider, home / "project"
        project.mkdir()
        program = PROGRAMS[provider]
        runner = Runner(
            default_runner().python, str(patient_shim(home / "shim.py", PATIENCE_SECONDS))
        )
        arguments = ARGUMENTS.get(provider, ())
        if provider is Provider.CLAUDE:
            settings = json.loads(put_in(None, program, runner))
            for event in EVENTS:
                entry = {"hooks": [wake_hook(WAKE_MESSAGE, WAKE_SUMMARY)]}
                settings["hooks"].setdefault(event, []).append(entry)
            (home / "settings.json").write_text(json.dumps(settings))
            arguments = ("--settings", str(home / "settings.json"))
        try:
            started = launch(
                provider.value,
                "tui",
                home=home / "private",
                model_url=self.models.url,
                project=project,
                arguments=arguments,
                variables={
                    "BULLPEN_SOCKET": str(home / "run/daemon.sock"),
                    "BULLPEN_SECRET": SECRET,
                },
            )
        except NodeMissing as missing:
            pytest.skip(str(missing))
        self.environment = dict(started.env)
        if provider is not Provider.CLAUDE:
            path = settings_path(program, Scope.USER, None, self.environment)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text() if path.exists() else None
            path.write_text(put_in(text, program, runner))
        return started

    async def shows(self, text: str) -> None:
        async def is_shown() -> bool:
            return text in await self.tmux.screen(self.pane)

        await until(is_shown, SECONDS)

    async def type(self, text: str) -> None:
        await self.tmux.run("send-keys", "-t", self.pane, "-l", text)
        await self.shows(text)

    async def submit(self, prompt: str) -> None:
        await self.type(prompt)
        await asyncio.sleep(0.5)  # or it takes Enter for a part of what was typed
        await self.tmux.run("send-keys", "-t", self.pane, "Enter")

    async def asked(self, text: str) -> Request:
        """Wait until the model was asked something."""

        def is_meant(request: Request) -> bool:
            return request.is_prompt and request.mentions(text)

        return await asyncio.to_thread(self.models.wait_for_request, is_meant, SECONDS)

    async def tells(self, last: Told) -> list[Told]:
        """Wait until the program's own journal ends so; return what it tells from its beginning.

        Claude Code writes it a little later than it tells its hooks.
        """
        payload = self.hooked.reports[-1]
        session = str(payload.get("session_id") or payload.get("sessionId"))

        async def is_found() -> Path | None:
            return await asyncio.to_thread(
                find_journal, self.provider, session_id=session, environment=self.environment
            )

        path = await until(is_found, SECONDS)
        journal, told = Journal(self.provider, path, last_lines=None), list[Turn]()

        async def is_told() -> bool:
            told.extend(await journal.read())
            return told[-1:] != [] and _as_told(told[-1]) == last

        if self.provider is Provider.GEMINI:  # which does not tell that a turn is over
            told.extend(await journal.read())
            assert journal.said is not None
            told.append(journal.said)
        await until(is_told, SECONDS)
        return [_as_told(turn) for turn in told]


def _as_told(turn: Turn) -> Told:
    return turn.prompt, turn.end, turn.text


@asynccontextmanager
async def running(
    provider: Provider, home: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Program]:
    monkeypatch.setattr(hooks, "ASK_SECONDS", PATIENCE_SECONDS / 2)
    async with (
        ModelServer() as models,
        PrivateTmux(width=120, height=40) as tmux,
        listening(home / "run/daemon.sock") as hooked,
    ):
        program = Program(provider, tmux, models, hooked)
        await program.start(home)
        yield program


@pytest.mark.requirement("door:wake", "mail:turns", "mail:journals")
async def test_claude_is_woken_beside_a_draft_and_after_esc(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\n".join(LINE for _ in range(210))
    letter = f"[from bob]\n{text}"
    assert len(letter.encode()) > 10_000
    async with running(Provider.CLAUDE, home, monkeypatch) as claude:
        hooked = claude.hooked
        claude.models.script(lambda request: request.mentions("zq7"), "say 起きた\\nsecond line")
        await claude.type("MY DRAFT")
        handed = await hooked.hand_over(hooked.wake, text)
        assert (handed.outcome, hooked.steps) == (Handed.TAKEN, [ReceiptState.INJECTED])
        assert (await claude.asked("zq7")).mentions(letter)
        await hooked.until(lambda: len(hooked.turns) >= 2)
        await claude.shows("second line")
        await claude.shows(WAKE_SUMMARY)
        await claude.shows("MY DRAFT")
        asked, ended = hooked.turns
        assert asked.prompt == letter
        assert (ended.end, ended.text) == (TurnEnd.DONE, "起きた\nsecond line")
        said = (None, TurnEnd.DONE, ended.text)
        assert await claude.tells(said) == [(letter, None, ""), said]
        # Of a turn that Esc has ended no hook tells; but a waiter is there.
        claude.models.script("slow", "say begun | wait never | say ended")
        await claude.tmux.run("send-keys", "-t", claude.pane, "C-u")
        await claude.submit("slow")
        await claude.shows("begun")
        await claude.tmux.run("send-keys", "-t", claude.pane, "Escape")
        await claude.shows("Interrupted")
        claude.models.script(lambda request: request.mentions("zq8"), "say woken again")
        handed = await hooked.hand_over(hooked.wake, "zq8", "m2")
        assert handed.outcome is Handed.TAKEN
        await hooked.until(lambda: hooked.turns[-1].text == "woken again")
        assert [turn.prompt for turn in hooked.turns[2:]] == ["slow", "[from bob] zq8", None]
        told = await claude.tells((None, TurnEnd.DONE, "woken again"))
        assert told[2:-1] == [
            ("slow", None, ""),
            (None, TurnEnd.INTERRUPTED, ""),
            ("[from bob] zq8", None, ""),
        ]


@pytest.mark.requirement("door:drain", "mail:turns", "mail:journals")
@pytest.mark.parametrize("provider", list(READY), ids=str)
async def test_the_next_message_is_taken_at_the_end_of_a_turn(
    provider: Provider, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\n".join(LINE for _ in range(150))  # less than Codex takes
    letter = f"[from bob]\n{text}"
    async with running(provider, home, monkeypatch) as program:
        hooked = program.hooked
        program.models.script("first", "prewait busy | say one")
        program.models.script(lambda request: request.mentions("zq7"), "say 二\\nsecond line")
        await program.submit("first")
        await program.asked("first")
        await program.type("MY DRAFT")
        hooked.post(text, "m1")
        program.models.release("busy")
        assert (await program.asked("zq7")).mentions(letter)
        await hooked.until(
            lambda: bool(hooked.handed) and hooked.turns[-1].text == "二\nsecond line"
        )
        await program.shows("MY DRAFT")
        assert [each.outcome for each in hooked.handed] == [Handed.TAKEN]
        assert hooked.steps == [ReceiptState.INJECTED]
        ends = [(turn.end, turn.text) for turn in hooked.turns if turn.end is not None]
        assert ends == [(TurnEnd.DONE, "one"), (TurnEnd.DONE, "二\nsecond line")]
        told = await program.tells((None, TurnEnd.DONE, "二\nsecond line"))
        assert told[-2] == (letter, None, "")
