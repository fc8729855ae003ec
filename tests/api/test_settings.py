"""Settings come from four places, one above the other; a mistake is told with its place."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.api.errors import SettingsError
from bullpen.api.settings import (
    SettingInfo,
    Settings,
    describe,
    log_level_of,
    resolve,
)
from bullpen.model.states import SourceKind
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
POLL = "observe.poll_interval_ms"
POLL_VARIABLE = "BULLPEN_OBSERVE_POLL_INTERVAL_MS"


@pytest.fixture
def config(home: Path) -> Path:
    return home / "config.toml"


def problems(config: Path | None = None, **given: Any) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        resolve(config, given.get("environment"), given.get("flags"))
    return caught.value.problems


# Precedence


def test_a_default_gives_way_to_the_file_that_to_the_environment_that_to_a_flag(
    config: Path,
) -> None:
    environment = {POLL_VARIABLE: "300"}
    flags = {POLL: 400}
    resolved = resolve(config)
    assert (resolved.settings.observe.poll_interval_ms, resolved.origin(POLL)) == (1000, "default")
    config.write_text("[observe]\npoll_interval_ms = 200\n")
    resolved = resolve(config)
    assert (resolved.settings.observe.poll_interval_ms, resolved.origin(POLL)) == (200, str(config))
    resolved = resolve(config, environment)
    assert resolved.settings.observe.poll_interval_ms == 300
    assert resolved.origin(POLL) == f"${POLL_VARIABLE}"
    resolved = resolve(config, environment, flags)
    assert resolved.settings.observe.poll_interval_ms == 400
    assert resolved.origin(POLL) == "--poll-interval-ms"


def test_what_is_not_given_leaves_the_others_in_place(config: Path) -> None:
    config.write_text("[daemon]\nisolate_sources = true\n")
    resolved = resolve(config, {POLL_VARIABLE: ""}, {POLL: None})
    assert resolved.settings.daemon.isolate_sources is True
    assert resolved.origin(POLL) == "default"
    assert [each.key for each in resolved.values] == [each.key for each in describe()]


@given(st.sampled_from(describe()), st.sets(st.sampled_from(["file", "environment", "flag"])))
def test_every_setting_is_taken_from_the_highest_place_that_has_it(
    info: SettingInfo, places: set[str]
) -> None:
    import tempfile

    value = other(info)
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "config.toml"
        if "file" in places:
            config.write_text(f"[{info.section}]\n{info.name} = {toml(value)}\n")
        environment = {info.variables[0]: text(value)} if "environment" in places else {}
        resolved = resolve(config, environment, {info.key: value} if "flag" in places else {})
    expected = "flag" if "flag" in places else "environment" if "environment" in places else "file"
    origin = {"flag": info.flag, "environment": f"${info.variables[0]}", "file": str(config)}
    assert resolved.origin(info.key) == (origin[expected] if places else "default")
    found = getattr(getattr(resolved.settings, info.section), info.name)
    assert found == (value if places else info.default)
    assert type(found) is type(info.default)


def other(info: SettingInfo) -> Any:
    """Return a value that a setting may have, and does not have by default."""
    if isinstance(info.default, bool):
        return not info.default
    if isinstance(info.default, int | float):
        return info.default + 1
    words = info.expected.split(" or ")
    if info.default in words:
        return next(each for each in words if each != info.default)
    return "error" if "error" in info.expected else "other"


def toml(value: Any) -> str:
    return text(value) if isinstance(value, bool | int | float) else f'"{value}"'


def text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_a_process_that_gets_our_flags_as_variables_has_our_settings(config: Path) -> None:
    config.write_text("[observe]\npoll_interval_ms = 200\nhistory_lines = 9\n")
    environment = {"BULLPEN_DAEMON_LOG_FILES": "7"}
    flags = {POLL: 500, "daemon.isolate_sources": True, "observe.tmux_socket": "mine"}
    ours = resolve(config, environment, flags)
    assert ours.flags == {
        POLL_VARIABLE: "500",
        "BULLPEN_DAEMON_ISOLATE_SOURCES": "true",
        "BULLPEN_OBSERVE_TMUX_SOCKET": "mine",
    }
    theirs = resolve(config, environment | ours.flags)
    assert theirs.settings == ours.settings
    assert theirs.settings.observe.history_lines == 9


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        *((word, True) for word in ("1", "True", "yes", "on")),
        *((word, False) for word in ("0", "FALSE", "no", "off")),
    ],
)
def test_truth_is_spelled_in_several_ways(word: str, meant: bool) -> None:
    resolved = resolve(None, {"BULLPEN_DAEMON_ISOLATE_SOURCES": word})
    assert resolved.settings.daemon.isolate_sources is meant


@pytest.mark.requirement("TMX-3")
def test_the_tmux_server_is_named_by_several_variables_in_their_order() -> None:
    environment = {
        "BULLPEN_OBSERVE_TMUX_SOCKET": "first",
        "BULLPEN_TMUX_SOCKET_PATH": "/second",
        "BULLPEN_TMUX_SOCKET_NAME": "third",
    }
    flags = {"observe.tmux_socket": "zeroth"}
    seen = [resolve(None, environment, flags)]
    while environment:
        seen.append(resolve(None, environment))
        del environment[next(iter(environment))]
    assert [
        (each.settings.observe.tmux_socket, each.origin("observe.tmux_socket")) for each in seen
    ] == [
        ("zeroth", "--tmux-socket"),
        ("first", "$BULLPEN_OBSERVE_TMUX_SOCKET"),
        ("/second", "$BULLPEN_TMUX_SOCKET_PATH"),
        ("third", "$BULLPEN_TMUX_SOCKET_NAME"),
    ]
    relative = resolve(None, {"BULLPEN_TMUX_SOCKET_PATH": "mine"})
    assert relative.settings.observe.tmux_socket == str(Path.cwd() / "mine")


# The level


@pytest.mark.requirement("LOG-1")
@pytest.mark.parametrize(
    ("environment", "daemon", "cli"),
    [
        ({}, "info", "warn"),
        ({"RUST_LOG": "debug"}, "debug", "debug"),
        ({"BULLPEN_LOG": "error", "RUST_LOG": "debug"}, "error", "error"),
        ({"BULLPEN_DAEMON_LOG_LEVEL": "warn", "BULLPEN_LOG": "error"}, "warn", "error"),
        ({"BULLPEN_LOG": "WARNING"}, "warn", "warn"),
        ({"BULLPEN_LOG": "bullpen=debug,hyper=warn"}, "debug", "debug"),
        ({"RUST_LOG": "hyper=trace"}, "info", "warn"),  # which is not about us
        ({"RUST_LOG": "certainly not a level"}, "info", "warn"),
    ],
)
def test_the_level_is_that_of_our_variable_then_of_everybodys(
    environment: dict[str, str], daemon: str, cli: str
) -> None:
    settings = resolve(None, environment).settings
    assert (settings.daemon.log_level, settings.cli.log_level) == (daemon, cli)


@pytest.mark.requirement("LOG-1")
@pytest.mark.parametrize(
    ("directives", "level"),
    [
        ("info", "info"),
        ("WARNING", "warn"),
        ("trace", "debug"),
        ("off", "error"),
        ("warn,bullpen=debug", "debug"),
        ("bullpen=debug,warn", "debug"),
        ("bullpen = info", "info"),
        ("other=debug", None),
        ("other=debug,error", "error"),
        ("", None),
    ],
)
def test_a_level_may_be_given_for_us_alone(directives: str, level: str | None) -> None:
    assert log_level_of(directives) == level


def test_a_level_that_is_none_is_refused_in_our_own_variable() -> None:
    assert problems(environment={"BULLPEN_LOG": "verbose"})[0] == (
        "$BULLPEN_LOG: expected debug, info, warn or error, got 'verbose'"
    )


# Mistakes


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("observe = 1", "observe: expected a table, got 1"),
        ("[observed]\nx = 1", "there is no section 'observed'; did you mean observe?"),
        (
            "[observe]\npol_interval_ms = 1",
            "there is no setting observe.pol_interval_ms; did you mean poll_interval_ms?",
        ),
        ("[observe]\nzebra = 1", "there is no setting observe.zebra"),
        (
            '[observe]\npoll_interval_ms = "fast"',
            "observe.poll_interval_ms: expected an integer from 50 to 60000, got 'fast'",
        ),
        (
            "[observe]\npoll_interval_ms = 49",
            "observe.poll_interval_ms: expected an integer from 50 to 60000, got 49",
        ),
        (
            "[observe]\npoll_interval_ms = 100.5",
            "observe.poll_interval_ms: expected an integer from 50 to 60000, got 100.5",
        ),
        (
            "[daemon]\nretention_days = 0",
            "daemon.retention_days: expected a number above 0 up to 3650, got 0",
        ),
        (
            "[daemon]\nretention_days = nan",
            "daemon.retention_days: expected a number above 0 up to 3650, got nan",
        ),
        ("[daemon]\nisolate_sources = 1", "daemon.isolate_sources: expected true or false, got 1"),
        (
            "[sources]\ncodex_appserver = true",
            "sources.codex_appserver: expected auto or off, got True",
        ),
        ("[sources]\ncodex_command = ''", "codex_command: expected text that is not empty, got ''"),
        ("[rules]\ndirectory = [1]", "rules.directory: expected text, got [1]"),
        ("[observe]\nx = ", "(at end of document)"),
        ("[observe]\nx y", "(at line 2, column 3)"),
        ("a = " + "[" * 5000, "recursion"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_file_key_and_what_was_expected(
    config: Path, content: str, problem: str
) -> None:
    config.write_text(content)
    [told] = problems(config)
    assert told.startswith(f"{config}: ")
    assert problem in told


def test_a_file_that_cannot_be_read_is_said_to_be_so(config: Path) -> None:
    config.mkdir()
    assert problems(config) == (f"{config}: Is a directory",)
    config.rmdir()
    config.write_bytes(b"\xff\xfe")
    assert "can't decode" in problems(config)[0]


def test_all_mistakes_of_all_places_are_told_at_once(config: Path) -> None:
    config.write_text("[observe]\ntmux_only = 3\nx = 1\n")
    environment = {POLL_VARIABLE: "often", "BULLPEN_RULES_DIR": "3"}
    flags = {"daemon.snapshot_minutes": -1.0}
    assert problems(config, environment=environment, flags=flags) == (
        f"{config}: observe.tmux_only: expected true or false, got 3",
        f"{config}: there is no setting observe.x",
        "$BULLPEN_RULES_DIR: there is no such setting; did you mean BULLPEN_RULES_DIRECTORY?",
        f"${POLL_VARIABLE}: expected an integer from 50 to 60000, got 'often'",
        "--snapshot-minutes: expected a number above 0 up to 1440, got -1.0",
    )


def test_a_long_mistake_is_cut() -> None:
    [told] = problems(environment={POLL_VARIABLE: "x" * 10_000})
    assert len(told) < 200
    assert told.endswith("...")


def test_variables_that_are_no_settings_are_nobodys_business() -> None:
    environment = {"BULLPEN_HOME": "/x", "BULLPEN_SOCKET": "/y", "BULLPEN_WHATEVER": "1"}
    assert resolve(None, environment).settings == Settings()


# What there is


@pytest.mark.requirement("PL-0", "CLI-3", "IF-G5")
def test_the_defaults_are_the_ones_that_are_promised() -> None:
    settings = Settings()
    assert settings.observe.poll_interval_ms == 1000
    assert (settings.observe.source_pull_ms, settings.observe.gateway_pull_ms) == (200, 250)
    assert settings.daemon.snapshot_minutes == 15
    assert (settings.daemon.slo_deterministic_ms, settings.daemon.slo_heuristic_ms) == (2000, 5000)
    assert settings.daemon.isolate_sources is False


def test_every_source_can_be_switched_off() -> None:
    kinds = set(SourceKind)
    assert set(Settings().sources.enabled) == kinds
    off = {f"sources.{kind.value}": False for kind in kinds}
    off[f"sources.{SourceKind.CODEX_APPSERVER.value}"] = "off"  # type: ignore[assignment]
    assert resolve(None, {}, off).settings.sources.enabled == ()


def test_every_default_is_one_that_could_be_given() -> None:
    for info in describe():
        assert msgspec.convert(info.default, info.kind) == info.default
        assert info.description


def test_every_setting_and_variable_is_on_its_page() -> None:
    for info in describe():
        default = info.default if not isinstance(info.default, bool) else str(info.default).lower()
        shown = f"`{default}`" if default != "" else "empty"
        row = f"| `{info.key}` | {shown} | {info.expected} | {info.description} |"
        assert row in PAGE
        for alias in info.variables[1:]:
            assert f"`{alias}`" in PAGE
    documented = re.findall(r"^\| `(\w+\.\w+)` \|", PAGE, re.MULTILINE)
    assert documented == [info.key for info in describe()]


def test_every_setting_is_asked_for_by_somebody() -> None:
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    for info in describe():
        section, name = info.key.split(".")
        is_a_source = section == "sources" and name in {kind.value for kind in SourceKind}
        is_asked_for = re.search(rf"\b(?:{section}|_?settings|limits)\.{name}\b", code)
        assert is_asked_for or is_a_source, f"{info.key} changes nothing"


def test_every_variable_of_ours_is_on_its_page() -> None:
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    known = {variable for info in describe() for variable in info.variables}
    within = {"BULLPEN_LC_CTYPE"}  # said by a process of ours to another
    for variable in set(re.findall(r'"(BULLPEN_[A-Z_]+)"', code)) - known - within:
        assert f"`{variable}`" in PAGE, variable
