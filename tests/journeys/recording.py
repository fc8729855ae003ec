"""Records lives of real programs for `tests/recordings/replay`, each moment with its truth.

    python -m tests.journeys.recording DIRECTORY [NAME ...]

The truth does not come from what is tested. That an agent is running is known from the model
server, which holds its request; that it waits from the dialog that can be read on its screen; that
it is idle from a screen that does not change while nobody has asked anything. A state is labelled
when it has lasted so long that every source has had its time.
"""

import asyncio
import re
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bullpen.model.views import PanePlace, SignatureInputs
from bullpen.observe.reports import PaneReport, ScreenReport
from bullpen.testing.models import ModelServer
from tests.daemon.harness import Peer, until
from tests.journeys.lives import Life
from tests.journeys.test_real_programs import a_life

LIVES = {
    "claude": ("claude", False),
    "claude-hooks": ("claude", True),
    "codex": ("codex", False),
    "codex-hooks": ("codex", True),
    "copilot": ("copilot", False),
    "gemini-hooks": ("gemini", True),
}
DIALOGS = {
    "claude": "Do you want to proceed?",
    "codex": "Would you like to run the following command?",
    "copilot": "Do you want to run this command?",
    "gemini": "Allow once",
}
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SECONDS = 60.0
EVERY_SECONDS = 0.5
LABELS = 5
QUIET_SECONDS = 1.5  # a screen that has not changed for so long is finished
SETTLED_SECONDS = 2.0
IDLE_SECONDS = 5.0  # a prompt on a screen is believed after 4 s, and looked at every second


class Recorded(Life):
    """A life of which the truth is known."""

    @classmethod
    def of(cls, life: Life) -> "Recorded":
        recorded = cls(life.provider, life._tmux, life._pane, life._models, life._peer)
        recorded.told = life.told
        return recorded

    @property
    def pane(self) -> str:
        return self._pane

    @property
    def models(self) -> ModelServer:
        return self._models

    async def sees(self, text: str) -> None:
        async def is_there() -> bool:
            return text in await self.screen()

        await until(is_there, SECONDS)

    async def screen(self) -> str:
        return await self._tmux.screen(self._pane)


class Recorder:
    """Follows the log of a daemon, and notes the truth beside it."""

    def __init__(self, life: Recorded, peer: Peer) -> None:
        self.rows: list[dict[str, Any]] = []
        self._life = life
        self._peer = peer
        self._session = ""

    async def follow(self) -> None:
        """Write down all that is taken, when it is."""
        while True:
            batch = await self._peer.ask("gateway.pull_events", consumer="recorder")
            at = _now()
            self.rows += [{"at": at, "observation": each} for each in batch["events"]]
            if token := batch["delivery_token"]:
                await self._peer.ask(
                    "gateway.ack_delivery", delivery_token=token, consumer="recorder"
                )
            await asyncio.sleep(0.05)

    async def label(self, activity: str, *, after: float = SETTLED_SECONDS) -> None:
        """Note for a while what is true."""
        await asyncio.sleep(after)
        for agent in (await self._peer.agents()).values():
            self._session = agent["session_key"] or self._session
        session = "" if self._session.startswith("pane:") else self._session
        for _ in range(LABELS):
            label = {"subject": self._life.pane, "activity": activity, "session": session}
            self.rows.append({"at": _now(), "label": label})
            await asyncio.sleep(EVERY_SECONDS)

    async def idle(self) -> None:
        await self._quiet()
        await self.label("idle", after=IDLE_SECONDS)

    async def running(self, gate: str) -> None:
        await asyncio.to_thread(
            self._life.models.wait_for_request, lambda request: request.gate == gate, SECONDS
        )
        await self.label("running")

    async def asked(self, provider: str) -> None:
        await self._life.sees(DIALOGS[provider])
        await self.label("waiting_approval")

    async def _quiet(self) -> None:
        before, since = "", 0.0
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(SECONDS):
            while loop.time() - since < QUIET_SECONDS:
                screen = await self._life.screen()
                if screen != before:
                    before, since = screen, loop.time()
                await asyncio.sleep(0.2)


async def live(life: Recorded, recorder: Recorder) -> None:
    """Live through every state and some of the edges between them."""
    provider, habits = life.provider, life.habits
    await life.reaches("idle")
    await recorder.idle()
    await life.submit("<<prewait first | say hello>>")
    await recorder.running("first")
    life.models.release("first")
    await recorder.idle()
    await life.submit(
        f"<<prewait second | {habits.shell} touch made.txt ;; prewait third | say done>>"
    )
    await recorder.running("second")
    life.models.release("second")
    await recorder.asked(provider)
    await life.press(*habits.approve)
    await recorder.running("third")
    life.models.release("third")
    await recorder.idle()
    # A question that is answered with no.
    await life.submit(f"<<{habits.shell} touch other.txt ;; say so be it>>")
    await recorder.asked(provider)
    await life.press("Escape")
    await recorder.idle()
    # A turn that is interrupted.
    await life.submit("<<say begun | wait never | say ended>>")
    await recorder.running("never")
    await life.interrupt()
    await recorder.idle()
    if provider == "claude":  # a new session in the same process
        await life.submit("/clear")
        await recorder.idle()
    await life.submit("<<prewait fourth | err 400 broken>>")
    await recorder.running("fourth")
    life.models.release("fourth")
    await life.sees("broken")
    await recorder.label("error")
    await life.submit(habits.leave)
    await life.reaches("exited")
    await recorder.label("none")


async def record(name: str, home: Path) -> list[dict[str, Any]]:
    """Return the rows of one life."""
    provider, with_hooks = LIVES[name]
    with pytest.MonkeyPatch.context() as patch:
        async with a_life(provider, home, patch, with_hooks=with_hooks) as (followed, peer):
            life = Recorded.of(followed)
            recorder = Recorder(life, peer)
            following = asyncio.create_task(recorder.follow())
            try:
                await live(life, recorder)
            finally:
                following.cancel()
                await asyncio.wait([following])
                if not following.cancelled():
                    following.result()
        return recorder.rows


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ------------------------------------------------------------------------------------ making small


def small(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the panes beside the one that is labelled, and what nobody decides by."""
    [pane] = {row["label"]["subject"] for row in rows if "label" in row}
    return [_short(row) for row in rows if "label" in row or _pane_of(row) in (None, pane)]


def _pane_of(row: dict[str, Any]) -> str | None:
    pane: str | None = row["observation"]["pane_id"]
    return pane


def _short(row: dict[str, Any]) -> dict[str, Any]:
    if "label" in row:
        return row
    observation = {key: each for key, each in row["observation"].items() if each is not None}
    if observation["source_kind"] == "poller" and "place" in observation["payload"]:
        payload = _without_defaults(_short_report(observation["payload"]))
        if payload.get("last_output_at") == observation["observed_at"]:
            del payload["last_output_at"]  # as it is without
        observation["payload"] = payload
    if observation["confidence"] == 1.0:
        del observation["confidence"]
    return {"at": row["at"], "observation": observation}


def _short_report(payload: Any) -> PaneReport:
    report = msgspec.convert(payload, PaneReport)
    place = report.place
    screen = report.screen and ScreenReport(
        rule=report.screen.rule, is_ready=report.screen.is_ready
    )
    return msgspec.structs.replace(
        report,
        screen=screen,
        signature=msgspec.structs.replace(
            report.signature,
            reason="",
            confidence=0.0,
            inputs=SignatureInputs(provider_hint=report.signature.inputs.provider_hint),
        ),
        place=PanePlace(
            tmux_socket=place.tmux_socket,
            pane_pid=place.pane_pid,
            tty=place.tty,
            current_path=place.current_path,
            title=place.title,
        ),
    )


def _without_defaults(value: Any) -> Any:
    """Return an object with only the members that say something."""
    if not isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    defaults = {field.name: field.default for field in msgspec.structs.fields(value)}
    return {
        name: _without_defaults(each)
        for name, each in msgspec.structs.asdict(value).items()
        if each != defaults[name] and each not in ((), "")
    }


def anonymous(text: str, home: Path) -> str:
    """Put other and shorter names in the place of this machine's."""
    for place in (home / "private", home):
        text = re.sub(rf"(/private)?{re.escape(str(place))}", "/home/user", text)
    text = re.sub(r"/tmp/bullpen-tmux-[a-z0-9_]+/tmux\.sock", "/tmp/tmux", text)
    text = re.sub(r"/[^ '\"]*/bullpen/programs/[^ '\"]*/(?=[^/ '\"]+['\"])", "/usr/bin/", text)
    text = re.sub(r"(:\d\d\.\d{3})\d{3}Z", r"\1Z", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", text)
    for number, found in enumerate(dict.fromkeys(UUID.findall(text)), start=1):
        text = text.replace(found, f"id-{number}")
    text = re.sub(r'"event_id":"(%\d+)\.\d+@[0-9.]+:\d+(\d{5})"', r'"event_id":"\1:\2"', text)
    for server in set(re.findall(r'"tmux_server":"([0-9.]+)"', text)):
        text = text.replace(server, "100.1")
    return text


def main(arguments: list[str]) -> None:
    directory, names = Path(arguments[0]), arguments[1:] or list(LIVES)
    for name in names:
        with tempfile.TemporaryDirectory(prefix="bullpen-", ignore_cleanup_errors=True) as place:
            home = Path(place)
            set_home(home)
            rows = asyncio.run(record(name, home))
            lines = [msgspec.json.encode(each).decode() for each in small(rows)]
            text = anonymous("\n".join(lines) + "\n", home)
            (directory / f"{name}.jsonl").write_text(text, encoding="utf-8")
            sys.stdout.write(f"{name}: {len(lines)} rows, {len(text)} bytes\n")


def set_home(home: Path) -> None:
    """Give the daemon directories of its own."""
    patch = pytest.MonkeyPatch()
    (home / "run").mkdir(mode=0o700)
    patch.setenv("HOME", str(home))
    for name, place in (
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_DATA_HOME", ".local/share"),
        ("XDG_STATE_HOME", ".local/state"),
        ("XDG_RUNTIME_DIR", "run"),
    ):
        patch.setenv(name, str(home / place))
    for name in ("TMUX", "TMUX_PANE"):
        patch.delenv(name, raising=False)


if __name__ == "__main__":
    main(sys.argv[1:])
