"""Screen rules: what an agent program's chrome says about what the program is doing.

`decide` takes a `Screen` and one provider's rules and returns a `Verdict` that names the rule, the
region and the text that made it win, and who lost. The rules are data, one TOML file per provider
under `data/`; `load_rules` puts the user's files on top. Only `load` reads files; all else is pure.
This room does not say *which* program a pane runs: that is `observe.signature`.
"""

from bullpen.terminal.rules.engine import Evidence, Loser, Verdict, decide
from bullpen.terminal.rules.errors import RuleError, RuleFileError
from bullpen.terminal.rules.format import ProviderRules
from bullpen.terminal.rules.load import load_rules, parse_rules, shipped_rules
from bullpen.terminal.rules.screen import Cursor, Screen, read_screen

__all__ = [
    "Cursor",
    "Evidence",
    "Loser",
    "ProviderRules",
    "RuleError",
    "RuleFileError",
    "Screen",
    "Verdict",
    "decide",
    "load_rules",
    "parse_rules",
    "read_screen",
    "shipped_rules",
]
