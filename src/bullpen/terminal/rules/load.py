"""Reading rule files: ours, shipped as data, and those of the user, which go on top.

A user's file names its provider; each of its rules replaces ours of the same name or is new,
`enabled = false` takes one away, and any other table replaces ours whole.
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from bullpen.model.states import Provider
from bullpen.terminal.rules.errors import RuleError, RuleFileError
from bullpen.terminal.rules.format import Answers, Program, PromptShape, ProviderRules, Rule

__all__ = ["load_rules", "parse_rules", "shipped_rules", "user_directory"]

Rules = Mapping[Provider, ProviderRules]

_TABLES: dict[str, Any] = {
    "program": Program,
    "prompts": tuple[PromptShape, ...],
    "turn": str,
    "item": str,
    "dialog": str,
    "sidebar": str,
    "answers": Answers,
}


def user_directory() -> Path:
    """Where the user's rule files are: `$XDG_CONFIG_HOME/bullpen/rules`."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    home = Path(configured) if configured.startswith("/") else Path.home() / ".config"
    return home / "bullpen" / "rules"


def load_rules(
    directory: Path | None = None, *, on_trouble: Callable[[RuleFileError], None] | None = None
) -> Rules:
    """Return the rules in force: ours, and on top of them the files of a directory, by name.

    With `on_trouble`, a file that is none is told and left out.

    Raises:
        RuleFileError: a file cannot be read or is no rule file.
    """
    directory = user_directory() if directory is None else directory
    rules = dict(shipped_rules())
    for path in sorted(directory.glob("*.toml")):
        try:
            merged = parse_rules(_read(path), file=str(path), onto=rules)
        except RuleFileError as error:
            if on_trouble is None:
                raise
            on_trouble(error)
        else:
            rules[merged.provider] = merged
    return MappingProxyType(rules)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleFileError(str(path), f"cannot be read: {error}") from error


@lru_cache(maxsize=1)
def shipped_rules() -> Rules:
    """Return the rules that come with bullpen."""
    data = resources.files("bullpen.terminal.rules") / "data"
    parsed = [
        parse_rules(entry.read_text(encoding="utf-8"), file=entry.name)
        for entry in sorted(data.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    ]
    return MappingProxyType({rules.provider: rules for rules in parsed})


def parse_rules(content: str, *, file: str, onto: Rules | None = None) -> ProviderRules:
    """Read one rule file, on top of rules that are known.

    Raises:
        RuleFileError: it is no rule file; the error names the rule and where in it.
    """
    try:
        tables = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise RuleFileError(file, f"is no TOML: {error}") from error
    unknown = tables.keys() - _TABLES.keys() - {"provider", "rules"}
    if unknown:
        raise RuleFileError(
            file, f"there is no such table; there are {_names()}", path=min(unknown)
        )
    if "provider" not in tables:
        raise RuleFileError(file, "is missing", path="provider")
    provider = _convert(tables["provider"], Provider, file, "provider")
    base = (onto or {}).get(provider) or ProviderRules(provider)
    changes = {
        name: _convert(tables[name], kind, file, name)
        for name, kind in _TABLES.items()
        if name in tables
    }
    rules = _merge(base.rules, tables.get("rules", []), file)
    try:
        return msgspec.structs.replace(base, **changes, rules=rules)
    except RuleError as error:
        raise RuleFileError(file, str(error)) from error


def _names() -> str:
    return ", ".join(["provider", *_TABLES, "rules"])


def _merge(base: tuple[Rule, ...], tables: object, file: str) -> tuple[Rule, ...]:
    if not isinstance(tables, list):
        raise RuleFileError(file, "is no list of tables; write [[rules]]", path="rules")
    rules = {rule.name: rule for rule in base}
    seen: set[str] = set()
    for index, table in enumerate(tables):
        name = table.get("name") if isinstance(table, dict) else None
        if not isinstance(name, str):
            raise RuleFileError(file, "is missing", path=f"rules[{index}].name")
        if name in seen:
            raise RuleFileError(file, "stands twice in the file", rule=name)
        seen.add(name)
        enabled = table.pop("enabled", True)
        if enabled not in (True, False):
            raise RuleFileError(file, "is neither true nor false", rule=name, path="enabled")
        if not enabled:
            rules.pop(name, None)
            continue
        rules[name] = _convert(table, Rule, file, "", rule=name)
    return tuple(rules.values())


def _convert(value: object, kind: Any, file: str, table: str, *, rule: str = "") -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        path = (table + place.rstrip("`")).lstrip(".")
        raise RuleFileError(file, problem, rule=rule, path=path) from error
