"""A program under test must see no key of the developer's, and reach no network."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.testing.programs.environment import INHERITED, make_home, offline_environment

OURS_TO_SET = {"HOME", "TMPDIR", "NO_PROXY", "no_proxy"} | {
    f"{scheme}_{proxy}" for scheme in ("http", "https", "all") for proxy in ("proxy",)
}


@given(ours=st.dictionaries(st.text(), st.text()))
def test_nothing_but_a_few_harmless_variables_is_inherited(ours: dict[str, str]) -> None:
    environment = offline_environment(Path("/home/private"), ours)
    set_by_us = OURS_TO_SET | {name.upper() for name in OURS_TO_SET}
    assert set(environment) <= set_by_us | set(INHERITED)


def test_no_key_of_the_developer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "GH_TOKEN", "COPILOT_GITHUB_TOKEN", "SSH_AUTH_SOCK", "TMUX"):
        monkeypatch.setenv(name, "secret of the developer")
    assert "secret of the developer" not in offline_environment(Path("/home/private")).values()


def test_home_and_temporary_directory_are_private(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    make_home(home)
    environment = offline_environment(home, {"TMPDIR": "/var/tmp", "PATH": "/bin"})
    assert environment["HOME"] == str(home)
    assert environment["TMPDIR"] == str(home / "tmp")
    assert environment["PATH"] == "/bin"
    assert (home.stat().st_mode & 0o777, (home / "tmp").stat().st_mode & 0o777) == (0o700, 0o700)


def test_every_spelling_of_the_proxy_leads_nowhere_but_loopback_is_direct() -> None:
    environment = offline_environment(Path("/home/private"), {"HTTPS_PROXY": "http://office:3128"})
    for scheme in ("http", "https", "all"):
        assert environment[f"{scheme}_proxy"] == "http://127.0.0.1:9"
        assert environment[f"{scheme}_proxy".upper()] == "http://127.0.0.1:9"
    assert "127.0.0.1" in environment["NO_PROXY"].split(",")


@pytest.mark.parametrize(
    ("term", "seen"),
    [(None, "xterm-256color"), ("dumb", "xterm-256color"), ("tmux-256color", "tmux-256color")],
)
def test_there_is_always_a_usable_terminal_type(term: str | None, seen: str) -> None:
    ours = {} if term is None else {"TERM": term}
    assert offline_environment(Path("/home/private"), ours)["TERM"] == seen


def test_there_is_always_a_path() -> None:
    assert offline_environment(Path("/home/private"), {})["PATH"] == os.defpath
