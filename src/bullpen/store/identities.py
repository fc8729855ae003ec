"""Who was launched through us, as rows."""

from datetime import datetime
from sqlite3 import Connection

from bullpen.model.identities import Identity
from bullpen.model.states import Provider
from bullpen.store.database import Database
from bullpen.store.encoding import encode_time

__all__ = ["Identities"]


class Identities:
    """The identities in a database that is of the newest schema.

    Every call raises `StoreError` if it could not be done; then nothing was changed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def realm(self, new: str) -> str:
        """Return what the room is called; the new name if it has none."""

        def work(connection: Connection) -> str:
            found = connection.execute("SELECT realm FROM realm_v1").fetchone()
            if found is None:
                connection.execute("INSERT INTO realm_v1 VALUES (?)", (new,))
            return new if found is None else str(found[0])

        return await self._database.write(work)

    async def all(self) -> tuple[Identity, ...]:
        """Return all that are known."""
        query = "SELECT secret_hash, name, provider, profile, minted_at, ended_at FROM identity_v1"
        return await self._database.read(
            lambda connection: tuple(_identity(row) for row in connection.execute(query))
        )

    async def save(self, identity: Identity) -> None:
        """Keep one, new or changed."""
        row = (
            identity.secret_hash,
            identity.name,
            identity.provider.value,
            identity.profile,
            encode_time(identity.minted_at),
            None if identity.ended_at is None else encode_time(identity.ended_at),
        )
        query = "INSERT OR REPLACE INTO identity_v1 VALUES (?, ?, ?, ?, ?, ?)"
        await self._database.write(lambda connection: connection.execute(query, row))

    async def forget(self, before: datetime) -> None:
        """Forget those who ended before a time."""
        query = "DELETE FROM identity_v1 WHERE ended_at < ?"
        moment = encode_time(before)
        await self._database.write(lambda connection: connection.execute(query, (moment,)))


def _identity(row: tuple[str, str, str, str, str, str | None]) -> Identity:
    return Identity(
        secret_hash=row[0],
        name=row[1],
        provider=Provider(row[2]),
        profile=row[3],
        minted_at=datetime.fromisoformat(row[4]),
        ended_at=None if row[5] is None else datetime.fromisoformat(row[5]),
    )
