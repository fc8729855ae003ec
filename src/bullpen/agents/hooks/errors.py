"""What can go wrong with the settings of an agent program. They are then as they were before.

BullpenError
└── HooksError
    ├── MalformedDocumentError   a text is not the JSON it should be
    ├── SettingsError            a settings file cannot be read, understood or replaced
    └── UnsupportedError         the program has no hooks, or none of that scope
"""

from pathlib import Path

from bullpen.errors import BullpenError

__all__ = ["HooksError", "MalformedDocumentError", "SettingsError", "UnsupportedError"]


class HooksError(BullpenError):
    """Hooks cannot be installed, looked at or taken out. Nothing was changed."""


class MalformedDocumentError(HooksError):
    """A text is not the JSON it should be; it is left as it is."""

    def __init__(self, line: int, column: int, what: str) -> None:
        self.line = line
        self.column = column
        self.what = what
        super().__init__(f"line {line}, column {column}: {what}")


class SettingsError(HooksError):
    """A settings file cannot be used. It was not touched; mend it, and try again."""

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self.what = what
        super().__init__(f"{path}: {what}")


class UnsupportedError(HooksError):
    """The program has no such hooks. It can still be watched by its screen."""
