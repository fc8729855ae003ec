"""The life of a real agent program in a pane, from its start to its end, as a daemon tells it."""

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from bullpen.testing.models import ModelServer
from bullpen.testing.programs import Launch
from bullpen.testing.tmux import PrivateTmux
from tests.daemon.harness import Peer, until

# The program's environment is its own; tmux adds where it runs. It does not take the shell's place:
# when it has ended, the shell is what remains, as with anybody's own.
IN_PANE = 'env -i {variables} TMUX="$TMUX" TMUX_PANE="$TMUX_PANE" {command}; exec sh'
SECONDS = 60.0
ATTEMPTS = 5
AGAIN_SECONDS = 6.0  # until the screen has been looked at twice, and more


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How one program is to be spoken to."""

    shell: str = "bash"
    """The word of the model's script for a command that needs approval."""
    approve: tuple[str, ...] = ("Enter",)
    interrupt: tuple[str, ...] = ("Escape",)
    leave: str = "/exit"


HABITS = {
    "claude": Habits(),
    "codex": Habits(shell="bashesc", approve=("y",), leave="/quit"),
    "gemini": Habits(leave="/quit"),
    "copilot": Habits(interrupt=("Escape", "Escape")),
    "opencode": Habits(interrupt=("Escape", "Escape")),
}


class Life:
    """A program in a pane, and everything the daemon says of it."""

    def __init__(
        self, provider: str, tmux: PrivateTmux, pane: str, models: ModelServer, peer: Peer
    ) -> None:
        self.provider = provider
        self.habits = HABITS[provider]
        self.told: list[dict[str, Any]] = []
        self.has_hooks = False
        self._tmux = tmux
        self._pane = pane
        self._models = models
        self._peer = peer

    @property
    def transitions(self) -> list[dict[str, Any]]:
        """Every change of what the agent is doing, in order."""
        changes = [
            each["params"]["change"] for each in self.told if each.get("method") == "state_changed"
        ]
        return [each for each in changes if each["agent"] and each["previous_activity"]]

    @property
    def activities(self) -> list[str]:
        return [each["agent"]["activity"] for each in self.transitions]

    async def reaches(self, activity: str) -> dict[str, Any]:
        """Wait until the last that was said is this; return how it was told."""

        async def is_there() -> Any:
            return self.activities[-1:] == [activity]

        try:
            await until(is_there, SECONDS)
        except TimeoutError:
            screen = await self._tmux.screen(self._pane)
            explained = await self._explanation()
            raise AssertionError(
                f"{self.provider} is not {activity} but {self.activities}\n{explained}\n{screen}"
            ) from None
        change: dict[str, Any] = self.transitions[-1]
        return change

    async def lives_through(self, activity: str) -> dict[str, Any]:
        """The same; who has hooks says so itself, if perhaps a little later than its screen."""
        change = await self.reaches(activity)

        async def is_told() -> Any:
            told = (activity, "deterministic")
            agents = (await self._peer.agents()).values()
            return [each for each in agents if (each["activity"], each["evidence_mode"]) == told]

        if not self.has_hooks:
            return change
        [agent] = await until(is_told, SECONDS)
        return {**change, "agent": agent}

    async def shows(self, activity: str) -> None:
        """Wait until the screen shows it too: a program asks before its dialog is drawn."""

        async def is_shown() -> bool:
            return await self._shown() == activity

        await until(is_shown, SECONDS)

    async def _shown(self) -> str:
        told = await self._peer.ask("explain", subject=self._pane)
        [screen] = [each for each in told["claims"] if each["source_kind"] == "poller"]
        return str(screen["activity"])

    async def _explanation(self) -> str:
        try:
            told = await self._peer.ask("explain", subject=self._pane)
        except Exception as error:  # noqa: BLE001 - it is only for the message of a failure
            return repr(error)
        lines = [
            f"{each['source_kind']}: {each['event_type']} {each['age_seconds']:.1f}s {each['why']}"
            for each in told["claims"]
        ]
        return "\n".join([*lines, *told["refused"]])

    async def submit(self, prompt: str) -> None:
        await self.paste(prompt)
        await self.press("Enter")

    async def paste(self, text: str) -> None:
        await self._tmux.run("set-buffer", "-b", "prompt", text)
        await self._tmux.run("paste-buffer", "-p", "-d", "-b", "prompt", "-t", self._pane)
        await self._tmux.wait_for(self._pane, text[-16:])
        # A program that has just drawn a paste may take the Enter for a part of it.
        await asyncio.sleep(0.4)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self._tmux.run("send-keys", "-t", self._pane, key)
            await asyncio.sleep(0.2)

    async def interrupt(self) -> None:
        """Interrupt a turn; two keys that belong together may be taken for one and another."""

        async def is_at_rest() -> bool:
            return await self._shown() != "running"

        for _ in range(ATTEMPTS):
            await self.press(*self.habits.interrupt)
            with suppress(TimeoutError):
                await until(is_at_rest, AGAIN_SECONDS)
                return

    async def live(self) -> list[dict[str, Any]]:
        """Live through every state; return how each was told."""
        habits = self.habits
        seen = [await self.reaches("idle")]
        await self.submit("<<prewait first | say hello>>")
        seen.append(await self.lives_through("running"))
        self._models.release("first")
        seen.append(await self.lives_through("idle"))
        command = f"prewait second | {habits.shell} touch made.txt"
        await self.submit(f"<<{command} ;; prewait third | say done>>")
        seen.append(await self.lives_through("running"))
        self._models.release("second")
        seen.append(await self.lives_through("waiting_approval"))
        await self.shows("waiting_approval")
        await self.press(*habits.approve)
        seen.append(await self.lives_through("running"))
        self._models.release("third")
        seen.append(await self.lives_through("idle"))
        await self.submit("<<say begun | wait never | say ended>>")
        seen.append(await self.lives_through("running"))
        await self._tmux.wait_for(self._pane, "begun")
        await self.interrupt()
        seen.append(await self.lives_through("idle"))
        await self.submit("<<prewait fourth | err 400 broken>>")
        seen.append(await self.lives_through("running"))
        self._models.release("fourth")
        seen.append(await self.lives_through("error"))
        await self.submit(habits.leave)
        seen.append(await self.reaches("exited"))
        return seen


@asynccontextmanager
async def living(
    provider: str, started: Launch, models: ModelServer, tmux: PrivateTmux, peer: Peer
) -> AsyncIterator[Life]:
    """Start a program in a pane of its own and follow what is said of it."""
    variables = shlex.join(f"{key}={value}" for key, value in started.env.items())
    command = IN_PANE.format(variables=variables, command=shlex.join(started.argv))
    async with peer.follow() as told:
        pane = await tmux.new_pane(command, cwd=started.cwd)
        life = Life(provider, tmux, pane, models, peer)
        life.told = told
        yield life


def project_in(home: Path) -> Path:
    """Return a directory for a program to work in."""
    project = home / "project"
    project.mkdir(exist_ok=True)
    return project
