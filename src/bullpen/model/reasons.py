"""Why something is refused: one table of words and numbers for logs, counters and the wire."""

from enum import IntEnum

__all__ = ["Reason"]


class Reason(IntEnum):
    """Why something was refused. The names are the ones of the seed; the numbers are ours."""

    INVALID_SOURCE_EVENT = -32010
    MISSING_EVENT_TIME = -32011
    SOURCE_INADMISSIBLE = -32012
    SOURCE_RANK_SUPPRESSED = -32013
    LATE_EVENT = -32014
    BINDING_CONFLICT = -32015
    SIGNATURE_INCONCLUSIVE = -32016
    SIGNATURE_GUARD_REJECTED = -32017
    INVALID_CURSOR = -32020
    ACK_TIMEOUT = -32021
    ACK_RETRY_EXHAUSTED = -32022
    UNKNOWN_DELIVERY_TOKEN = -32023
    PEER_UID_MISMATCH = -32024
    SOURCE_REGISTRY_MISS = -32025
    RUNTIME_NONCE_MISMATCH = -32026
    PROTOCOL_VERSION_MISMATCH = -32027
    SOURCE_NOT_ACTIVE = -32028
    SOURCE_REVOKED = -32029
    BINDING_CAS_CONFLICT = -32030
    REWIND_WINDOW_EXCEEDED = -32031
    SLO_BREACH = -32032
    AGENT_NOT_FOUND = -32040
    AGENT_AMBIGUOUS = -32041
    ALERT_NOT_FOUND = -32042
    SNAPSHOT_NOT_FOUND = -32043
    DRY_RUN_REQUIRED = -32044
    SNAPSHOT_INVALID = -32045
    STORE_UNAVAILABLE = -32046

    @property
    def word(self) -> str:
        """The name on the wire, in logs and in counters."""
        return self.name.lower()
