"""Short names for agents nobody has named: `claude-1`, `codex-2`."""

__all__ = ["Names"]


class Names:
    """Gives each agent the lowest number that is free, and keeps it for as long as it lives."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}  # name: whose

    def give(self, owner: str, family: str, *, wanted: str = "") -> str:
        """Return the owner's name, a new one if it has none.

        A name somebody asks for is given unless another has it.
        """
        for name, whose in self._taken.items():
            if whose == owner:
                return name
        name = wanted if wanted and wanted not in self._taken else self._free(wanted or family)
        self._taken[name] = owner
        return name

    def owner(self, name: str) -> str | None:
        """Return whose name it is."""
        return self._taken.get(name)

    def keep(self, name: str, owner: str) -> None:
        """Note a name that was given before."""
        self._taken.setdefault(name, owner)

    def release(self, owner: str) -> None:
        """Let go of an owner's name."""
        for name in [name for name, whose in self._taken.items() if whose == owner]:
            del self._taken[name]

    def hand_over(self, owner: str, heir: str) -> None:
        """Let an agent keep its name when it is found to be somewhere else than it was known."""
        self.release(heir)
        for name, whose in self._taken.items():
            if whose == owner:
                self._taken[name] = heir
                return

    def _free(self, family: str) -> str:
        number = 1
        while f"{family}-{number}" in self._taken:
            number += 1
        return f"{family}-{number}"
