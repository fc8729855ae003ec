"""What can go wrong with the store.

BullpenError
└── StoreError              the store did not do what it was asked, and wrote nothing of it
    ├── StoreClosed         it has been closed
    ├── StoreBusy           too many writes wait already
    ├── StoreLocked         another process holds the database
    ├── StoreFull           there is no room on the disk
    ├── StoreUnavailable    the system does not let us read or write the file
    ├── StoreCorrupt        the file is damaged, or not ours
    ├── StoreTooNew         it was written by a later version of bullpen
    ├── StaleVersion        somebody has written a later state
    ├── SnapshotNotFound    there is no such snapshot
    └── SnapshotInvalid     it is not what was saved
"""

from bullpen.errors import BullpenError

__all__ = [
    "SnapshotInvalid",
    "SnapshotNotFound",
    "StaleVersion",
    "StoreBusy",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreTooNew",
    "StoreUnavailable",
]


class StoreError(BullpenError):
    """The store did not do what it was asked. Of a write nothing is kept."""


class StoreClosed(StoreError):
    """The store has been closed. What was written before is kept."""

    def __init__(self) -> None:
        super().__init__("the store is closed")


class StoreBusy(StoreError):
    """Too much waits for its turn, and did so for a while. This has not been begun; try later."""

    def __init__(self, limit: int, seconds: float) -> None:
        super().__init__(f"{limit} reads or writes have been waiting for {seconds:g} s")
        self.limit = limit
        self.seconds = seconds


class _FileError(StoreError):
    """Something is wrong with the file."""

    def __init__(self, statement: str, path: str, words: str) -> None:
        super().__init__(f"{path}: {statement}" + (f": {words}" if words else ""))
        self.path = path
        self.words = words


class StoreLocked(_FileError):
    """Another process holds the database and did not let go in time. Try again when it has."""

    def __init__(self, path: str, words: str = "") -> None:
        super().__init__("another process holds the database", path, words)


class StoreFull(_FileError):
    """There is no room for what should be written. The same write works once there is."""

    def __init__(self, path: str, words: str = "") -> None:
        super().__init__("there is no room on the disk", path, words)


class StoreUnavailable(_FileError):
    """The system does not let us read or write the file. Nothing that is in it was harmed."""

    def __init__(self, path: str, words: str = "") -> None:
        super().__init__("cannot be read or written", path, words)


class StoreCorrupt(_FileError):
    """The file is damaged or is no database of ours. It can be put aside and a new one begun."""

    def __init__(self, path: str, words: str = "") -> None:
        super().__init__("is damaged or no database of bullpen", path, words)


class StoreTooNew(StoreError):
    """A later version of bullpen wrote it. It was not touched; use that version."""

    def __init__(self, path: str, version: int, known: int) -> None:
        super().__init__(f"{path}: has schema version {version}; this bullpen knows up to {known}")
        self.path = path
        self.version = version
        self.known = known


class StaleVersion(StoreError):
    """A state as late or later is stored. Read it, decide again, and write the next version."""

    def __init__(self, key: str, stored: int, given: int) -> None:
        super().__init__(f"{key} is at version {stored}; version {given} comes too late")
        self.key = key
        self.stored = stored
        self.given = given


class SnapshotNotFound(StoreError):
    """There is no such snapshot, or not any more: only the newest are kept."""

    def __init__(self, snapshot_id: str) -> None:
        super().__init__(f"there is no snapshot {snapshot_id}")
        self.snapshot_id = snapshot_id


class SnapshotInvalid(StoreError):
    """What is stored is not what was saved. Another snapshot may be whole."""

    def __init__(self, snapshot_id: str, problem: str) -> None:
        super().__init__(f"snapshot {snapshot_id} cannot be used: {problem}")
        self.snapshot_id = snapshot_id
        self.problem = problem
