"""What a user types reaches the program as typed; only the Enter behind an address does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.terminal.keyboard import (
    Address,
    Keyboard,
    Passed,
    is_report,
    not_found_notice,
    parse_address,
    reply_notice,
    sent_notice,
)


def typed(*pieces: bytes, is_fresh: bool = True) -> tuple[bytes, list[Address]]:
    """What is passed on, and what is addressed, of what is typed."""
    keyboard = Keyboard()
    done = [each for piece in pieces for each in keyboard.feed(piece, is_fresh=is_fresh)]
    passed = b"".join(each.data for each in done if isinstance(each, Passed))
    return passed, [each for each in done if isinstance(each, Address)]


@pytest.mark.requirement("S-49", "S-50", "A1.12-b")
@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("@codex hello", Address("codex", "hello")),
        ("@Codex hello", Address("codex", "hello")),
        ("@codex  two  words ", Address("codex", "two  words")),
        ('@codex "hello there"', Address("codex", "hello there")),
        ("@codex 'hello there'", Address("codex", "hello there")),
        ("@codex \"not closed'", Address("codex", "\"not closed'")),
        ('@codex say "hi"', Address("codex", 'say "hi"')),
        ("@codex --response hello", Address("codex", "hello", wants_response=True)),
        ("@codex --response 'a b'", Address("codex", "a b", wants_response=True)),
        ("@codex --responses hello", Address("codex", "--responses hello")),
        ("@codex hello --response", Address("codex", "hello --response")),
        ("@codex 設計を書いて", Address("codex", "設計を書いて")),
        ("@my-agent-2 hi", Address("my-agent-2", "hi")),
        ("@bob@host.example hi", Address("bob", "hi", host="host.example")),
        ("@bob@Host --response hi", Address("bob", "hi", host="host", wants_response=True)),
        ("@codex", None),
        ("@codex ", None),
        ("@codex --response", None),
        ("@codex --response ", None),
        ("@codex ''", None),
        ("@ codex hi", None),
        ("@-x hi", None),
        ("codex hi", None),
        ("mail bob@host hi", None),
        ("@src/main.py explain", None),
        ("@README.md explain", None),
        ("@codex: hi", None),
        ("", None),
    ],
)
def test_the_grammar_of_an_address(line: str, address: Address | None) -> None:
    assert parse_address(line) == address


@pytest.mark.requirement("S-42", "S-54", "S-55")
def test_everything_is_passed_on_as_it_is_typed_but_the_enter_of_an_address() -> None:
    keyboard = Keyboard()
    for byte in b"@codex hi":
        assert keyboard.feed(bytes([byte])) == [Passed(bytes([byte]))]
    assert keyboard.line == "@codex hi"
    assert keyboard.feed(b"\r") == [Address("codex", "hi")]
    assert keyboard.feed(b"ls\r") == [Passed(b"ls\r")]


@pytest.mark.requirement("S-03", "S-56")
def test_an_address_says_how_to_clear_the_line_that_must_not_be_executed() -> None:
    (passed, addressed) = typed(b"ls\r@codex hi\rls\r")
    assert passed == b"ls\r@codex hils\r"
    assert [each.clear for each in addressed] == [b"\x15"]


@pytest.mark.requirement("S-52", "S-53")
@pytest.mark.parametrize(
    ("keys", "messages"),
    [
        (b"@xy\x7f hi\r", ["x:hi"]),
        (b"@xy\x08 hi\r", ["x:hi"]),
        ("@x 日本\x7f\r".encode(), ["x:日"]),
        (b"a\x7f@x hi\r", []),  # what stood before it is not known any more
        (b"@x ab\x03hi\r", []),
        (b"@x ab\x04hi\r", []),
        (b"@x ab\x1ahi\r", []),
        (b"hello\x03@x hi\r", ["x:hi"]),
        (b"hello\x15@x hi\r", ["x:hi"]),
        (b"@x one\x15@y two\r", ["y:two"]),
        (b"@x one two\x17three\r", ["x:one three"]),
        (b"@x one  \x17three\r", ["x:three"]),
        (b"@x ab\x01\x7f\r", ["x:ab"]),
        (b"@x ab\x01z\r", []),  # something before the address
        (b"@x ab\x02c\r", ["x:acb"]),
        (b"@x ab\x01\x06y\r", ["yx:ab"]),
        (b"@x abc\x02\x02\x0b\r", ["x:a"]),
        (b"@x a\tb\r", []),  # a completion may have made anything of it
        (b"@x hi\n", ["x:hi"]),
        (b"\x7f\x7f@x hi\r", ["x:hi"]),
        (b"@x\x7f\x7f\x7f@y hi\r", ["y:hi"]),
    ],
)
def test_keys_that_edit_a_line_edit_the_address(keys: bytes, messages: list[str]) -> None:
    _, addressed = typed(keys)
    assert [f"{each.name}:{each.message}" for each in addressed] == messages


@pytest.mark.requirement("S-51")
@pytest.mark.parametrize(
    ("keys", "messages"),
    [
        (b"@x ab\x1b[Dc\r", ["x:acb"]),
        (b"@x ab\x1bOD\x1b[Cc\r", ["x:abc"]),
        (b"@x ab\x1b[H\x1b[C\x1b[C\x1b[3~\x1b[Fc\r", []),  # no space is left
        (b"@x ab\x1b[Hq\r", []),
        (b"@x ab\x1b[A\r", []),  # an older line was recalled
        (b"\x1b[A@x hi\r", []),
        (b"@x ab\x1bb\r", []),
        (b"@x \x1b[I\x1b[Ohi\r", ["x:hi"]),  # the window lost and got the focus
        (b"@x \x1b[<0;10;20Mhi\x1b[<0;10;20m\r", ["x:hi"]),
        (b"@x \x1b[M@@@hi\r", ["x:hi"]),
        (b"\x1b[M @@x hi\r", []),
        (b"\x1b[?62;22c\x1b[10;20R@x hi\r", ["x:hi"]),  # answers of the terminal
        (b"\x1b@x hi\r", []),  # Alt and @
        (b"@x a\x1b\x1bhi\r", []),
        (b"@x a\x1b\x1b[C\r", []),  # what Escape did is not known
        (b"\x1b[200~@x hi\r\x1b[201~", []),
        (b"\x1b[200~@x hi\x1b[201~\r", []),
        (b"\x1b[200~x\x1b[20\x1b[201~\r@x hi\r", ["x:hi"]),
        (b"@x hi\x1b[200~pasted\x1b[201~\r", []),
        (b"\x1b[200~pasted\x1b[201~@x hi\r", []),
        (b"\x1b[200~one\r@x hi\r\x1b[201~\r@y hi\r", ["y:hi"]),
        (b"@x\xff hi\r", []),
        (b"@x hi\xe6\x97\r", []),
    ],
)
def test_sequences_are_no_text_and_what_they_do_is_followed_or_given_up(
    keys: bytes, messages: list[str]
) -> None:
    passed, addressed = typed(keys)
    assert [f"{each.name}:{each.message}" for each in addressed] == messages
    if not messages:
        assert passed == keys


@pytest.mark.requirement("S-51")
@pytest.mark.parametrize(
    ("keys", "messages"),
    [
        (b"@x ab\x1b[Dc\r", ["x:abc"]),
        (b"@\x1b[Dx ab\x1b[A\x1bOBc\r", ["x:abc"]),
        (b"\x1b[A@x hi\r", ["x:hi"]),
        (b"\x1b[200~@x hi\r\x1b[201~", []),
    ],
)
def test_where_the_terminal_collects_the_line_arrows_move_nothing(
    keys: bytes, messages: list[str]
) -> None:
    done = Keyboard().feed(keys, is_by_line=True)
    addressed = [each for each in done if isinstance(each, Address)]
    assert [f"{each.name}:{each.message}" for each in addressed] == messages


def test_a_line_begins_at_a_fresh_prompt_only() -> None:
    keys = b"@x hi\r"
    assert typed(keys, is_fresh=False) == (keys, [])
    keyboard = Keyboard()
    keyboard.feed(b"@")
    assert keyboard.feed(b"x hi\r", is_fresh=False)[-1] == Address("x", "hi")  # it has begun


def test_escape_alone_is_a_key_once_nothing_followed() -> None:
    keyboard = Keyboard()
    keyboard.feed(b"\x1b")
    keyboard.settle()
    assert keyboard.feed(b"@x hi\r")[-1] == Address("x", "hi")
    keyboard.feed(b"@x hi\x1b")
    keyboard.settle()
    assert keyboard.feed(b"\r") == [Passed(b"\r")]


def test_a_name_that_nobody_has_is_the_programs() -> None:
    keyboard = Keyboard(lambda address: address.name == "bob")
    assert keyboard.feed(b"@alice hi\r") == [Passed(b"@alice hi\r")]
    assert keyboard.feed(b"@bob hi\r") == [Passed(b"@bob hi"), Address("bob", "hi")]


@pytest.mark.requirement("S-40", "S-47")
def test_a_reset_forgets_the_line() -> None:
    keyboard = Keyboard()
    keyboard.feed(b"@x h\x1b[200~\xe6")
    keyboard.reset()
    assert keyboard.line == ""
    assert keyboard.feed(b"i\r") == [Passed(b"i\r")]


def test_a_line_without_end_is_given_up() -> None:
    keyboard = Keyboard()
    keyboard.feed(b"@x " + b"a" * 20_000)
    assert keyboard.line is None
    assert keyboard.feed(b"\r") == [Passed(b"\r")]


def test_a_paste_of_megabytes_passes_at_once() -> None:
    paste = b"\x1b[200~" + b"@x hi\r" * 1_000_000 + b"\x1b[201~"
    assert typed(paste) == (paste, [])


@pytest.mark.requirement("S-46", "S-57")
def test_the_user_is_told_in_colours() -> None:
    assert sent_notice("codex", is_local=True) == "\x1b[32m[→ codex (local)]\x1b[0m"
    assert sent_notice("codex", is_local=False) == "\x1b[32m[→ codex (ext)]\x1b[0m"
    assert reply_notice("codex") == "\x1b[36m[← codex]\x1b[0m"
    assert not_found_notice("codex") == "\x1b[31m[✗ codex not found]\x1b[0m"


KEYS = st.lists(
    st.sampled_from(
        [
            *(b"@x hi", b"@my-agent --response ", "@b 日本".encode(), b"\r", b"\r", b"\n", b"\x7f"),
            *(b"\x03", b"\x15", b"\x17", b"\x1b", b"\x1b[A", b"\x1b[D", b"\x1bOC", b"\x1b[3~"),
            *(b"\x1b[200~", b"\x1b[201~", b"\x1b[M !@", b"\x1b[<1;2;3M", b"\x1b[I", b"\t", b" "),
        ]
    )
    | st.binary(max_size=6),
    max_size=25,
).map(b"".join)


@given(keys=KEYS, data=st.data())
def test_any_cut_of_the_bytes_gives_the_same_decisions(keys: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(keys)), max_size=12)))
    pieces = [keys[a:b] for a, b in zip([0, *cuts], [*cuts, len(keys)], strict=True)]
    assert typed(*pieces) == typed(keys)


@given(keys=KEYS)
def test_nothing_is_changed_delayed_or_lost_but_the_enters_of_addresses(keys: bytes) -> None:
    keyboard = Keyboard()
    for byte in keys:
        (done,) = keyboard.feed(bytes([byte]))
        if isinstance(done, Address):
            assert byte in b"\r\n"
        else:
            assert done.data == bytes([byte])


@given(keys=KEYS.filter(lambda keys: b"@" not in keys))
def test_bytes_without_an_address_pass_exactly(keys: bytes) -> None:
    assert typed(keys) == (keys, [])


@pytest.mark.requirement("A1.12-i")
@given(inside=st.binary(max_size=60).filter(lambda data: b"\x1b[201~" not in data))
def test_nothing_inside_a_paste_is_an_address(inside: bytes) -> None:
    keys = b"\x1b[200~@x hi\r" + inside + b"@x hi\r"
    assert typed(keys) == (keys, [])


@pytest.mark.requirement("S-54")
def test_a_line_that_is_not_known_ends_when_it_is_known_to_be_empty() -> None:
    keyboard = Keyboard()
    keyboard.feed(b"well\x7f\x7f\x7f\x7f")
    keyboard.forget_line()
    keyboard.feed(b"@codex ")
    keyboard.forget_line()  # a line that is known is not forgotten
    assert keyboard.feed(b"hi\r") == [Passed(b"hi"), Address("codex", "hi")]
    keyboard.feed(b"\x1b[200~pasted")
    keyboard.forget_line()
    assert keyboard.feed(b"@codex hi\r") == [Passed(b"@codex hi\r")]


@pytest.mark.parametrize(
    ("data", "is_one"),
    [
        (b"\x1b[I", True),
        (b"\x1b[<0;10;20M\x1b[<0;10;20m", True),
        (b"\x1b[?62;22c", True),
        (b"\x1b[Ia", False),
        (b"\x1b[200~text\x1b[201~", False),
        (b"\x1b[A", False),
        (b"\x1b", False),
        (b"a", False),
        (b"", False),
    ],
)
def test_what_the_terminal_says_by_itself_is_not_typed(data: bytes, is_one: bool) -> None:
    assert is_report(data) == is_one
