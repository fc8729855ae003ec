"""Who speaks: by the secret an agent was given when it was launched, never by what it says.

A secret names the room it is from, so that one from elsewhere, one whose agent has ended and one
that nobody was ever given are told apart. Without a secret a caller is the user, who owns the
socket; but not if its process was started by an agent: what an agent runs speaks for the agent.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import msgspec

from bullpen.api.errors import ApiError
from bullpen.mail.policy import USER
from bullpen.model.identities import Identity
from bullpen.model.reasons import Reason
from bullpen.model.states import Provider
from bullpen.store.identities import Identities

__all__ = ["IdentityBook"]

MARK = "bp"
KEPT = timedelta(days=30)

Now = Callable[[], datetime]


class IdentityBook:
    """All that were given a secret. Made by `open`."""

    def __init__(self, kept: Identities, realm: str, known: Iterable[Identity], now: Now) -> None:
        self._kept = kept
        self._realm = realm
        self._known = {each.secret_hash: each for each in known}
        self._now = now
        self._lost: set[str] = set()  # those that were taken for ended without having said so

    @classmethod
    async def open(cls, kept: Identities, now: Now) -> "IdentityBook":
        """Read what is known from before."""
        await kept.forget(now() - KEPT)
        realm = await kept.realm(secrets.token_hex(4))
        return cls(kept, realm, await kept.all(), now)

    @property
    def speaking(self) -> frozenset[str]:
        """Those whose secret is worth something."""
        return frozenset(each.name for each in self._known.values() if each.ended_at is None)

    @property
    def names(self) -> frozenset[str]:
        """Everybody who was ever given a secret, and is remembered."""
        return frozenset(each.name for each in self._known.values())

    def find(self, name: str) -> Identity | None:
        """Return the last one of a name."""
        found = [each for each in self._known.values() if each.name == name]
        return max(found, key=lambda each: each.minted_at, default=None)

    async def mint(self, name: str, provider: Provider, profile: str) -> str:
        """Return a new secret for an agent. Those it had before are worth nothing any more."""
        await self.end(name)
        secret = f"{MARK}_{self._realm}_{secrets.token_urlsafe(24)}"
        identity = Identity(
            secret_hash=_hash(secret),
            name=name,
            provider=provider,
            profile=profile,
            minted_at=self._now(),
        )
        await self._keep(identity)
        return secret

    async def end(self, name: str, *, is_lost: bool = False) -> None:
        """Let an agent's secret be worth nothing any more; one that `is_lost` may come back."""
        for each in tuple(self._known.values()):
            if each.name == name:
                self._lost.discard(each.secret_hash)
            if each.name == name and each.ended_at is None:
                await self._keep(msgspec.structs.replace(each, ended_at=self._now()))
                if is_lost:
                    self._lost.add(each.secret_hash)

    async def revive(self, secret: str) -> Identity:
        """Return whose secret it is, also if we only took its agent for ended.

        Raises as `who` does: one that has said so, or whose name is another's by now, has ended.
        """
        identity = self._look_up(secret)
        if identity.secret_hash in self._lost:
            identity = msgspec.structs.replace(identity, ended_at=None)
            await self._keep(identity)
            self._lost.discard(identity.secret_hash)
        self.who(secret)
        return identity

    def who(self, secret: str) -> str:
        """Return whose secret it is; without one it is the user.

        Raises:
            ApiError: nobody has such a secret, or nobody any more, or nobody here.
        """
        if not secret:
            return USER
        identity = self._look_up(secret)
        if identity.ended_at is not None:
            raise ApiError(
                Reason.IDENTITY_EXPIRED,
                f"the secret is that of {identity.name}, which has ended",
                agent_id=identity.name,
            )
        return identity.name

    def _look_up(self, secret: str) -> Identity:
        identity = self._known.get(_hash(secret))
        if identity is not None:
            return identity
        mark, _, rest = secret.partition("_")
        if mark == MARK and "_" in rest and rest.partition("_")[0] != self._realm:
            raise ApiError(
                Reason.IDENTITY_FOREIGN,
                "the secret was given by another daemon; the agent is to be started through this "
                "one, or BULLPEN_SECRET to be unset",
            )
        raise ApiError(
            Reason.IDENTITY_UNKNOWN,
            "nobody was given this secret; start the agent through bullpen, or unset "
            "BULLPEN_SECRET to speak as yourself",
        )

    async def _keep(self, identity: Identity) -> None:
        await self._kept.save(identity)
        self._known[identity.secret_hash] = identity


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
