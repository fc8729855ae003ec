"""The real programs with our hooks in their settings: what they do is told, and nothing is left."""

import asyncio
import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bullpen.agents.hooks import install, settings_path, uninstall
from bullpen.agents.hooks.install import Scope
from bullpen.agents.hooks.programs import PROGRAMS
from bullpen.model.states import Provider
from bullpen.testing.models import ModelServer
from bullpen.testing.programs import Launch, NodeMissing, ensure, launch
from bullpen.testing.tmux import PrivateTmux, eventually
from tests.agents.hooks.listener import Listener

pytestmark = [
    pytest.mark.program,
    pytest.mark.timeout(1000),  # the first run downloads
    pytest.mark.xdist_group("programs"),  # each takes a core and half a gigabyte
]

ARGUMENTS = {
    Provider.CLAUDE: ("--allowedTools", "Bash"),
    Provider.CODEX: ("--dangerously-bypass-hook-trust",),
    Provider.COPILOT: ("--allow-all-tools",),
    Provider.GEMINI: ("-y",),
    Provider.OPENCODE: (),
}
EXPECTED = {
    Provider.CLAUDE: [
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "Stop",
        "SessionEnd",
    ],
    Provider.CODEX: [
        "SessionStart",
        "UserPromptSubmit",
        "PostModelRequest",
        "PreToolUse",
        "PostToolUse",
        "Stop",
        "SessionEnd",
    ],
    Provider.COPILOT: [
        "sessionStart",
        "userPromptSubmitted",
        "preToolUse",
        "postToolUse",
        "agentStop",
        "sessionEnd",
    ],
    Provider.GEMINI: [
        "SessionStart",
        "BeforeAgent",
        "BeforeTool",
        "AfterTool",
        "AfterAgent",
        "SessionEnd",
    ],
    Provider.OPENCODE: ["session.created", "session.status", "disposed"],
}
SCRIPT = "<<bash echo hello ;; prewait done | say all done>>"
WITHOUT_TOOL = "<<prewait done | say all done>>"  # where one would be refused without a word

every_program = pytest.mark.parametrize("provider", list(PROGRAMS), ids=str)


def prepare(provider: Provider, home: Path, models: ModelServer) -> Launch:
    """Return how to start a program in a home of its own, with the runtime paths of the test."""
    project = home / "project"
    project.mkdir(exist_ok=True)
    try:
        ensure(provider.value)
    except NodeMissing as missing:
        pytest.skip(str(missing))
    started = launch(
        provider.value,
        "prompt",
        home=home / "private",
        model_url=models.url,
        project=project,
        prompt=WITHOUT_TOOL if provider is Provider.OPENCODE else SCRIPT,
        arguments=ARGUMENTS[provider],
        variables={
            "XDG_RUNTIME_DIR": str(home / "run"),
            "XDG_STATE_HOME": str(home / "state"),
        },
    )
    if provider is Provider.OPENCODE:
        have_plugin_package(home / "private/.config/opencode")
    return started


def have_plugin_package(config: Path) -> None:
    """Let opencode find its package for plugins, which it would fetch from its registry."""
    package = "@opencode-ai/plugin"
    found = config / "node_modules" / package
    found.mkdir(parents=True)
    version = "1.18.33"
    (found / "package.json").write_text(json.dumps({"name": package, "version": version}))
    wanted = {"dependencies": {package: version}}
    (config / "package.json").write_text(json.dumps(wanted))
    packages = {"": wanted, f"node_modules/{package}": {"version": version}}
    lock = {"lockfileVersion": 3, "requires": True, "packages": packages}
    (config / "package-lock.json").write_text(json.dumps(lock))


def settings_of(provider: Provider, environment: Mapping[str, str]) -> Path:
    return settings_path(PROGRAMS[provider], Scope.USER, None, environment)


def run(started: Launch) -> None:
    done = subprocess.run(
        started.argv,
        env=dict(started.env),
        cwd=started.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@every_program
@pytest.mark.tmux
@pytest.mark.requirement("hooks:programs")
async def test_a_program_in_a_pane_tells_what_it_does_and_where(
    provider: Provider, home: Path, models: ModelServer
) -> None:
    started = await asyncio.to_thread(prepare, provider, home, models)
    settings = settings_of(provider, started.env)
    before = await asyncio.to_thread(lambda: settings.read_bytes() if settings.exists() else None)
    await asyncio.to_thread(install, provider, environment=started.env)
    with Listener(home / "run/bullpen/bullpend.sock") as daemon:
        async with PrivateTmux(width=120, height=40) as tmux:
            variables = [f"{key}={value}" for key, value in started.env.items()]
            words = shlex.join([*variables, *started.argv])
            inside = 'TMUX="$TMUX" TMUX_PANE="$TMUX_PANE"'
            pane = await tmux.new_pane(f"exec env -i {inside} {words}", cwd=started.cwd)
            asked = ("display-message", "-p", "-t", pane, "#{pane_pid}")
            pid = int(await tmux.run(*asked))
            await asyncio.to_thread(
                models.wait_for_request, lambda request: request.gate == "done", 60.0
            )
            told = daemon.reports
            assert {report["provider"] for report in told} == {provider.value}
            assert {report["tmux_pane"] for report in told} == {pane}
            assert {report["tmux"].split(",")[0] for report in told} == {tmux.target.socket_path}
            assert {report["cwd"] for report in told} == {str(started.cwd)}
            for process in {report["pid"] for report in told}:
                assert process == pid or await parent_of(process) == pid
            models.release("done")
            last = EXPECTED[provider][-1]
            await asyncio.to_thread(daemon.wait_for, last, timeout=60)
        events = list(dict.fromkeys(each for each in daemon.events if each in EXPECTED[provider]))
        if provider is Provider.COPILOT:  # it runs the hooks of its first prompt at once
            events[:2] = sorted(events[:2])
        assert events == EXPECTED[provider]
    await asyncio.to_thread(uninstall, provider, environment=started.env)
    after = await asyncio.to_thread(lambda: settings.read_bytes() if settings.exists() else None)
    assert after == before


async def parent_of(pid: int) -> int:
    done = await asyncio.to_thread(
        subprocess.run,
        ["ps", "-o", "ppid=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@every_program
@pytest.mark.requirement("hooks:programs")
def test_without_a_daemon_what_a_program_does_is_kept(
    provider: Provider, home: Path, models: ModelServer
) -> None:
    started = prepare(provider, home, models)
    install(provider, environment=started.env)
    models.release("done")
    run(started)
    kept = sorted(
        (home / "state/bullpen/spool").glob(f"{provider}-*.json"),
        key=lambda path: path.name.split("-")[1],
    )
    events = [json.loads(path.read_bytes())["payload"]["hook_event_name"] for path in kept]
    told = dict.fromkeys(event for event in events if event in EXPECTED[provider])
    assert list(told) == EXPECTED[provider]


@every_program
def test_hooks_that_lead_nowhere_do_no_harm(
    provider: Provider, home: Path, models: ModelServer
) -> None:
    """As after somebody has removed bullpen, and not its hooks."""
    started = prepare(provider, home, models)
    settings = install(provider, environment=started.env).path
    settings.write_text(settings.read_text().replace("shim.py", "gone.py").replace("python", "gon"))
    models.release("done")
    run(started)


async def test_a_project_that_claude_reports_from_is_reported_by_copilot_as_its_own(
    home: Path, models: ModelServer
) -> None:
    started = await asyncio.to_thread(prepare, Provider.COPILOT, home, models)
    await asyncio.to_thread(install, Provider.CLAUDE, scope=Scope.PROJECT, project=started.cwd)
    models.release("done")
    with Listener(home / "run/bullpen/bullpend.sock") as daemon:
        await asyncio.to_thread(run, started)
        await eventually(lambda: "SessionEnd" in daemon.events)
    assert {report["provider"] for report in daemon.reports} == {"copilot"}
