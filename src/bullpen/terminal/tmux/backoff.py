"""When to try again, without a clock: the caller says what time it is."""

__all__ = ["Backoff"]

FIRST_SECONDS = 0.25
LONGEST_SECONDS = 5.0  # a server that starts is seen this late at the latest
FACTOR = 2.0


class Backoff:
    """Doubles the pause after each failure, up to a limit; a success begins anew."""

    def __init__(
        self, *, first_seconds: float = FIRST_SECONDS, longest_seconds: float = LONGEST_SECONDS
    ) -> None:
        self._first = first_seconds
        self._longest = longest_seconds
        self._pause = 0.0
        self._until = float("-inf")

    @property
    def pause_seconds(self) -> float:
        """How long the last failure keeps from trying; 0 after a success."""
        return self._pause

    def may_try(self, now: float) -> bool:
        """Whether the pause is over. A clock that was set back makes it no longer."""
        return not self._until - self._pause <= now < self._until

    def failed(self, now: float) -> None:
        """Note a failure."""
        self._pause = min(self._pause * FACTOR or self._first, self._longest)
        self._until = now + self._pause

    def succeeded(self) -> None:
        """Note a success."""
        self._pause = 0.0
        self._until = float("-inf")
