"""What can be wrong with screen rules.

BullpenError
└── RuleError              rules cannot be used
    ├── RuleFileError      a file is no rule file; the others are not affected
    └── UnknownRegionError a rule asks for a region that no screen has
"""

from bullpen.errors import BullpenError

__all__ = ["RuleError", "RuleFileError", "UnknownRegionError"]


class RuleError(BullpenError, ValueError):  # so that msgspec adds where in a file it arose
    """Screen rules cannot be used as they are written."""


class RuleFileError(RuleError):
    """A rule file cannot be used. Mend what `path` of `rule` says, or take the file away."""

    def __init__(self, file: str, problem: str, *, rule: str = "", path: str = "") -> None:
        place = f"{file}: rule {rule!r}" if rule else file
        super().__init__(f"{place}: {path}: {problem}" if path else f"{place}: {problem}")
        self.file = file
        self.rule = rule
        self.path = path
        self.problem = problem


class UnknownRegionError(RuleError):
    """A region's name is none of ours. The message lists the ones there are."""

    def __init__(self, region: str, known: list[str]) -> None:
        super().__init__(f"there is no region {region!r}; there are {', '.join(known)}")
        self.region = region
