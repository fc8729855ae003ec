"""What can be set, from where it is taken, and what is wrong with it.

    resolved = resolve(paths.config, os.environ, {"observe.poll_interval_ms": 500})
    resolved.settings.observe.poll_interval_ms, resolved.origin("observe.poll_interval_ms")

A default gives way to `config.toml`, that to the environment, that to a flag. The variable of
`observe.poll_interval_ms` is `BULLPEN_OBSERVE_POLL_INTERVAL_MS`; an empty one counts as unset.
Whatever is wrong anywhere is told at once, with its place, and nothing is in effect then.
"""

import difflib
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from bullpen.api.errors import SettingsError
from bullpen.model.states import SourceKind

__all__ = [
    "A2aSettings",
    "CliSettings",
    "DaemonSettings",
    "MailSettings",
    "McpSettings",
    "ObserveSettings",
    "Resolved",
    "RulesSettings",
    "SettingInfo",
    "SettingValue",
    "Settings",
    "SourcesSettings",
    "describe",
    "log_level_of",
    "resolve",
]

DEFAULT = "default"

LogLevel = Literal["debug", "info", "warn", "error"]


def _meta(description: str, **bounds: Any) -> Meta:
    return Meta(description=description, **bounds)


class ObserveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the world is looked at."""

    poll_interval_ms: Annotated[
        int, _meta("how often tmux panes are looked at, in milliseconds", ge=50, le=60_000)
    ] = 1000
    tmux_socket: Annotated[
        str,
        _meta(
            "the tmux server's socket, a path or a name as for `tmux -L`; "
            "empty for the one of `TMUX`, else tmux's default"
        ),
    ] = ""
    tmux_only: Annotated[bool, _meta("whether agents outside of tmux are left out")] = False
    history_lines: Annotated[
        int, _meta("how many lines above the screen are captured with it", ge=0, le=2000)
    ] = 50
    source_pull_ms: Annotated[
        int,
        _meta(
            "how often a source in a process of its own is asked, in milliseconds", ge=20, le=60_000
        ),
    ] = 200
    gateway_pull_ms: Annotated[
        int,
        _meta("how often what such sources said is taken up, in milliseconds", ge=20, le=60_000),
    ] = 250


class SourcesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which sources there are. Each is named as its kind."""

    poller: Annotated[bool, _meta("screens, titles and processes")] = True
    claude_hooks: Annotated[bool, _meta("what Claude Code's hooks report")] = True
    claude_sessions: Annotated[bool, _meta("Claude Code's state files, one per process")] = True
    claude_transcript: Annotated[bool, _meta("Claude Code's transcripts")] = True
    codex_appserver: Annotated[
        Literal["auto", "off"], _meta("Codex's app server: if there is a `codex`, or never")
    ] = "auto"
    codex_command: Annotated[
        str, _meta("the program whose `app-server` is started", min_length=1)
    ] = "codex"
    codex_hooks: Annotated[bool, _meta("what Codex's hooks report")] = True
    codex_rollout: Annotated[bool, _meta("Codex's session files")] = True
    codex_capture: Annotated[bool, _meta("what `codex exec --json` prints into a pane")] = True
    copilot: Annotated[bool, _meta("what Copilot CLI reports")] = True
    gemini: Annotated[bool, _meta("what Gemini CLI reports")] = True
    opencode: Annotated[bool, _meta("what opencode reports")] = True
    pty: Annotated[bool, _meta("what the wrappers of agents see")] = True
    report: Annotated[bool, _meta("what anybody's own agent reports through the api")] = True

    @property
    def enabled(self) -> tuple[SourceKind, ...]:
        """The kinds that are not switched off."""
        return tuple(
            kind for kind in SourceKind if getattr(self, kind.value, False) not in (False, "off")
        )


class DaemonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the daemon runs."""

    isolate_sources: Annotated[bool, _meta("whether each source gets a process of its own")] = False
    log_level: Annotated[LogLevel, _meta("from which level on the daemon logs")] = "info"
    log_max_bytes: Annotated[int, _meta("how long a log file may become", ge=10_000, le=2**30)] = (
        5_000_000
    )
    log_files: Annotated[int, _meta("how many full log files are kept", ge=0, le=100)] = 3
    retention_days: Annotated[
        float, _meta("how long observations are kept in the store, in days", gt=0, le=3650)
    ] = 7.0
    snapshot_minutes: Annotated[
        float, _meta("how often a snapshot of the state is saved, in minutes", gt=0, le=1440)
    ] = 15.0
    snapshots_kept: Annotated[int, _meta("how many snapshots are kept", ge=1, le=10_000)] = 96
    slo_deterministic_ms: Annotated[
        int, _meta("how late 95 of 100 changes that a program itself reported may be told", ge=1)
    ] = 2000
    slo_heuristic_ms: Annotated[int, _meta("the same for changes read off a screen", ge=1)] = 5000


class MailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How messages are taken and delivered. Who may write to whom is in `policy.toml`."""

    store: Annotated[
        Literal["sqlite", "memory"],
        _meta("where messages are kept: with the state, or only as long as the daemon runs"),
    ] = "sqlite"
    rate_per_second: Annotated[
        float, _meta("how many messages an agent may send per second, in the long run", gt=0)
    ] = 20.0
    rate_burst: Annotated[
        float, _meta("how many messages an agent may send at once", ge=1, le=100_000)
    ] = 100.0
    mailbox_limit: Annotated[
        int, _meta("how many messages may wait for one agent", ge=1, le=1_000_000)
    ] = 1000
    start_seconds: Annotated[
        float, _meta("how long an agent may take from its start until it is ready", gt=0)
    ] = 30.0
    send_seconds: Annotated[
        float, _meta("how long a message may take until it is accepted", gt=0)
    ] = 10.0
    receive_seconds: Annotated[
        float, _meta("how long an answer to anything but a task is waited for", gt=0)
    ] = 60.0
    task_seconds: Annotated[float, _meta("how long the answer to a task is waited for", gt=0)] = (
        300.0
    )
    idle_seconds: Annotated[
        float, _meta("how long a connection may be without traffic and without need of any", gt=0)
    ] = 120.0
    retention_days: Annotated[
        float, _meta("how many days a message that has ended is kept", gt=0, le=3650)
    ] = 30.0


class RulesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How screens are read."""

    directory: Annotated[
        str, _meta("where your own rule files are; empty for `rules` beside `config.toml`")
    ] = ""


class McpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How MCP is served. The socket that `bullpen mcp` speaks to is always there."""

    http: Annotated[bool, _meta("whether MCP is also served over HTTP, on loopback")] = False
    http_port: Annotated[
        int,
        _meta("its port; 0 for a free one, which stands in `bullpend.mcp-port`", ge=0, le=65_535),
    ] = 0


class A2aSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How A2A is served. The ports of agents are on loopback always."""

    http_port: Annotated[
        int,
        _meta(
            "the port all agents are served at; 0 for a free one, which stands in "
            "`bullpend.a2a-port`",
            ge=0,
            le=65_535,
        ),
    ] = 0
    bind: Annotated[
        str,
        _meta("its address; one that is not loopback needs TLS and a token", min_length=1),
    ] = "127.0.0.1"
    loopback: Annotated[
        Literal["open", "token"],
        _meta("whether your own programs on this machine are let in without a token"),
    ] = "open"
    tls_certificate: Annotated[str, _meta("the file of the certificate, as PEM")] = ""
    tls_key: Annotated[str, _meta("the file of its key; empty if it is in the same")] = ""
    hosts: Annotated[
        str, _meta("names of this machine, beside those of loopback, that callers may use")
    ] = ""
    origins: Annotated[str, _meta("origins of web pages that may call; none are by default")] = ""
    rate_per_second: Annotated[
        float, _meta("how many requests a caller may make per second, in the long run", gt=0)
    ] = 200.0
    rate_burst: Annotated[
        float, _meta("how many requests a caller may make at once", ge=1, le=100_000)
    ] = 1000.0
    connections: Annotated[
        int, _meta("how many connections are served at once", ge=1, le=10_000)
    ] = 400
    grpc: Annotated[
        bool,
        _meta("whether each agent is served by gRPC too, if `bullpen[grpc]` is installed"),
    ] = True
    push_to_loopback: Annotated[
        bool,
        _meta(
            "whether anybody may have push notifications posted to this machine; "
            "otherwise only who is on it may, and only as long as nobody else is served"
        ),
    ] = False


class CliSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How commands behave."""

    log_level: Annotated[LogLevel, _meta("from which level on a command logs to stderr")] = "warn"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set. Each section is a table of `config.toml`."""

    observe: ObserveSettings = ObserveSettings()
    sources: SourcesSettings = SourcesSettings()
    daemon: DaemonSettings = DaemonSettings()
    mail: MailSettings = MailSettings()
    rules: RulesSettings = RulesSettings()
    mcp: McpSettings = McpSettings()
    a2a: A2aSettings = A2aSettings()
    cli: CliSettings = CliSettings()


class SettingInfo(msgspec.Struct, frozen=True):
    """One thing that can be set."""

    key: str
    kind: Any
    """Its type, annotated."""
    default: Any

    @property
    def section(self) -> str:
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        """Its name within the section."""
        return self.key.partition(".")[2]

    @property
    def description(self) -> str:
        """What it is, in a few words."""
        return next(m.description or "" for m in get_args(self.kind) if isinstance(m, Meta))

    @property
    def expected(self) -> str:
        """What it may be, in words."""
        return _words(self.kind)

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables it is taken from, the first that is set deciding."""
        own = f"BULLPEN_{self.section}_{self.name}".upper()
        return (own, *(name for name, _ in _ALIASES.get(self.key, ())))

    @property
    def flag(self) -> str:
        """The option that sets it, where a command has one."""
        return "--" + self.name.replace("_", "-")


class SettingValue(msgspec.Struct, frozen=True):
    """One setting as it is in effect."""

    key: str
    value: Any
    origin: str
    """`default`, the path of `config.toml`, a variable or a flag."""


class Resolved(msgspec.Struct, frozen=True):
    """The settings in effect, and where each was taken from."""

    settings: Settings
    values: tuple[SettingValue, ...]

    def origin(self, key: str) -> str:
        """Return where a setting was taken from."""
        return next(each.origin for each in self.values if each.key == key)

    @property
    def flags(self) -> dict[str, str]:
        """What was given by flags, as variables: for a process that is to have the same settings.

        The rest it finds where we found it.
        """
        infos = {info.key: info for info in describe()}
        return {
            infos[each.key].variables[0]: _text(each.value)
            for each in self.values
            if each.origin == infos[each.key].flag
        }


def describe() -> tuple[SettingInfo, ...]:
    """Return everything that can be set, in order."""
    return tuple(
        SettingInfo(f"{section.name}.{field.name}", field.type, field.default)
        for section in msgspec.structs.fields(Settings)
        for field in msgspec.structs.fields(section.type)
    )


def resolve(
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Resolved:
    """Put the settings together. A file that is not there says nothing; a flag of None neither.

    Raises:
        SettingsError: something is set that cannot be set, or not so, or the file cannot be read.
    """
    infos = {each.key: each for each in describe()}
    found = {key: SettingValue(key, info.default, DEFAULT) for key, info in infos.items()}
    problems: list[str] = []
    for layer in (
        _from_file(config, infos),
        _from_environment(environment or {}, infos),
        _from_flags(flags or {}, infos),
    ):
        for outcome in layer:
            if isinstance(outcome, SettingValue):
                found[outcome.key] = outcome
            else:
                problems.append(outcome)
    if problems:
        raise SettingsError(problems)
    sections: dict[str, dict[str, Any]] = {}
    for key, value in found.items():
        sections.setdefault(infos[key].section, {})[infos[key].name] = value.value
    built = {
        section.name: section.type(**sections[section.name])
        for section in msgspec.structs.fields(Settings)
    }
    return Resolved(Settings(**built), tuple(found.values()))


def log_level_of(directives: str) -> str | None:
    """Return the level that a variable as of Rust's `env_logger` has for us; None if it has none.

    It is a level, or levels for targets: `warn,bullpen=debug`.
    """
    general = None
    for directive in directives.split(","):
        target, separator, word = directive.rpartition("=")
        level = _LEVELS.get(word.strip().lower())
        if separator and target.strip() == "bullpen":
            return level
        if not separator and level is not None:
            general = level
    return general


# ------------------------------------------------------------------------------------ the layers

_Layer = Iterator[SettingValue | str]  # a string is what is wrong


def _from_file(config: Path | None, infos: Mapping[str, SettingInfo]) -> _Layer:
    if config is None:
        return
    try:
        tables = tomllib.loads(config.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError) as error:  # not to be read, no UTF-8, no TOML
        yield f"{config}: {getattr(error, 'strerror', None) or error}"
        return
    for section, table in tables.items():
        names = [info.name for info in infos.values() if info.section == section]
        if not names:
            sections = {info.section for info in infos.values()}
            yield f"{config}: there is no section {section!r}{_did_you_mean(section, sections)}"
        elif not isinstance(table, dict):
            yield f"{config}: {section}: expected a table, got {table!r}"
        else:
            yield from _from_table(config, section, table, names, infos)


def _from_table(
    config: Path,
    section: str,
    table: Mapping[str, Any],
    names: list[str],
    infos: Mapping[str, SettingInfo],
) -> _Layer:
    for name, value in table.items():
        info = infos.get(f"{section}.{name}")
        if info is None:
            yield f"{config}: there is no setting {section}.{name}{_did_you_mean(name, names)}"
        else:
            yield _convert(info, value, str(config), f"{config}: {info.key}")


def _from_environment(environment: Mapping[str, str], infos: Mapping[str, SettingInfo]) -> _Layer:
    known = {variable for info in infos.values() for variable in info.variables}
    prefixes = tuple(
        {info.variables[0].rpartition(info.name.upper())[0] for info in infos.values()}
    )
    for variable in environment:
        if variable.startswith(prefixes) and variable not in known:
            yield f"${variable}: there is no such setting{_did_you_mean(variable, known)}"
    for info in infos.values():
        readers = dict(_ALIASES.get(info.key, ()))
        for variable in info.variables:
            text = environment.get(variable)
            if not text:
                continue
            value = readers.get(variable, _reader(info))(text)
            if value is None:  # it does not speak of us
                continue
            yield _convert(info, value, f"${variable}", f"${variable}", shown=text)
            break


def _from_flags(flags: Mapping[str, Any], infos: Mapping[str, SettingInfo]) -> _Layer:
    for key, value in flags.items():
        if value is not None:
            yield _convert(infos[key], value, infos[key].flag, infos[key].flag)


def _convert(
    info: SettingInfo, value: Any, origin: str, place: str, *, shown: Any = None
) -> SettingValue | str:
    try:
        return SettingValue(info.key, msgspec.convert(value, info.kind), origin)
    except msgspec.ValidationError:
        got = repr(value if shown is None else shown)
        return (
            f"{place}: expected {info.expected}, got {got if len(got) < 80 else got[:77] + '...'}"
        )


def _did_you_mean(word: str, words: Any) -> str:
    close = difflib.get_close_matches(word, sorted(words), n=1)
    return f"; did you mean {close[0]}?" if close else ""


# ------------------------------------------------------------------- what stands in a variable

_LEVELS = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "warn": "warn",
    "warning": "warn",
    "error": "error",
    "off": "error",
}
_TRUTHS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}

_Reader = Callable[[str], Any]  # returns None if the variable says nothing to us


def _reader(info: SettingInfo) -> _Reader:
    kind = get_args(info.kind)[0]
    if kind is bool:
        return lambda text: _TRUTHS.get(text.strip().lower(), text)
    if kind in (int, float):
        return lambda text: _number(kind, text)
    if info.name == "log_level":
        return _strict_level
    return str


def _number(kind: Callable[[str], Any], text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        return text  # which is no number, and will be said to be none


def _text(value: Any) -> str:
    """Return a value as it stands in a variable."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _strict_level(text: str) -> str:
    return log_level_of(text) or text


def _socket_path(text: str) -> str:
    return os.path.abspath(text)  # noqa: PTH100 - without a slash it would be taken for a name


_ALIASES: dict[str, tuple[tuple[str, _Reader], ...]] = {
    # Everybody's variable for everything that runs: what it says to others is no mistake.
    "daemon.log_level": (("BULLPEN_LOG", _strict_level), ("RUST_LOG", log_level_of)),
    "cli.log_level": (("BULLPEN_LOG", _strict_level), ("RUST_LOG", log_level_of)),
    "observe.tmux_socket": (
        ("BULLPEN_TMUX_SOCKET_PATH", _socket_path),
        ("BULLPEN_TMUX_SOCKET_NAME", str),
    ),
}


# ---------------------------------------------------------------------------------------- words


def _words(annotated: Any) -> str:
    kind, *metas = get_args(annotated)
    bounds = next(meta for meta in metas if isinstance(meta, Meta))
    if get_origin(kind) is Literal:
        *others, last = map(str, get_args(kind))
        return f"{', '.join(others)} or {last}"
    if kind is bool:
        return "true or false"
    if kind is str:
        return "text that is not empty" if bounds.min_length else "text"
    words = "an integer" if kind is int else "a number"
    if bounds.gt is not None:
        words += f" above {bounds.gt}"
    if bounds.ge is not None:
        words += f" from {bounds.ge}"
    if bounds.le is not None:
        words += f" to {bounds.le}" if bounds.ge is not None else f" up to {bounds.le}"
    return words
