"""What can be wrong with what Claude Code writes.

BullpenError
└── NotUnderstood    it is not what we know it to write
"""

from bullpen.errors import BullpenError

__all__ = ["NotUnderstood"]


class NotUnderstood(BullpenError):
    """A payload, a file or a line is not what the program is known to write.

    It can be left aside; what comes next may be understood. A file that is written in place may be
    whole at the next look.
    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.what = what
        self.reason = reason
