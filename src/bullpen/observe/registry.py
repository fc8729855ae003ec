"""Which sources may deliver, without I/O.

A source says hello and is *pending*. It is *active* once it has been heard of again: its first pull
succeeded, or, if it is one that delivers itself, with the hello. Not heard of for half a minute it
is *stale*, until it says hello or shows a sign of life. A source is *revoked* for as long as this
run of the daemon lasts: whoever comes back after a restart has to know the new nonce.
"""

from datetime import datetime, timedelta

import msgspec

from bullpen.model.reasons import Reason
from bullpen.model.sources import SourceRegistration
from bullpen.model.states import RegistryState, SourceKind
from bullpen.observe.errors import Refused

__all__ = ["HEARTBEAT_TIMEOUT", "Registry"]

HEARTBEAT_TIMEOUT = timedelta(seconds=30)


class Registry:
    """The sources that have said hello to one run of the daemon."""

    def __init__(self, *, nonce: str, owner_uid: int, protocol_version: int) -> None:
        self._nonce = nonce
        self._owner_uid = owner_uid
        self._protocol_version = protocol_version
        self._sources: dict[SourceKind, SourceRegistration] = {}
        self._local: set[SourceKind] = set()  # ours, in this process: alive as long as we are

    def hello(
        self,
        kind: SourceKind,
        now: datetime,
        *,
        nonce: str,
        protocol_version: int,
        peer_uid: int,
        socket_path: str | None = None,
    ) -> SourceRegistration:
        """Register a source, or note that one has come back or moved to another socket.

        Raises:
            Refused: it is another user's, belongs to another run, speaks another version, or has
                been revoked.
        """
        self._check_peer(nonce, protocol_version, peer_uid)
        known = self._sources.get(kind)
        if known is not None and known.state is RegistryState.REVOKED:
            raise _revoked(kind)
        is_new = known is None or known.state is RegistryState.PENDING
        is_pending = is_new and socket_path is not None
        return self._keep(
            SourceRegistration(
                source_kind=kind,
                state=RegistryState.PENDING if is_pending else RegistryState.ACTIVE,
                owner_uid=peer_uid,
                socket_path=socket_path,
                protocol_version=protocol_version,
                registered_at=now if known is None else known.registered_at,
                last_heartbeat_at=now,
            )
        )

    def register(self, kind: SourceKind, now: datetime, *, is_pulled: bool) -> SourceRegistration:
        """Register a source of our own, which need not say hello.

        One that is not pulled from delivers from within this process, and is never stale.

        Raises:
            Refused: it has been revoked.
        """
        known = self._sources.get(kind)
        self._local.discard(kind)
        registration = self.hello(
            kind,
            now,
            nonce=self._nonce,
            protocol_version=self._protocol_version,
            peer_uid=self._owner_uid,
        )
        if not is_pulled:
            self._local.add(kind)
            return registration
        if known is not None and known.state is not RegistryState.PENDING:
            return registration  # it has moved
        return self._keep(msgspec.structs.replace(registration, state=RegistryState.PENDING))

    def heartbeat(self, kind: SourceKind, now: datetime) -> SourceRegistration:
        """Note that a source says it is there.

        Raises:
            Refused: it never said hello, or has been revoked.
        """
        known = self._find(kind)
        state = known.state
        if state is RegistryState.STALE or known.socket_path is None:
            state = RegistryState.ACTIVE
        return self._keep(msgspec.structs.replace(known, state=state, last_heartbeat_at=now))

    def pulled(self, kind: SourceKind, now: datetime) -> SourceRegistration:
        """Note that a source has answered a pull.

        Raises:
            Refused: it never said hello, or has been revoked.
        """
        known = self._find(kind)
        return self._keep(
            msgspec.structs.replace(known, state=RegistryState.ACTIVE, last_heartbeat_at=now)
        )

    def revoke(self, kind: SourceKind) -> SourceRegistration:
        """Take nothing more from a source.

        Raises:
            Refused: it never said hello.
        """
        known = self._sources.get(kind)
        if known is None:
            raise _unknown(kind)
        return self._keep(msgspec.structs.replace(known, state=RegistryState.REVOKED))

    def sweep(self, now: datetime) -> tuple[SourceKind, ...]:
        """Make stale who was not heard of for too long; return whom that befell."""
        silent = tuple(
            kind
            for kind, known in self._sources.items()
            if known.state in (RegistryState.ACTIVE, RegistryState.PENDING)
            and kind not in self._local
            and now - known.last_heartbeat_at > HEARTBEAT_TIMEOUT
        )
        for kind in silent:
            self._keep(msgspec.structs.replace(self._sources[kind], state=RegistryState.STALE))
        return silent

    def check(self, kind: SourceKind) -> None:
        """Make sure that a source may deliver.

        Raises:
            Refused: it never said hello, is not active, or has been revoked.
        """
        known = self._find(kind)
        if known.state is not RegistryState.ACTIVE:
            raise Refused(
                Reason.SOURCE_NOT_ACTIVE, f"{kind} is {known.state}", state=known.state.value
            )

    def is_local(self, kind: SourceKind) -> bool:
        """Whether it delivers from within this process."""
        return kind in self._local

    def get(self, kind: SourceKind) -> SourceRegistration | None:
        """Return what is known of a source."""
        return self._sources.get(kind)

    def list(self) -> tuple[SourceRegistration, ...]:
        """Return all of them, in the order of their first hello."""
        return tuple(self._sources.values())

    def _check_peer(self, nonce: str, protocol_version: int, peer_uid: int) -> None:
        if peer_uid != self._owner_uid:
            raise Refused(
                Reason.PEER_UID_MISMATCH, f"a source of uid {peer_uid}, not {self._owner_uid}"
            )
        if nonce != self._nonce:
            raise Refused(
                Reason.RUNTIME_NONCE_MISMATCH, "the nonce is of another run of the daemon"
            )
        if protocol_version != self._protocol_version:
            raise Refused(
                Reason.PROTOCOL_VERSION_MISMATCH,
                f"protocol version {protocol_version}, not {self._protocol_version}",
                supported=self._protocol_version,
            )

    def _find(self, kind: SourceKind) -> SourceRegistration:
        known = self._sources.get(kind)
        if known is None:
            raise _unknown(kind)
        if known.state is RegistryState.REVOKED:
            raise _revoked(kind)
        return known

    def _keep(self, registration: SourceRegistration) -> SourceRegistration:
        self._sources[registration.source_kind] = registration
        return registration


def _unknown(kind: SourceKind) -> Refused:
    return Refused(Reason.SOURCE_REGISTRY_MISS, f"{kind} has not said hello")


def _revoked(kind: SourceKind) -> Refused:
    return Refused(Reason.SOURCE_REVOKED, f"{kind} has been revoked")
