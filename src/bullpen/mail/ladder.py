"""The ways into agents, best first, and which of them is open."""

from bullpen.mail.directory import Directory
from bullpen.mail.doors import Door, Rung

__all__ = ["Ladder"]

_RUNGS = list(Rung)


class Ladder:
    """All doors. Which of them lead to whom changes as agents come and go."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._doors: list[Door] = []

    def add(self, door: Door) -> None:
        """Have one more way."""
        self._doors.append(door)
        self._doors.sort(key=lambda each: _RUNGS.index(each.rung))

    def to(self, agent: str) -> tuple[Rung, ...]:
        """Return the ways into an agent."""
        return tuple(each.rung for each in self._doors if each.reaches(agent))

    def find(self, agent: str, rung: Rung | None) -> Door | None:
        """Return the way into an agent by a rung."""
        found = (each for each in self._doors if each.rung is rung and each.reaches(agent))
        return next(found, None)

    def choose(self, agent: str) -> tuple[Door | None, str]:
        """Return the best way that is open, or why none is, in words."""
        addressee = self._directory.find(agent)
        if addressee is None or not addressee.is_present:
            return None, "the agent is not there; it waits for its return"
        reasons: dict[Rung, str] = {}
        for door in self._doors:
            if not door.reaches(agent):
                continue
            if Rung.OWN in reasons and door.rung is not Rung.HOOK:
                break  # what the program itself says is truer than its screen
            reason = door.is_open(agent)
            if not reason:
                return door, ""
            reasons[door.rung] = reason
        if not reasons:
            return None, "there is no way into it; it can fetch its messages by itself"
        told = [reason for rung, reason in reasons.items() if rung is not Rung.HOOK]
        return None, told[0] if told else reasons[Rung.HOOK]

    async def interrupt(self, agent: str) -> bool:
        """Interrupt what an agent is doing; return whether there was a way to."""
        for door in self._doors:
            if door.reaches(agent) and await door.interrupt(agent):
                return True
        return False
