"""Our files are where the rules say, in directories that are nobody else's."""

import os
import re
import stat
import sys
from pathlib import Path

import pytest

from bullpen.api import locations
from bullpen.api.errors import DirectoryError, SocketPathError
from bullpen.api.runtime import Paths, make_private, prepare
from bullpen.connection.transports.socket import MAX_UNIX_PATH_BYTES

IS_ROOT = os.getuid() == 0
NOBODY = 65534


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def resolve(**environment: str) -> Paths:
    return Paths.resolve(environment, user_id=1234)


# Where


@pytest.mark.requirement("UDS-1", "Q13")
@pytest.mark.parametrize(
    ("environment", "socket"),
    [
        ({}, "/tmp/bullpen-1234/bullpend.sock"),
        ({"XDG_RUNTIME_DIR": "/run/user/1234"}, "/run/user/1234/bullpen/bullpend.sock"),
        ({"XDG_RUNTIME_DIR": "/run/user/1234/"}, "/run/user/1234/bullpen/bullpend.sock"),
        ({"XDG_RUNTIME_DIR": ""}, "/tmp/bullpen-1234/bullpend.sock"),
        ({"XDG_RUNTIME_DIR": "not/absolute"}, "/tmp/bullpen-1234/bullpend.sock"),
        ({"XDG_RUNTIME_DIR": "/run/x", "BULLPEN_HOME": "/b"}, "/b/run/bullpend.sock"),
        ({"BULLPEN_HOME": "/b", "BULLPEN_SOCKET": "/c/d.sock"}, "/c/d.sock"),
    ],
)
def test_the_socket_is_in_a_directory_of_our_own(environment: dict[str, str], socket: str) -> None:
    assert Paths.resolve(environment, user_id=1234).socket == Path(socket)
    assert locations.socket_path(environment, 1234) == socket


@pytest.mark.requirement("UDS-1", "CLI-1")
def test_a_socket_that_is_given_is_taken_and_handed_on_and_its_lock_is_beside_it() -> None:
    given = Paths.resolve({"BULLPEN_HOME": "/b", "BULLPEN_SOCKET": "/c/d"}, socket="/e/f.sock")
    assert (given.socket, given.lock) == (Path("/e/f.sock"), Path("/e/f.lock"))
    assert given.arguments == ("--socket-path", "/e/f.sock")
    assert given.state_db == Path("/b/state/state.db")
    assert resolve().arguments == ()


def test_a_relative_socket_or_home_is_meant_from_here() -> None:
    assert Paths.resolve({}, socket="x.sock").socket == Path.cwd() / "x.sock"
    assert resolve(BULLPEN_HOME="x").state_db == Path.cwd() / "x/state/state.db"


def test_sockets_of_different_names_in_one_directory_do_not_get_in_each_others_way() -> None:
    sockets = [Paths.resolve({}, socket=f"/r/{name}") for name in ("a.sock", "b", "b.x", "c")]
    used = [
        path for s in sockets for path in (s.socket, s.lock, s.start_lock, s.sources, s.state_lock)
    ]
    assert len(set(used)) == 4 * len(sockets) + 1  # the state is one and the same


def test_state_log_spool_and_settings_are_where_xdg_wants_them() -> None:
    paths = resolve(HOME="/h")
    assert paths.state_db == Path("/h/.local/state/bullpen/state.db")
    assert paths.log == Path("/h/.local/state/bullpen/bullpen.log")
    assert paths.spool == Path("/h/.local/state/bullpen/spool")
    assert paths.config == Path("/h/.config/bullpen/config.toml")
    assert paths.rules == Path("/h/.config/bullpen/rules")
    paths = resolve(HOME="/h", XDG_STATE_HOME="/s", XDG_CONFIG_HOME="/c")
    assert (paths.state_db, paths.config) == (
        Path("/s/bullpen/state.db"),
        Path("/c/bullpen/config.toml"),
    )


def test_bullpen_home_has_all_of_it() -> None:
    paths = resolve(HOME="/h", BULLPEN_HOME="/b/", XDG_STATE_HOME="/s", XDG_CONFIG_HOME="/c")
    assert [
        str(each)
        for each in (paths.socket, paths.lock, paths.state_db, paths.log, paths.spool, paths.config)
    ] == [
        "/b/run/bullpend.sock",
        "/b/run/bullpend.lock",
        "/b/state/state.db",
        "/b/state/bullpen.log",
        "/b/state/spool",
        "/b/config/config.toml",
    ]
    assert paths.source_socket("poller") == Path("/b/run/bullpend.sources/poller.sock")


def test_without_a_home_the_systems_own_entry_for_the_user_says_where() -> None:
    import pwd

    home = pwd.getpwuid(os.getuid()).pw_dir.rstrip("/")
    here = Paths.resolve({}, user_id=os.getuid())
    assert here.state_directory == Path(f"{home}/.local/state/bullpen")
    assert resolve().state_directory.is_absolute()  # a user nobody knows


# That it is ours


@pytest.mark.requirement("UDS-2")
@pytest.mark.parametrize("umask", [0o022, 0o000, 0o777])
def test_our_directories_are_made_for_us_alone_whatever_the_umask(home: Path, umask: int) -> None:
    paths = Paths.resolve()
    before = os.umask(umask)
    try:
        prepare(paths)
        prepare(paths)  # what is there and ours is taken
    finally:
        os.umask(before)
    for directory in (paths.socket.parent, paths.state_directory, paths.spool, home / ".local"):
        assert mode(directory) == 0o700
    assert not paths.config_directory.exists()
    assert not paths.sources.exists()


def test_a_runtime_directory_that_is_a_link_is_refused(home: Path) -> None:
    (home / "elsewhere").mkdir(mode=0o700)
    (home / "run/bullpen").symlink_to(home / "elsewhere")
    with pytest.raises(DirectoryError, match=r"run/bullpen: it is a symbolic link$"):
        prepare(Paths.resolve())
    assert list((home / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("shared", [0o750, 0o701, 0o770, 0o702])
def test_one_that_others_may_use_is_refused_and_left_as_it_is(home: Path, shared: int) -> None:
    directory = home / "run/bullpen"
    directory.mkdir()
    directory.chmod(shared)
    expected = rf"others may use it \(mode {shared:04o}\).*`chmod 700 {directory}`"
    with pytest.raises(DirectoryError, match=expected):
        prepare(Paths.resolve())
    assert mode(directory) == shared


def test_what_is_no_directory_is_refused(home: Path) -> None:
    (home / "run/bullpen").write_text("precious")
    with pytest.raises(DirectoryError, match="it is not a directory"):
        prepare(Paths.resolve())
    (home / "file").write_text("precious")
    with pytest.raises(DirectoryError, match=r"Not a directory|not a directory"):
        make_private(home / "file/below/it")


def test_a_link_to_nowhere_above_it_is_said_to_be_so(home: Path) -> None:
    (home / "nowhere").symlink_to(home / "missing")
    with pytest.raises(DirectoryError, match="No such file"):
        make_private(home / "nowhere/below")


@pytest.mark.skipif(not IS_ROOT, reason="only root can make what is somebody else's")
def test_one_that_is_somebody_elses_is_refused(home: Path) -> None:
    directory = home / "run/bullpen"
    directory.mkdir(mode=0o700)
    os.chown(directory, NOBODY, NOBODY)
    with pytest.raises(DirectoryError, match=f"it belongs to user {NOBODY}, and we are 0"):
        prepare(Paths.resolve())


@pytest.mark.skipif(not IS_ROOT, reason="only root can make what is somebody else's")
def test_nothing_is_made_in_the_runtime_directory_of_whoever_called_sudo(home: Path) -> None:
    os.chown(home / "run", NOBODY, NOBODY)
    with pytest.raises(DirectoryError, match=f"belongs to user {NOBODY}.*XDG_RUNTIME_DIR.*unset"):
        prepare(Paths.resolve())
    assert list((home / "run").iterdir()) == []


def test_a_runtime_directory_that_cannot_be_made_is_said_to_be_so(home: Path) -> None:
    (home / "file").write_text("")
    with pytest.raises(DirectoryError, match=re.escape(str(home / "file"))):
        prepare(Paths.resolve({**os.environ, "XDG_RUNTIME_DIR": str(home / "file/x")}))


# A socket that somebody named


@pytest.mark.requirement("UDS-2")
def test_a_directory_that_is_not_ours_is_used_as_it_is(home: Path) -> None:
    shared = home / "shared"
    shared.mkdir()
    shared.chmod(0o1777)  # like /tmp
    prepare(Paths.resolve(socket=shared / "x.sock"))
    assert mode(shared) == 0o1777
    assert list(shared.iterdir()) == []


def test_a_directory_where_others_could_replace_the_socket_is_refused(home: Path) -> None:
    shared = home / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    with pytest.raises(DirectoryError, match=r"others may write there \(mode 0770\)"):
        prepare(Paths.resolve(socket=shared / "x.sock"))
    if IS_ROOT:
        shared.chmod(0o755)
        os.chown(shared, NOBODY, NOBODY)
        with pytest.raises(DirectoryError, match=f"belongs to user {NOBODY}"):
            prepare(Paths.resolve(socket=shared / "x.sock"))


def test_a_directory_that_is_missing_is_made_for_us_alone(home: Path) -> None:
    prepare(Paths.resolve(socket=home / "a/b/x.sock"))
    assert (mode(home / "a"), mode(home / "a/b")) == (0o700, 0o700)


@pytest.mark.requirement("UDS-1")
def test_a_path_that_is_too_long_for_a_socket_is_refused_before_anything_is_made(
    home: Path,
) -> None:
    longest = str(home / "d/")
    longest += "/" + "é" + "x" * (MAX_UNIX_PATH_BYTES - len(longest) - 3)
    prepare(Paths.resolve(socket=longest))
    (home / "d").rmdir()
    with pytest.raises(SocketPathError) as caught:
        prepare(Paths.resolve(socket=longest + "x"))
    assert str(caught.value).endswith(
        f"has {MAX_UNIX_PATH_BYTES + 1} bytes and may have {MAX_UNIX_PATH_BYTES}; "
        "choose a shorter one with --socket-path or BULLPEN_HOME"
    )
    assert not (home / "d").exists()


def test_where_it_is_can_be_told_at_next_to_no_cost() -> None:
    import subprocess

    script = (
        "import sys; before = set(sys.modules); import bullpen.api.locations; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    heavy = {
        "msgspec",
        "click",
        "asyncio",
        "pathlib",
        "dataclasses",
        "typing",
        "re",
        "bullpen.api.runtime",
    }
    assert heavy.isdisjoint(done.stdout.split())
