"""Settings are somebody's own: what goes in comes out, and nothing else ever moves."""

import json
import re
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.agents.hooks.document import Document
from bullpen.agents.hooks.errors import MalformedDocumentError
from bullpen.agents.hooks.merge import EventState, inspect, put_in, take_out
from bullpen.agents.hooks.programs import PROGRAMS, HookedProgram, Runner
from bullpen.model.states import Provider

CLAUDE = PROGRAMS[Provider.CLAUDE]
COPILOT = PROGRAMS[Provider.COPILOT]
RUNNER = Runner("/usr/bin/python3", "/opt/bullpen/shim.py")
NEWER = Runner("/usr/bin/python4", "/opt/newer/shim.py")

every_program = pytest.mark.parametrize(
    "program",
    [each for each in PROGRAMS.values() if not each.is_plugin],
    ids=lambda each: each.provider.value,
)


# --------------------------------------------------------------------- documents of any formatting

scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
their_hook = st.fixed_dictionaries(
    {"type": st.just("command"), "command": st.just("echo theirs"), "bash": st.just("true")}
)
their_entry = st.one_of(
    their_hook,
    st.fixed_dictionaries({"matcher": st.just("*"), "hooks": st.lists(their_hook, max_size=2)}),
)


def documents(program: HookedProgram) -> st.SearchStrategy[dict[str, Any]]:
    """Settings with anything in them, hooks of others included."""
    events = st.sampled_from([*program.events[:3], "SomeOtherEvent"])
    hooks = st.dictionaries(events, st.lists(their_entry, max_size=2), max_size=3)
    return st.dictionaries(st.text(max_size=3), values, max_size=3).flatmap(
        lambda others: st.one_of(
            st.just(others),
            hooks.map(lambda each: {**others, "hooks": each}),
            hooks.map(lambda each: {"hooks": each, **others}),
        )
    )


SPACES = ["", "", " ", "\n", "\n  ", "\r\n\t", "\t", "\n\n    "]
COMMENTS = [" // a note\n", "/* a note */", "\n// a line\n  ", " /* two\n lines */ "]


def render(value: Any, space: st.SearchStrategy[str], draw: st.DrawFn) -> str:
    """Write JSON with anything that may stand between two signs."""
    if isinstance(value, dict):
        members = [
            draw(space)
            + json.dumps(key)
            + draw(space)
            + ":"
            + draw(space)
            + render(each, space, draw)
            for key, each in value.items()
        ]
        return "{" + (draw(space) + ",").join(members) + draw(space) + "}"
    if isinstance(value, list):
        items = [draw(space) + render(each, space, draw) for each in value]
        return "[" + (draw(space) + ",").join(items) + draw(space) + "]"
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@st.composite
def texts(draw: st.DrawFn, program: HookedProgram) -> str:
    value = draw(documents(program))
    if draw(st.booleans()):  # as programs and people mostly write it
        indent = draw(st.sampled_from([None, "  ", "    ", "\t", ""]))
        text = json.dumps(value, indent=indent)
        if draw(st.booleans()):
            text = text.replace("\n", "\r\n")
        return text + draw(st.sampled_from(["", "\n", "\r\n", "\n\n"]))
    signs = SPACES + (COMMENTS if program.takes_comments else [])
    space = st.sampled_from(signs)
    return draw(space) + render(value, space, draw) + draw(space)


@every_program
@settings(max_examples=40)
@given(data=st.data())
def test_what_is_put_in_comes_out_to_the_byte(program: HookedProgram, data: st.DataObject) -> None:
    text = data.draw(texts(program))
    installed = put_in(text, program, RUNNER)
    assert set(inspect(installed, program, RUNNER).values()) == {EventState.INSTALLED}
    assert take_out(installed, program)[0] == text


@every_program
@settings(max_examples=40)
@given(data=st.data())
def test_twice_is_the_same_as_once(program: HookedProgram, data: st.DataObject) -> None:
    installed = put_in(data.draw(texts(program)), program, RUNNER)
    assert put_in(installed, program, RUNNER) == installed


@every_program
@settings(max_examples=40)
@given(data=st.data())
def test_an_older_install_is_renewed_in_its_place(
    program: HookedProgram, data: st.DataObject
) -> None:
    text = data.draw(texts(program))
    older = put_in(text, program, RUNNER)
    assert set(inspect(older, program, NEWER).values()) == {EventState.OUTDATED}
    newer = put_in(older, program, NEWER)
    assert set(inspect(newer, program, NEWER).values()) == {EventState.INSTALLED}
    assert "/opt/bullpen/shim.py" not in newer
    assert take_out(newer, program)[0] == text


@every_program
@settings(max_examples=40)
@given(data=st.data())
def test_everything_else_says_the_same_as_before(
    program: HookedProgram, data: st.DataObject
) -> None:
    text = data.draw(texts(program))
    before, after = (loaded(each, program) for each in (text, put_in(text, program, RUNNER)))
    hooks = before.get("hooks", {})
    assert {**after, "hooks": None} == {**before, "hooks": None}
    for event in after["hooks"]:
        theirs = [each for each in after["hooks"][event] if "bullpen-hook" not in json.dumps(each)]
        assert theirs == hooks.get(event, [])


@every_program
@settings(max_examples=40)
@given(data=st.data())
def test_what_was_changed_meanwhile_stays_changed(
    program: HookedProgram, data: st.DataObject
) -> None:
    text = data.draw(texts(program).filter(lambda each: re.search(r"\{\s*\"", each)))
    at = (
        text.index("{") + 1
        if not program.takes_comments
        else Document(text, comments=True).root.start + 1
    )

    def changed(of: str) -> str:
        return of[:at] + '"somebody": "else",' + of[at:]

    assert take_out(changed(put_in(text, program, RUNNER)), program)[0] == changed(text)


def loaded(text: str, program: HookedProgram) -> dict[str, Any]:
    document = Document(text, comments=program.takes_comments)
    return document.load(document.root)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------- by way of example

STOP = HookedProgram(
    provider=Provider.CLAUDE,
    title="a program with one hook",
    events=("Stop",),
    user_file=("", ".one", "settings.json"),
    project_file=".one/settings.json",
)
COMMAND = "/usr/bin/python3 -I -S /opt/bullpen/shim.py claude Stop $PPID || : # bullpen-hook"


def with_stop(text: str) -> str:
    return put_in(text, STOP, RUNNER)


def test_the_entry_is_written_as_the_document_is() -> None:
    text = '{\n    "model": "opus"\n}\n'
    assert (
        with_stop(text)
        == """{
    "model": "opus",
    "hooks": {
        "Stop": [
            {
                "hooks": [
                    {
                        "type": "command",
                        "command": "COMMAND",
                        "timeout": 5
                    }
                ]
            }
        ]
    }
}
""".replace("COMMAND", COMMAND)
    )


def test_a_document_on_one_line_stays_on_one_line() -> None:
    hook = json.dumps([{"hooks": [{"type": "command", "command": COMMAND, "timeout": 5}]}])
    assert with_stop('{"model": "opus"}') == f'{{"model": "opus", "hooks": {{"Stop": {hook}}}}}'
    tight = hook.replace('": ', '":').replace(', "', ',"')
    assert with_stop('{"model":"opus"}') == f'{{"model":"opus","hooks":{{"Stop":{tight}}}}}'


def test_ours_comes_after_theirs() -> None:
    theirs = [{"matcher": "x", "hooks": [{"type": "command", "command": "true"}]}]
    entries = json.loads(with_stop(json.dumps({"hooks": {"Stop": theirs}})))["hooks"]["Stop"]
    assert entries[:-1] == theirs
    assert entries[-1]["hooks"][0]["command"] == COMMAND


def test_a_comment_behind_the_last_line_stays_with_it() -> None:
    text = """// how I like it
{
  "theme": "dark" // at night
  /* and
     no more */
}
"""
    lines = put_in(text, COPILOT, RUNNER).splitlines()
    assert lines[:3] == ["// how I like it", "{", '  "theme": "dark", // at night']
    assert lines[-4:] == ["  }", "  /* and", "     no more */", "}"]


def test_lines_end_as_they_do_in_the_document() -> None:
    text = '{\r\n  "theme": "dark" // at night\r\n}\r\n'
    installed = put_in(text, COPILOT, RUNNER)
    assert installed.count("\n") == installed.count("\r\n") == installed.count("\r")
    assert '"theme": "dark", // at night\r\n  "hooks": {\r\n' in installed


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("{}", None),
        ('{"hooks": {}}', "empty-hooks"),
        ('{"hooks": {"Stop": []}}', "empty-list"),
        ('{\n  "hooks": {\n    "Stop": [\n    ]\n  }\n}', "empty-list"),
    ],
)
def test_what_would_look_the_same_without_us_is_noted(text: str, flag: str | None) -> None:
    installed = with_stop(text)
    flags = re.findall(r"# bullpen-hook([^\"]*)", installed)
    assert flags == [f" {flag}" if flag else ""]
    assert take_out(installed, STOP)[0] == text


def test_no_file_is_noted_and_becomes_none_again() -> None:
    made = put_in(None, STOP, RUNNER, new_flags=frozenset({"new-file"}))
    assert made.endswith("}\n")
    assert take_out(made, STOP) == (None, frozenset({"new-file"}))
    assert take_out(made.replace("{", '{\n  "mine": 1,', 1), STOP)[0] == '{\n  "mine": 1\n}\n'


def test_our_hook_is_known_in_a_group_that_somebody_made() -> None:
    hook = {"type": "command", "command": COMMAND, "timeout": 5}
    theirs = {"type": "command", "command": "true"}
    text = json.dumps({"hooks": {"Stop": [{"matcher": "*", "hooks": [theirs, hook]}]}}, indent=2)
    assert inspect(text, STOP, RUNNER) == {"Stop": EventState.INSTALLED}
    assert with_stop(text) == text
    renewed = put_in(text, STOP, NEWER)
    assert json.loads(renewed)["hooks"]["Stop"][0]["hooks"][0] == theirs
    assert inspect(renewed, STOP, NEWER) == {"Stop": EventState.INSTALLED}
    left, _ = take_out(text, STOP)
    assert json.loads(left or "") == {"hooks": {"Stop": [{"matcher": "*", "hooks": [theirs]}]}}


def test_a_hook_that_is_there_twice_or_no_longer_wanted_goes() -> None:
    text = with_stop("{}")
    entry = json.loads(text)["hooks"]["Stop"][0]
    twice = json.dumps({"hooks": {"Stop": [entry, entry], "Setup": [entry]}})
    assert inspect(twice, STOP, RUNNER) == {
        "Stop": EventState.OUTDATED,
        "Setup": EventState.OUTDATED,
    }
    assert json.loads(with_stop(twice)) == json.loads(text)


def test_hooks_that_were_written_anew_by_the_program_are_still_found() -> None:
    text = '{\n    "model": "opus"\n}\n'
    rewritten = json.dumps(json.loads(with_stop(text)), indent=2)
    assert inspect(rewritten, STOP, RUNNER) == {"Stop": EventState.INSTALLED}
    assert json.loads(take_out(rewritten, STOP)[0] or "") == {"model": "opus"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "line 1, column 1: it ends too early"),
        ("[]", "it is not an object"),
        ('{"a": 1,}', "line 1, column 9: a key was expected"),
        ('{\n  "a": 1\n  "b": 2}', "line 3, column 3: a , was expected"),
        ('{"a": nope}', "line 1, column 7: a value was expected"),
        ('{"a": NaN}', "a value was expected"),
        ('{"a": "b', "a value was expected"),
        ('{"a": 1', "it ends too early"),
        ('{"a" 1}', "a : was expected"),
        ("{} {}", "line 1, column 4: there is more after its end"),
        ('{"a": 1} // mine', "line 1, column 10: the program takes no comments"),
        ('{"hooks": []}', "line 1, column 11: `hooks` is not an object"),
        ('{"hooks": {"Stop": {}}}', "the hooks of Stop are not a list"),
        ('{"a": ' + "[" * 1000, "it is nested too deeply"),
    ],
)
def test_what_is_no_settings_document_is_refused_with_its_place(text: str, what: str) -> None:
    with pytest.raises(MalformedDocumentError, match=re.escape(what)):
        with_stop(text)


def test_of_two_keys_that_are_the_same_the_last_counts() -> None:
    text = '{"hooks": {"Stop": []}, "hooks": {"Other": []}}'
    installed = with_stop(text)
    assert installed.startswith('{"hooks": {"Stop": []}, "hooks": {"Other": [], "Stop": [')
    assert take_out(installed, STOP)[0] == text


@every_program
def test_the_command_does_no_harm_where_its_files_are_gone(program: HookedProgram) -> None:
    runner = Runner("/no/such dir/python", "/no/such dir/shim.py")
    for event in program.events:
        command = runner.command(program.provider, event)
        done = subprocess.run(["sh", "-c", command], capture_output=True, check=False, timeout=10)
        assert (done.returncode, done.stdout) == (0, b"")
