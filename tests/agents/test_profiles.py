"""A profile is a file; what is wrong with one is told with the file and the key."""

import contextlib
import re
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.agents.profile import InterruptBy, Profile
from bullpen.agents.profiles import (
    ProfileFileError,
    UnknownProfileError,
    listed,
    load,
    names,
    parse,
    user_directory,
)
from bullpen.model.states import Provider

SHIPPED = (
    "claude",
    "codex",
    "conformance",
    "conformance-bare",
    "copilot",
    "dummy",
    "gemini",
    "opencode",
)
PLAIN = 'command = "mine"\nidle_regex = "> $"\n'


def put(name: str, content: str) -> Path:
    path = user_directory() / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def read(content: str) -> Profile:
    return parse(content, file=Path("/there/mine.toml"))


@pytest.mark.requirement("S-09", "S-143")
def test_there_are_seven_and_each_has_a_port_of_its_own() -> None:
    assert names() == SHIPPED
    profiles = {name: load(name) for name in SHIPPED}
    ports = {name: profile.port for name, profile in profiles.items()}
    assert ports["claude"] == 8100
    assert ports["codex"] == 8101
    assert ports["gemini"] == 8102
    assert ports["dummy"] == 8199
    assert ports["conformance"] == 9999
    assert len(set(ports.values())) == len(SHIPPED)
    assert [each.profile for each in listed()] == list(profiles.values())
    assert all(each.is_shipped for each in listed())


@pytest.mark.requirement("S-182")
@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "copilot", "opencode"])
def test_a_program_with_a_screen_is_run_by_its_name(name: str) -> None:
    profile = load(name)
    assert profile.name == name
    assert profile.command == (name,)
    assert profile.provider == Provider(name)
    assert profile.idle_regex == "> $"
    assert profile.submit_sequence == "\r"
    assert profile.env == {"TERM": "xterm-256color"}
    assert profile.has_screen
    assert profile.interrupt is not InterruptBy.SIGNAL


@pytest.mark.requirement("S-182")
def test_the_dummy_is_found_from_anywhere() -> None:
    dummy = load("dummy")
    assert dummy.command[0] == sys.executable
    script = Path(dummy.command[-1])
    assert script.is_absolute()
    assert script.name == "dummy_agent.py"
    assert script.exists()
    assert "-u" in dummy.command
    assert dummy.submit_sequence == "\n"
    assert dummy.env == {"PYTHONUNBUFFERED": "1"}
    assert dummy.provider is Provider.OTHER
    assert not dummy.has_screen


@pytest.mark.requirement("S-180", "S-181")
def test_a_file_dropped_in_is_a_profile_of_its_name() -> None:
    path = put("my-agent", PLAIN)
    profile = load("my-agent")
    assert profile.name == "my-agent"
    assert profile.command == ("mine",)
    assert profile.args == ()
    assert profile.submit_sequence == "\n"
    assert profile.env == {}
    assert profile.port is None
    assert profile.addresses
    assert "my-agent" in names()
    found = next(each for each in listed() if each.profile.name == "my-agent")
    assert found.file == path
    assert not found.is_shipped


@pytest.mark.requirement("S-180")
def test_a_file_named_like_one_of_ours_changes_the_keys_it_has() -> None:
    put("claude", 'args = ["--model", "opus"]\nport = 9000\n[env]\nMORE = "1"\n')
    ours, mine = load("claude", Path("/nowhere")), load("claude")
    assert mine.args == ("--model", "opus")
    assert mine.port == 9000
    assert mine.env == {"TERM": "xterm-256color", "MORE": "1"}
    assert mine.command == ours.command
    assert mine.submit_sequence == ours.submit_sequence
    assert mine.has_screen
    assert names() == SHIPPED


@pytest.mark.requirement("S-181")
def test_a_profile_says_all_that_can_be_said_of_one() -> None:
    assert read(
        """
        description = "mine"
        command = "python3 -u 'my agent.py'"
        args = "--fast"
        idle_regex = '\\$ $'
        submit_sequence = '\\e[13u'
        provider = "codex"
        port = 9001
        has_screen = true
        interrupt = "escape_twice"
        addresses = false
        env = { A = "1" }
        """
    ) == Profile(
        name="mine",
        description="mine",
        command=("python3", "-u", "my agent.py"),
        args=("--fast",),
        idle_regex="\\$ $",
        submit_sequence="\x1b[13u",
        provider=Provider.CODEX,
        port=9001,
        has_screen=True,
        interrupt=InterruptBy.ESCAPE_TWICE,
        addresses=False,
        env={"A": "1"},
    )


@pytest.mark.requirement("S-181")
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r'"\r"', "\r"),
        (r"'\r'", "\r"),
        (r"'\r\n'", "\r\n"),
        (r"'\x1b[13u'", "\x1b[13u"),
        (r"'\u3042'", "あ"),
        ("'あ'", "あ"),
        (r"'\\r'", "\\r"),
    ],
    ids=["by-toml", "by-us", "two", "byte", "character", "as-it-is", "backslash"],
)
def test_escapes_of_a_submit_sequence_are_decoded(written: str, meant: str) -> None:
    assert read(f"{PLAIN}submit_sequence = {written}\n").submit_sequence == meant


def test_words_may_name_the_interpreter_and_what_lies_beside_the_file() -> None:
    profile = read(
        """
        command = ["{python}", "{directory}/agent.py", '{"json": "{python}"}']
        args = ["{other}"]
        idle_regex = ""
        """
    )
    assert profile.command == (
        sys.executable,
        "/there/agent.py",
        f'{{"json": "{sys.executable}"}}',
    )
    assert profile.args == ("{other}",)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("comm = 'x'", "comm: there is no such key; did you mean command?"),
        ("name = 'x'", "name: there is no such key; the file's name is the profile's"),
        ("zzz = 1", "zzz: there is no such key; there are command, idle_regex,"),
        ("idle_regex = ''", "command: is missing"),
        ("command = 'x'", "idle_regex: is missing"),
        (PLAIN + "port = 0", "port: Expected `int` >= 1"),
        (PLAIN + "port = '8100'", "port: Expected `int`, got `str`"),
        (PLAIN + "args = [1]", "args[0]: Expected `str`, got `int`"),
        (PLAIN + "env = { A = 1 }", "env[...]: Expected `str`, got `int`"),
        (PLAIN + "env = { 'A=B' = '1' }", "env: 'A=B' is no variable"),
        (PLAIN + "provider = 'cluade'", "provider: Invalid enum value 'cluade'"),
        (PLAIN + "submit_sequence = ''", "submit_sequence: Expected `str` of length >= 1"),
        (PLAIN + r"submit_sequence = '\q'", r"submit_sequence: there is no escape \q; there are"),
        (PLAIN + "submit_sequence = '\\'", "submit_sequence: there is no escape \\;"),
        ("command = ''\nidle_regex = ''", "command: is empty"),
        ("command = []\nidle_regex = ''", "command: is empty"),
        ("command = '\"x'\nidle_regex = ''", "command: No closing quotation"),
        ("command = [\"a\\u0000\"]\nidle_regex = ''", "command: has a null character"),
        ("command = 'x'\nidle_regex = '('", "idle_regex: is no pattern: missing ), unterminated"),
        ("command = ", "is no TOML: "),
    ],
    ids=[
        *("misspelt", "name", "far-off", "no-command", "no-pattern", "port", "port-text"),
        *("args", "env", "env-name", "provider", "no-submit", "escape", "half-an-escape"),
        *("empty", "no-words", "quotes", "null", "pattern", "no-toml"),
    ],
)
def test_what_is_wrong_is_told_with_the_file_and_the_key(content: str, problem: str) -> None:
    with pytest.raises(ProfileFileError) as caught:
        read(content)
    assert str(caught.value).startswith(f"/there/mine.toml: {problem}")
    assert caught.value.file == "/there/mine.toml"


def test_an_unknown_profile_names_the_nearest_and_where_to_put_ones_own() -> None:
    with pytest.raises(UnknownProfileError, match=r"'cluade'; did you mean claude\?") as caught:
        load("cluade")
    assert "~/.config/bullpen/profiles" in str(caught.value)
    with pytest.raises(UnknownProfileError, match="there are claude, codex, conformance, "):
        load("zzz")
    with pytest.raises(UnknownProfileError):
        load("../profiles/claude")


def test_a_bad_file_harms_no_other() -> None:
    put("broken", "command =")
    put("no.name", PLAIN)
    put("mine", PLAIN)
    troubles: list[ProfileFileError] = []
    found = {each.profile.name for each in listed(on_trouble=troubles.append)}
    assert found == {*SHIPPED, "mine"}
    assert [Path(each.file).stem for each in troubles] == ["broken", "no.name"]
    with pytest.raises(ProfileFileError, match="is no TOML"):
        listed()


def test_a_file_that_cannot_be_read_is_told() -> None:
    path = put("mine", "")
    path.write_bytes(b"# \xff")
    with pytest.raises(ProfileFileError, match="byte 2 is not UTF-8"):
        load("mine")
    path.write_bytes(b"#" * 2**19)
    with pytest.raises(ProfileFileError, match="is longer than"):
        load("mine")
    path.unlink()
    path.mkdir()
    with pytest.raises(ProfileFileError, match="cannot be read: Is a directory"):
        load("mine")
    shutil.rmtree(path)


KEYS = ["command", "idle_regex", "args", "submit_sequence", "env", "port", "has_screen", "other"]
VALUES = ["1", "true", "'\\'", "'\"'", "[]", "['a', 1]", "{ A = '' }", "nan", "1979-05-27", "'('"]


@given(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)), st.text(max_size=3))
def test_any_content_is_a_profile_or_refused(lines: dict[str, str], junk: str) -> None:
    content = "\n".join(f"{key} = {value}" for key, value in lines.items())
    for each in (content, f"{content}\n{junk}"):
        with contextlib.suppress(ProfileFileError):
            read(each)


@given(st.text(max_size=20))
def test_a_submit_sequence_without_a_backslash_is_as_it_is_written(text: str) -> None:
    if not text or "\\" in text or re.search(r"[^\x20-\x7e\x80-\ud7ff\ue000-\U0010ffff]", text):
        return
    quoted = text.replace('"', '\\"')
    assert read(f'{PLAIN}submit_sequence = "{quoted}"').submit_sequence == text
