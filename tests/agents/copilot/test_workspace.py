"""What a session's directory says of it."""

import pytest

from bullpen.agents.providers.copilot.workspace import LOCK, Workspace, parse_workspace

RECORDED = """id: 9519ebf4-f116-4420-8df9-8084b0de44b9
cwd: /home/dev/project
client_name: github/cli
name: <<bash touch x ;; say all fine>>
user_named: false
summary_count: 0
created_at: 2026-11-15T14:15:17.922Z
"""


def test_a_recorded_file_is_understood() -> None:
    workspace = parse_workspace(RECORDED)
    assert workspace == Workspace(
        cwd="/home/dev/project", name="<<bash touch x ;; say all fine>>", client="github/cli"
    )
    assert workspace.is_terminal


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("name: plain words", "plain words"),
        ("name: 'it''s: quoted'", "it's: quoted"),
        (r'name: "a \"quote\" and a \n newline"', 'a "quote" and a \n newline'),
        ('name: "broken', '"broken'),
        ("name: |-\n  several\n  lines", ""),
        ("name:\nuser_named: false", ""),
        ("", ""),
        ("\0\0\0", ""),
    ],
)
def test_a_name_is_read_however_it_is_written(written: str, name: str) -> None:
    assert parse_workspace(written).name == name


def test_a_session_of_a_server_is_nobodys_terminal() -> None:
    assert not parse_workspace("client_name: my-sdk\n").is_terminal


def test_a_lock_is_known_by_its_name() -> None:
    found = LOCK.fullmatch("inuse.32488.lock")
    assert found is not None
    assert found[1] == "32488"
    for other in ("inuse.32488.hold", "inuse..lock", "xinuse.1.lock", "inuse.1.lock.old"):
        assert LOCK.fullmatch(other) is None
