"""Installing hooks: which file, how it is replaced, and what is said about it."""

import json
import os
import stat
from pathlib import Path

import pytest

from bullpen.agents.hooks import (
    PROGRAMS,
    EventState,
    Scope,
    SettingsError,
    UnsupportedError,
    check,
    files,
    install,
    is_present,
    uninstall,
)
from bullpen.agents.hooks.programs import HookedProgram
from bullpen.model.states import Provider

every_program = pytest.mark.parametrize(
    "program", PROGRAMS.values(), ids=lambda each: each.provider.value
)
every_document = pytest.mark.parametrize(
    "program",
    [each for each in PROGRAMS.values() if not each.is_plugin],
    ids=lambda each: each.provider.value,
)


def settings_of(program: HookedProgram, home: Path) -> Path:
    return home / program.user_file[1] / program.user_file[2]


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@every_document
def test_hooks_are_installed_checked_and_removed(program: HookedProgram, home: Path) -> None:
    path = write(settings_of(program, home), '{\r\n\t"mine": "ü"\r\n}')
    before = path.read_bytes()
    assert set(check(program.provider).events.values()) == {EventState.MISSING}
    installed = install(program.provider)
    assert installed.has_changed
    assert installed.is_complete
    assert installed.path == path
    assert check(program.provider).is_complete
    assert list(json.loads(path.read_text())["hooks"]) == list(program.events)
    assert not install(program.provider).has_changed
    removed = uninstall(program.provider)
    assert removed.has_changed
    assert set(removed.events.values()) == {EventState.MISSING}
    assert path.read_bytes() == before
    assert not uninstall(program.provider).has_changed


@every_program
def test_a_file_of_ours_alone_is_removed_again(program: HookedProgram, home: Path) -> None:
    path = settings_of(program, home)
    installed = install(program.provider)
    assert installed.diff.startswith("--- /dev/null\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    uninstall(program.provider)
    assert not path.parent.exists()


def test_a_plugin_is_a_file_of_ours_alone(home: Path) -> None:
    installed = install(Provider.OPENCODE)
    assert installed.path == home / ".config/opencode/plugin/bullpen.js"
    written = installed.path.read_text()
    assert (
        json.dumps(["-I", "-S", str(Path(files.__file__).with_name("shim.py")), "opencode"])[1:-1]
        in written
    )
    installed.path.write_text(written.replace("shim.py", "older.py"))
    assert set(check(Provider.OPENCODE).events.values()) == {EventState.OUTDATED}
    assert install(Provider.OPENCODE).has_changed
    assert installed.path.read_text() == written
    assert not install(Provider.OPENCODE).has_changed


def test_a_plugin_of_somebody_else_is_left_alone(home: Path) -> None:
    path = write(home / ".config/opencode/plugin/bullpen.js", "export const Theirs = 1\n")
    for act in (install, check, uninstall):
        with pytest.raises(SettingsError, match="it is not a file of ours"):
            act(Provider.OPENCODE)
    assert path.read_text() == "export const Theirs = 1\n"


@every_program
@pytest.mark.parametrize("scope", Scope)
def test_no_directory_that_we_made_is_left(
    program: HookedProgram, scope: Scope, home: Path
) -> None:
    project = home / "project"
    project.mkdir()
    before = sorted(home.rglob("*"))
    for _ in range(2):  # also if the second finds it all as it should be
        install(program.provider, scope=scope, project=project)
    uninstall(program.provider, scope=scope, project=project)
    assert sorted(home.rglob("*")) == before


def test_a_link_to_nothing_is_left_as_it_was(home: Path) -> None:
    link = home / ".claude/settings.json"
    link.parent.mkdir()
    link.symlink_to("../dotfiles/claude/settings.json")
    before = sorted(home.rglob("*"))
    install(Provider.CLAUDE)
    assert link.exists()
    uninstall(Provider.CLAUDE)
    assert sorted(home.rglob("*")) == before
    assert link.is_symlink()


def test_of_the_directories_we_made_those_stay_that_are_used(home: Path) -> None:
    install(Provider.OPENCODE)
    write(home / ".config/opencode/theirs", "")
    uninstall(Provider.OPENCODE)
    assert [each.name for each in (home / ".config/opencode").iterdir()] == ["theirs"]


def test_a_directory_that_was_there_or_is_used_stays(home: Path) -> None:
    (home / ".codex").mkdir()
    install(Provider.CODEX)
    uninstall(Provider.CODEX)
    assert list((home / ".codex").iterdir()) == []
    install(Provider.CLAUDE)
    write(home / ".claude/other", "")
    uninstall(Provider.CLAUDE)
    assert [each.name for each in (home / ".claude").iterdir()] == ["other"]


def test_a_file_of_ours_that_somebody_added_to_is_kept(home: Path) -> None:
    install(Provider.CLAUDE)
    path = home / ".claude/settings.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "model": "opus"}, indent=2))
    uninstall(Provider.CLAUDE)
    assert json.loads(path.read_text()) == {"model": "opus"}


def test_a_dry_run_shows_the_difference_and_writes_nothing(home: Path) -> None:
    path = write(home / ".claude/settings.json", '{"model": "opus"}\n')
    planned = install(Provider.CLAUDE, dry_run=True)
    assert planned.has_changed
    assert planned.is_complete
    header, _, body = planned.diff.partition("@@")
    assert header == f"--- {path}\n+++ {path}\n"
    assert '-{"model": "opus"}\n' in body
    assert "shim.py claude Stop" in body
    assert path.read_text() == '{"model": "opus"}\n'
    install(Provider.CLAUDE)
    installed = path.read_bytes()
    assert uninstall(Provider.CLAUDE, dry_run=True).has_changed
    assert path.read_bytes() == installed


def test_a_link_stays_a_link_and_the_mode_stays(home: Path) -> None:
    target = write(home / "dotfiles/claude.json", "{}\n")
    target.chmod(0o640)
    link = home / ".claude/settings.json"
    link.parent.mkdir()
    link.symlink_to(target)
    install(Provider.CLAUDE)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert "bullpen-hook" in target.read_text()
    uninstall(Provider.CLAUDE)
    assert link.is_symlink()
    assert target.read_text() == "{}\n"
    assert [each.name for each in target.parent.iterdir()] == ["claude.json"]


def test_a_byte_order_mark_is_kept(home: Path) -> None:
    path = write(home / ".claude/settings.json", b'\xef\xbb\xbf{"model": "opus"}')
    install(Provider.CLAUDE)
    assert path.read_bytes().startswith(b"\xef\xbb\xbf{")
    uninstall(Provider.CLAUDE)
    assert path.read_bytes() == b'\xef\xbb\xbf{"model": "opus"}'


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b'{"model": ', "line 1, column 11: it ends too early"),
        (b"// mine\n{}", "the program takes no comments"),
        (b'{"model": "\xff"}', "byte 11 is not UTF-8"),
        (b'{"hooks": 1}', "`hooks` is not an object"),
    ],
)
def test_settings_nobody_can_read_are_refused_and_left_alone(
    content: bytes, what: str, home: Path
) -> None:
    path = write(home / ".claude/settings.json", content)
    for act in (install, check, uninstall):
        if act is uninstall and what == "`hooks` is not an object":
            continue  # there is nothing of ours in it
        with pytest.raises(SettingsError) as caught:
            act(Provider.CLAUDE)
        assert str(path) in str(caught.value)
        assert what in str(caught.value)
    assert path.read_bytes() == content
    assert [each.name for each in path.parent.iterdir()] == ["settings.json"]


def test_a_directory_in_its_place_is_refused(home: Path) -> None:
    (home / ".claude/settings.json").mkdir(parents=True)
    with pytest.raises(SettingsError, match="directory"):
        install(Provider.CLAUDE)


def test_a_file_that_changed_meanwhile_is_not_overwritten(home: Path) -> None:
    path = write(home / "settings.json", "theirs")
    with pytest.raises(SettingsError, match="changed meanwhile"):
        files.replace(path, "ours", before="what we had read")
    with pytest.raises(SettingsError, match="changed meanwhile"):
        files.remove(path, before="what we had read")
    assert path.read_text() == "theirs"
    assert [each.name for each in home.glob(".settings*")] == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_we_may_not_write_to_is_named(home: Path) -> None:
    path = write(home / ".claude/settings.json", "{}")
    path.parent.chmod(0o500)
    with pytest.raises(SettingsError, match="Permission denied"):
        install(Provider.CLAUDE)


@every_program
def test_a_project_has_settings_of_its_own(program: HookedProgram, home: Path) -> None:
    project = home / "project"
    project.mkdir()
    installed = install(program.provider, scope=Scope.PROJECT, project=project)
    assert installed.path == project / program.project_file
    assert check(program.provider, scope=Scope.PROJECT, project=project).is_complete
    assert not check(program.provider).is_complete
    uninstall(program.provider, scope=Scope.PROJECT, project=project)
    assert not installed.path.exists()


def test_the_directories_follow_the_programs_own_variables(home: Path) -> None:
    for provider, variable, name in [
        (Provider.CLAUDE, "CLAUDE_CONFIG_DIR", "settings.json"),
        (Provider.CODEX, "CODEX_HOME", "hooks.json"),
        (Provider.COPILOT, "COPILOT_HOME", "settings.json"),
        (Provider.OPENCODE, "XDG_CONFIG_HOME", "opencode/plugin/bullpen.js"),
    ]:
        elsewhere = home / provider
        assert install(provider, environment={variable: str(elsewhere)}).path == elsewhere / name


def test_the_user_is_told_that_codex_wants_a_review(home: Path) -> None:
    assert "review" in install(Provider.CODEX).note
    assert uninstall(Provider.CODEX).note == ""
    assert install(Provider.CLAUDE).note == ""


def test_a_program_without_hooks_says_so() -> None:
    with pytest.raises(UnsupportedError, match="other has no hooks"):
        install(Provider.OTHER)


def test_a_program_is_present_if_it_was_used_or_could_be(home: Path) -> None:
    nowhere = {"HOME": str(home), "PATH": str(home / "bin")}
    assert not is_present(Provider.CLAUDE, nowhere)
    write(home / "bin/claude", "#!/bin/sh\n").chmod(0o755)
    assert is_present(Provider.CLAUDE, nowhere)
    assert not is_present(Provider.CODEX, nowhere)
    (home / ".codex").mkdir()
    assert is_present(Provider.CODEX, nowhere)
    assert not is_present(Provider.OTHER, nowhere)
