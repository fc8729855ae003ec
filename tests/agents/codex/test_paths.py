"""Where Codex keeps its things."""

from pathlib import Path

from bullpen.agents.providers.codex import paths
from tests.agents.codex import recorded


def test_codex_lives_in_the_home_unless_it_is_told_where() -> None:
    home = Path("/home/dev")
    assert paths.codex_home({}, home) == Path("/home/dev/.codex")
    assert paths.codex_home({"CODEX_HOME": ""}, home) == Path("/home/dev/.codex")
    assert paths.codex_home({"CODEX_HOME": "/elsewhere"}, home) == Path("/elsewhere")


def test_what_is_in_it_has_its_place() -> None:
    codex = Path("/c")
    assert paths.control_socket(codex) == Path("/c/app-server-control/app-server-control.sock")
    assert paths.sessions_directory(codex) == Path("/c/sessions")
    assert paths.thread_names(codex) == Path("/c/session_index.jsonl")
    assert paths.prompt_history(codex) == Path("/c/history.jsonl")


def test_the_name_of_a_session_file_tells_the_thread() -> None:
    name = recorded.rollout(recorded.TERMINAL).name
    assert paths.is_rollout(name)
    assert paths.thread_of_rollout(name) == recorded.TERMINAL
    assert paths.thread_of_rollout("rollout-1.jsonl") == ""
    assert not paths.is_rollout("history.jsonl")
    assert not paths.is_rollout("rollout-1.jsonl.tmp")
