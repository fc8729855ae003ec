"""A script is data and text at once: neither form may say more, or less, than the other."""

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bullpen.testing.models import (
    CallFreeform,
    CallTool,
    Cut,
    Fail,
    FailStream,
    Hang,
    Say,
    SayResults,
    ScriptError,
    Shell,
    Sleep,
    Step,
    Stream,
    Think,
    Turn,
    Wait,
    find_script,
    format_script,
    parse_turns,
)
from bullpen.testing.models.script import turn_at

# what scripts are made of, so that hypothesis finds the places where they could come apart
fragments = st.sampled_from(
    ["<<", ">>", "«", "»", ";;", "|", " | ", "\\", "\\n", "\\x41", "\\u0041", "{", '"', "say", " "]
)
texts = st.lists(fragments | st.text(max_size=5), max_size=8).map("".join)
names = st.text(min_size=1, max_size=8).filter(
    lambda name: "::" not in name and not any(map(str.isspace, name))
)
seconds = st.floats(0, 3600) | st.integers(0, 3600).map(float)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
speech: st.SearchStrategy[Step] = st.one_of(
    st.builds(Say, texts, seconds),
    st.builds(Stream, st.integers(0, 1000), seconds),
    st.builds(Think, texts),
    st.just(SayResults()),
    st.builds(Shell, texts.map(str.strip), st.booleans()),
    st.builds(CallTool, names, st.dictionaries(texts, json_values, max_size=3)),
    st.builds(
        CallTool, names, namespace=names.filter(lambda namespace: not namespace.endswith(":"))
    ),
    st.builds(CallFreeform, names, texts),
)
pauses: st.SearchStrategy[Step] = st.one_of(
    st.builds(Sleep, seconds, st.booleans()), st.builds(Wait, names, st.booleans())
)
endings: st.SearchStrategy[Step] = st.one_of(
    st.builds(FailStream, st.just("") | names), st.just(Cut()), st.just(Hang())
)
turns = st.one_of(
    st.builds(lambda steps: Turn(*steps), st.lists(speech | pauses, max_size=4)),
    st.builds(lambda steps, end: Turn(*steps, end), st.lists(speech | pauses, max_size=3), endings),
    st.builds(
        lambda steps, end: Turn(*steps, end),
        st.lists(pauses, max_size=2),
        st.builds(Fail, st.integers(400, 599), texts),
    ),
)


@given(script=st.lists(turns, min_size=1, max_size=3).map(tuple))
@example(script=(Turn(Say("a | b ;; c >> d « e » \\| f \\")), Turn(Say(" \n\t "))))
@example(script=(Turn(Shell("grep 'a\\|b' <<EOF | wc ;;; \\>> x")),))
def test_any_script_can_be_written_and_read_back(script: tuple[Turn, ...]) -> None:
    text = format_script(script)
    assert find_script(text) == script
    assert parse_turns(text) == script
    assert find_script(f"Please do this: {text} and 1 << 2.") == script


@given(prompt=texts | st.text())
def test_no_prompt_is_too_strange_to_be_looked_at(prompt: str) -> None:
    find_script(prompt)
    find_script(f"<<{prompt}>>")


@given(text=texts | st.text())
def test_a_text_is_a_script_or_a_script_error(text: str) -> None:
    with contextlib.suppress(ScriptError):
        assert all(isinstance(turn, Turn) for turn in parse_turns(text))


@pytest.mark.parametrize(
    "prompt",
    ["Look at <b>this</b>.", "What is 1 << 2 >> 3?", "cout << x; cin >> y", "«guillemets"],
)
def test_a_prompt_without_a_script_has_none(prompt: str) -> None:
    assert find_script(prompt) is None


@pytest.mark.parametrize("before", ["cat <<EOF", "cout << x;", "«quote» <<sya what>>"])
def test_a_script_is_found_behind_what_is_none(before: str) -> None:
    assert find_script(f"{before} <<say hi>> <<EOF >>") == (Turn(Say("hi")),)


def test_turns_and_steps_are_split_where_the_marks_stand() -> None:
    assert find_script("<<think hm | say a b ;; bash ls -l | bash pwd ;; results>>") == (
        Turn(Think("hm"), Say("a b")),
        Turn(Shell("ls -l"), Shell("pwd")),
        Turn(SayResults()),
    )


def test_every_operation_has_its_step() -> None:
    (turn,) = parse_turns(
        "slowly 0.5 a b | stream 3 0.1 | stream 2 | bashesc touch x | tool Read | "
        'tool mcp__relay::send {"to": "bob"} | custom apply_patch *** Begin\\n*** End | '
        "sleep 1 | presleep 2 | wait lunch | prewait tea | sseerr overloaded_error"
    )
    assert turn.steps == (
        Say("a b", 0.5),
        Stream(3, 0.1),
        Stream(2),
        Shell("touch x", escalated=True),
        CallTool("Read"),
        CallTool("send", {"to": "bob"}, "mcp__relay"),
        CallFreeform("apply_patch", "*** Begin\n*** End"),
        Sleep(1),
        Sleep(2, before_headers=True),
        Wait("lunch"),
        Wait("tea", before_headers=True),
        FailStream("overloaded_error"),
    )
    assert parse_turns("cut ;; hang ;; err 429 slow down") == (
        Turn(Cut()),
        Turn(Hang()),
        Turn(Fail(429, "slow down")),
    )


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (r"bash printf 'a\nb' > c", r"printf 'a\nb' > c"),
        (r"bash grep 'a\|b' c", r"grep 'a\|b' c"),
        ("bash ls|wc", "ls|wc"),
        (r"bash ls \| wc", "ls | wc"),
        (r"bash echo x \>> f", "echo x >> f"),
        ("bash cat <<EOF\nx\nEOF", "cat <<EOF\nx\nEOF"),
    ],
    ids=["newline", "alternation", "tight pipe", "pipe", "append", "here document"],
)
def test_a_shell_command_is_taken_as_it_stands(text: str, command: str) -> None:
    assert find_script(f"<<{text}>>") == (Turn(Shell(command)),)


def test_a_script_may_carry_another_one() -> None:
    inner = "«bash ls ;; say a | say b >> c»"
    script = find_script(f'<<tool Agent {{"prompt": "do {inner}"}} ;; say done>>')
    assert script == (Turn(CallTool("Agent", {"prompt": f"do {inner}"})), Turn(Say("done")))
    assert find_script(f"do {inner}") == parse_turns("bash ls ;; say a | say b \\>> c")


def test_what_is_hidden_in_the_inner_script_stays_hidden() -> None:
    (turn,) = parse_turns(r"say «bash ls \| wc»")
    assert turn == Turn(Say(r"«bash ls \| wc»"))
    assert find_script(r"«bash ls \| wc»") == (Turn(Shell("ls | wc")),)


def test_the_last_script_of_a_prompt_counts() -> None:
    assert find_script("<<say old>> then <<say new>>") == (Turn(Say("new")),)


def test_a_backslash_hides_an_opening() -> None:
    assert find_script(r"Write \<<say hi>> to make me say hi.") is None


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("sya hi", "unknown step"),
        ("sleep soon", "could not convert"),
        ("sleep -1", "a pause is"),
        ("sleep nan", "a pause is"),
        ("stream many", "invalid literal"),
        ("tool Read {", "Expecting"),
        ("tool Read [1]", "JSON object"),
        ("tool", "a name is one word"),
        ("err 200", "400 to 599"),
        ("cut now", "takes nothing more"),
        ("cut | say more", "nothing can follow"),
        ("say so | err 500", "nothing can be said before"),
    ],
)
def test_what_is_wrong_with_a_script_is_said_in_the_answer(script: str, problem: str) -> None:
    with pytest.raises(ScriptError, match=problem):
        parse_turns(script)
    found = find_script(f"<<{script}>>")
    assert found is not None
    (step,) = found[0].steps
    assert isinstance(step, Say)
    assert "cannot read the script" in step.text
    assert problem in step.text


def test_arguments_that_are_not_json_are_refused_where_they_are_written() -> None:
    with pytest.raises(ScriptError, match="not JSON"):
        CallTool("Read", {"path": object()})


@pytest.mark.parametrize("text", ["<<say a", "<<say a>> b", "say « a"])
def test_a_script_given_as_text_must_be_closed_at_its_end(text: str) -> None:
    with pytest.raises(ScriptError, match="not closed"):
        parse_turns(text)


@pytest.mark.parametrize("opening", ["<<", "<<say ", "«", "«say "])
def test_a_prompt_full_of_openings_is_read_in_time(opening: str) -> None:
    assert find_script(opening * 50_000) is None


def test_a_script_that_is_over_ends_with_a_closing_word() -> None:
    script = parse_turns("say one ;; say two")
    taken = [turn_at(script, index) for index in range(4)]
    assert taken == [Turn(Say("one")), Turn(Say("two")), Turn(Say("Done.")), Turn(Say("Done."))]
