"""The commands around wrapped agents: which profiles there are, keys by name, logs, refusals."""

import asyncio
import os
import re
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from bullpen.agents.instances import Instance, Instances
from bullpen.agents.processes import start_of
from bullpen.agents.profiles import load, names
from bullpen.api.runtime import Paths
from bullpen.cli.group import bullpen
from bullpen.cli.keys import NAMES, UnknownKeyError, encode
from bullpen.cli.wrapped import profile_names
from bullpen.wrapper import attach as attach_module
from bullpen.wrapper import viewer
from tests.cli.commands import execute, invoke, show

PAGES = Path(__file__).parents[2] / "docs"


def put(home: Path, name: str, content: str) -> Path:
    path = home / ".config/bullpen/profiles" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


async def complete(*words: str, incomplete: str = "") -> list[str]:
    completion = ShellComplete(bullpen, {}, "bullpen", "_BULLPEN_COMPLETE")
    found = await asyncio.to_thread(completion.get_completions, list(words), incomplete)
    return [each.value for each in found]


@pytest.mark.requirement("S-09", "S-180")
async def test_profiles_are_listed_with_their_programs(home: Path) -> None:
    path = put(home, "mine", 'command = "no-such-program"\nidle_regex = "> $"\n')
    listed = await show("profiles")
    assert [line.split()[0] for line in listed.lines[1:]] == list(await asyncio.to_thread(names))
    assert re.search(
        r"^mine +- no-such-program not found +- +~/.*mine.toml$", listed.out, re.MULTILINE
    )
    said = (await show("profiles", "--json")).json
    mine = next(each for each in said["profiles"] if each["name"] == "mine")
    assert (mine["program"], mine["file"], mine["is_shipped"]) == (None, str(path), False)
    put(home, "broken", "argz = 1")
    listed = await invoke("profiles")
    assert listed.code == 1
    assert "broken.toml: argz: there is no such key; did you mean args?" in listed.err
    assert "dummy" in listed.out


@pytest.mark.requirement("S-180")
async def test_a_profile_is_a_command_in_help_and_completion(home: Path) -> None:
    put(home, "mine", 'command = "x"\nidle_regex = "> $"\ndescription = "all my own"\n')
    put(home, "ls", 'command = "x"\nidle_regex = "> $"\n')
    assert set(await asyncio.to_thread(profile_names)) == set(await asyncio.to_thread(names))
    out = (await show("--help")).out
    profiles = out.partition("Profiles")[2]
    assert re.search(r"^  mine +all my own$", profiles, re.MULTILINE)
    assert re.search(r"^  claude +Claude Code$", profiles, re.MULTILINE)
    assert "\n  ls " not in profiles  # the command goes before
    assert "Run mine here" in (await show("mine", "--help")).out
    assert "List every agent" in (await show("ls", "--help")).out
    assert await complete(incomplete="min") == ["mine"]
    assert await complete("run", incomplete="cl") == ["claude"]
    assert await complete("start", incomplete="du") == ["dummy"]
    assert (await invoke("minne")).code == 2


async def test_agents_in_wrappers_are_completed(home: Path) -> None:
    await asyncio.to_thread(put_instance, "reviewer")
    for command in ("attach", "stop", "send-keys"):
        assert await complete(command, incomplete="re") == ["reviewer"]


def put_instance(name: str, *, log: str = "", pid: int | None = None) -> None:
    """A wrapper that this process pretends to be."""
    pid = os.getpid() if pid is None else pid
    made = Instance(name=name, profile="dummy", pid=pid, start=start_of(pid) or "", log=log)
    Instances(Paths.resolve().agents).write(made)


@pytest.mark.parametrize(
    ("words", "data"),
    [
        (("Enter",), b"\r"),
        (("escape",), b"\x1b"),
        (("hello", "Space", "world"), b"hello world"),
        (("C-c",), b"\x03"),
        (("C-[",), b"\x1b"),
        (("C-Space",), b"\0"),
        (("M-b",), b"\x1bb"),
        (("M-Enter",), b"\x1b\r"),
        (("Up", "F1", "F12"), b"\x1b[A\x1bOP\x1b[24~"),
        (("C-", "x-y", "日本"), "C-x-y日本".encode()),
    ],
    ids=["enter", "case", "text", "control", "bracket", "null", "meta", "meta-key", "keys", "none"],
)
def test_keys_are_named_as_people_know_them(words: tuple[str, ...], data: bytes) -> None:
    assert encode(words) == data


def test_words_can_be_typed_as_they_stand() -> None:
    assert encode(("Enter", "C-c"), is_literal=True) == b"EnterC-c"
    assert encode(tuple(NAMES), is_literal=True) == "".join(NAMES).encode()
    with pytest.raises(UnknownKeyError, match=r"no key 'C-Entr'"):
        encode(("C-Entr",))


async def test_the_end_of_a_log_is_printed_and_what_was_put_aside_with_it(home: Path) -> None:
    logs = Paths.resolve().agent_logs
    logs.mkdir(parents=True)
    (logs / "claude.log").write_text("".join(f"line {n}\n" for n in range(100)))
    (logs / "claude.log.1").write_text("older\n")
    assert (await show("logs", "claude")).lines == [f"line {n}" for n in range(50, 100)]
    assert (await show("logs", "claude", "-n", "2")).lines == ["line 98", "line 99"]
    assert (await show("logs", "claude", "-n", "0")).out == ""
    assert (await show("logs", "claude", "-n", "1000")).lines[0] == "older"
    assert (await show("logs", "claude", "-f", "-n", "1")).out == "line 99\n"  # it has ended
    assert await complete("logs", incomplete="c") == ["claude"]
    missing = await invoke("logs", "codex")
    assert missing.code == 4
    assert missing.err == "bullpen: nothing is known of what 'codex' wrote\n"
    assert (await invoke("logs", "../logs/claude")).code == 0  # only its last part is a name


async def test_a_log_is_followed_over_being_put_aside_until_the_agent_ends(home: Path) -> None:
    path = home / "claude.log"
    path.write_text("one\n")
    agent = await asyncio.create_subprocess_exec("sleep", "600")
    await asyncio.to_thread(put_instance, "claude", log=str(path), pid=agent.pid)
    following = asyncio.create_task(execute("logs", "claude", "-f"))
    with path.open("a") as file:
        file.write("two\n")
    path.replace(home / "claude.log.1")
    path.write_text("three\n")
    agent.kill()
    await agent.wait()
    done = await following
    assert done.code == 0
    assert done.lines[-1] == "three"
    assert "two" in done.lines


async def test_what_is_not_in_a_wrapper_is_told_with_those_that_are(home: Path) -> None:
    nobody = await invoke("stop", "claude")
    assert nobody.code == 4
    assert "no agent called 'claude' runs in a wrapper; `bullpen run` starts one" in nobody.err
    await asyncio.to_thread(put_instance, "claude-2")
    assert "did you mean claude-2?" in (await invoke("attach", "claude-3")).err
    assert (await invoke("stop")).code == 2
    assert (await invoke("stop", "claude-2", "--all")).code == 2
    assert (await show("doctor", "--clean", "--json")).code == 0


async def test_stopping_everybody_where_there_is_nobody_is_done(home: Path) -> None:
    assert (await show("stop", "--all")).out == "no agent runs in a wrapper\n"
    assert (await show("stop", "--all", "--json")).json["stopped"] == []


@pytest.mark.parametrize("name", ["a b", "ä/b", "-", "x" * 64, "@x", "User"])
async def test_a_name_that_nobody_could_be_called_by_is_refused(name: str) -> None:
    assert (await invoke("start", "dummy", "--name", name)).code == 2


def test_the_page_about_profiles_has_every_key_and_port() -> None:
    page = (PAGES / "reference/profiles.md").read_text(encoding="utf-8")
    from bullpen.agents.profiles.load import _KEYS

    assert set(re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)) == set(_KEYS)
    ports = re.findall(r"^\| `([\w-]+)` \| (\d+) \|$", page, re.MULTILINE)
    shipped = {name: load(name, Path("/nowhere")).port for name in names(Path("/nowhere"))}
    assert {name: int(port) for name, port in ports} == shipped


def test_the_keys_that_detach_are_said_wherever_one_attaches() -> None:
    assert viewer.DETACH_KEYS in (bullpen.get_command(click.Context(bullpen), "attach").help or "")  # type: ignore[union-attr]
    page = (PAGES / "howto/run-an-agent.md").read_text(encoding="utf-8")
    assert viewer.DETACH_KEYS in page.replace("\\\\", "\\")
    assert attach_module.__doc__
