"""Whom to believe when two sources of a program differ: the one that is nearer to it."""

from bullpen.model.states import Provider, SourceKind

__all__ = ["rank"]

_RANKS: dict[Provider, tuple[SourceKind, ...]] = {
    Provider.CLAUDE: (
        SourceKind.CLAUDE_HOOKS,
        SourceKind.CLAUDE_SESSIONS,
        SourceKind.CLAUDE_TRANSCRIPT,
    ),
    Provider.CODEX: (
        SourceKind.CODEX_APPSERVER,
        SourceKind.CODEX_HOOKS,
        SourceKind.CODEX_ROLLOUT,
        SourceKind.CODEX_CAPTURE,
    ),
}
_LAST = 99


def rank(provider: Provider, kind: SourceKind) -> int:
    """Return a place, from 0 for the first. Whoever is in no table comes before the poller."""
    if kind is SourceKind.POLLER:
        return _LAST
    kinds = _RANKS.get(provider, ())
    return kinds.index(kind) if kind in kinds else 0
