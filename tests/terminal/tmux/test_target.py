"""Which server is meant, and when to try it again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.terminal.tmux.backoff import Backoff
from bullpen.terminal.tmux.target import TmuxTarget, resolve_target

EVERYTHING = {
    "BULLPEN_TMUX_SOCKET_PATH": "/by/path",
    "BULLPEN_TMUX_SOCKET_NAME": "by-name",
    "TMUX": "/by,odd/tmux,123,4",
    "TMUX_TMPDIR": "/elsewhere/",
}


@pytest.mark.requirement("TMX-3")
def test_the_first_setting_that_is_there_decides() -> None:
    settings = dict(EVERYTHING)
    assert resolve_target(settings, user_id=7, socket="/by/flag") == TmuxTarget(
        "/by/flag", "--tmux-socket"
    )
    found = []
    for gone in ("", *settings):
        settings.pop(gone, None)
        found.append(resolve_target(settings, user_id=7))
    assert found == [
        TmuxTarget("/by/path", "BULLPEN_TMUX_SOCKET_PATH"),
        TmuxTarget("/elsewhere/tmux-7/by-name", "BULLPEN_TMUX_SOCKET_NAME"),
        TmuxTarget("/by,odd/tmux", "TMUX"),
        TmuxTarget("/elsewhere/tmux-7/default", "default"),
        TmuxTarget("/tmp/tmux-7/default", "default"),
    ]


@pytest.mark.requirement("TMX-3")
def test_an_empty_setting_is_none_and_a_flag_without_a_slash_is_a_name() -> None:
    empty = dict.fromkeys(EVERYTHING, "")
    assert resolve_target(empty, user_id=7, socket="").source == "default"
    assert resolve_target({}, user_id=7, socket="work").socket_path == "/tmp/tmux-7/work"


@given(st.lists(st.booleans()))
def test_the_pause_doubles_with_each_failure_up_to_a_limit_and_ends_with_a_success(
    successes: list[bool],
) -> None:
    backoff = Backoff(first_seconds=1, longest_seconds=4)
    failures = 0
    for succeeds in successes:
        if succeeds:
            backoff.succeeded()
            failures = 0
        else:
            backoff.failed(now=100)
            failures += 1
        pause = min(2 ** (failures - 1), 4) if failures else 0
        assert backoff.pause_seconds == pause
        assert backoff.may_try(100 + pause)
        assert backoff.may_try(100 + pause - 0.5) is (failures == 0)


def test_a_clock_that_is_set_back_makes_no_pause_longer() -> None:
    backoff = Backoff(first_seconds=1, longest_seconds=4)
    backoff.failed(now=10_000)
    assert not backoff.may_try(10_000.5)
    assert backoff.may_try(6_400)
