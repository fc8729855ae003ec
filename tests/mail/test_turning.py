"""What a turn means for the message it is about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.mail.turning import fitted, is_about, reply_of_turn, since_asked
from bullpen.model.messages import MessageType, encode_message, message_size
from bullpen.model.turns import Turn, TurnEnd
from tests.mail.samples import T0, message


@given(st.text(min_size=1), st.text(), st.text())
def test_a_prompt_is_about_a_message_whatever_a_program_puts_around_it(
    content: str, before: str, after: str
) -> None:
    sent = message(content=content)
    prompt = f"{before}[from boss]\n{'  '.join(content.split())}\n{after}"
    assert is_about(prompt, sent) is bool(content.split())


@pytest.mark.parametrize("prompt", ["", "count the fil", "something else", "files the count"])
def test_another_prompt_is_not(prompt: str) -> None:
    assert not is_about(prompt, message(content="count the files"))


def test_two_long_messages_that_begin_alike_are_told_apart() -> None:
    one, other = ("x" * 5000 + each for each in ("one", "other"))
    assert is_about(one, message(content=one))
    assert not is_about(one, message(content=other))


@pytest.mark.requirement("talk:restart")
def test_of_a_journal_only_what_came_after_the_message_is_of_it() -> None:
    def asked(prompt: str) -> Turn:
        return Turn(by="journal", prompt=prompt)

    def done(text: str) -> Turn:
        return Turn(by="journal", end=TurnEnd.DONE, text=text)

    sent = message(content="count the files")
    told = [asked("[from boss] count the files"), done("3"), asked("and now?"), done("4")]
    assert since_asked(told, sent) == told
    again = [*told, asked("[from boss] count the files")]
    assert since_asked(again, sent) == again[-1:]
    assert since_asked(told[1:], sent) == ()


def test_what_an_agent_said_is_the_answer_word_by_word() -> None:
    turn = Turn(by="hooks", end=TurnEnd.DONE, text=" said\n so ", thinking="hm")
    reply = reply_of_turn(message(), "coder", turn, reply_id="r1", now=T0)
    assert (reply.content, reply.thinking) == (" said\n so ", "hm")
    assert (reply.type, reply.reply_to) == (MessageType.TASK_RESPONSE, "m1")
    assert (reply.from_agent, reply.to_agent, reply.hops) == ("coder", "boss", 1)


@pytest.mark.requirement("talk:failure")
@pytest.mark.parametrize(
    ("end", "text", "words"),
    [
        (TurnEnd.FAILED, "API Error:\n 500", "the turn failed: API Error: 500"),
        (TurnEnd.RATE_LIMITED, "", "the agent has reached its usage limit"),
        (TurnEnd.INTERRUPTED, "", "the turn was interrupted"),
    ],
    ids=str,
)
def test_every_other_end_is_a_failure_with_its_reason(end: TurnEnd, text: str, words: str) -> None:
    turn = Turn(by="hooks", end=end, text=text)
    reply = reply_of_turn(message(), "coder", turn, reply_id="r1", now=T0)
    assert (reply.type, reply.content) == (MessageType.TASK_FAILED, words)


@pytest.mark.requirement("O-110", "O-111")
@given(
    st.text(max_size=50).map(lambda each: each * 40), st.text(max_size=30), st.integers(400, 4000)
)
def test_an_answer_of_any_length_is_cut_to_what_a_message_may_be(
    content: str, thinking: str, limit: int
) -> None:
    reply = fitted(message(content=content, thinking=thinking), limit, 20)
    assert message_size(reply) <= limit
    assert len((reply.thinking or "").encode()) <= 20
    if message_size(message(content=content, thinking=reply.thinking)) <= limit:
        assert reply.content == content
    else:
        kept, _, rest = reply.content.rpartition("\n[")
        assert content.startswith(kept)
        assert rest == f"{len(content) - len(kept)} characters more]"


def test_an_answer_that_is_no_text_is_kept_as_far_as_it_is() -> None:
    encode_message(fitted(message(content="a\ud800b", thinking="\udcff")))
