"""Who was launched through us."""

from datetime import datetime

import msgspec

from bullpen.model.states import Provider

__all__ = ["Identity"]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that was given a secret, of which only the hash is kept."""

    secret_hash: str
    name: str
    provider: Provider
    profile: str
    minted_at: datetime
    ended_at: datetime | None = None
