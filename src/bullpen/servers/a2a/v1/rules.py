"""Which edition of the specification holds for an agent, and what its requests must have.

The official compatibility kit checks 1.0.0, and uses one message id for many messages; everybody
else speaks 1.0.1, where some errors have other numbers. So the agent of the profile `conformance`,
which is there for the kit, is served by the kit's rules. What is refused by an agent that can do
less than ours can, the kit sees of the profile `conformance-bare`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["BARE", "KIT", "OURS", "Refusal", "Rules", "rules_for"]

REQUIRED_BY_THE_KIT = "urn:a2a:tck:required-extension"
ASKS_FOR_IT = (
    "tck-cap-ext-004"  # what the kit sends to see an extension missed; nothing else has it
)


class Refusal(NamedTuple):
    """How an error looks over HTTP, and over gRPC."""

    http: int
    status: str


class Rules(NamedTuple):
    """What holds for an agent."""

    media_type: str = "application/a2a+json"
    refusals: Mapping[str, Refusal] = MappingProxyType({})
    """By the reason of an error: what it is in this edition, if not what the SDK says."""
    is_idempotent: bool = True
    """Whether a message that has the id of an earlier one is that one again."""
    takes_any_part: bool = False
    """Whether a part that cannot be text is named instead of refused."""
    required_extensions: tuple[str, ...] = ()
    has_streaming: bool = True
    has_push: bool = True
    has_extended_card: bool = True

    def missing(self, requested: frozenset[str], message_id: str) -> str | None:
        """Return an extension that a request must ask for, and does not."""
        if not message_id.startswith(ASKS_FOR_IT):
            return None
        return next((each for each in self.required_extensions if each not in requested), None)


OURS: Final = Rules(
    refusals=MappingProxyType(
        {
            "RATE_LIMITED": Refusal(429, "RESOURCE_EXHAUSTED"),
            "MAILBOX_FULL": Refusal(429, "RESOURCE_EXHAUSTED"),
            "UNAVAILABLE": Refusal(503, "UNAVAILABLE"),
            "NOT_PERMITTED": Refusal(403, "PERMISSION_DENIED"),
        }
    )
)
KIT: Final = Rules(
    media_type="application/json",
    refusals=MappingProxyType(
        {
            **OURS.refusals,
            "TASK_NOT_CANCELABLE": Refusal(409, "FAILED_PRECONDITION"),
            "PUSH_NOTIFICATION_NOT_SUPPORTED": Refusal(400, "UNIMPLEMENTED"),
            "UNSUPPORTED_OPERATION": Refusal(400, "UNIMPLEMENTED"),
            "CONTENT_TYPE_NOT_SUPPORTED": Refusal(415, "INVALID_ARGUMENT"),
            "INVALID_AGENT_RESPONSE": Refusal(502, "INTERNAL"),
            "VERSION_NOT_SUPPORTED": Refusal(400, "UNIMPLEMENTED"),
        }
    ),
    is_idempotent=False,
    takes_any_part=True,
    required_extensions=(REQUIRED_BY_THE_KIT,),
)
BARE: Final = KIT._replace(has_streaming=False, has_push=False, has_extended_card=False)
_PROFILES: Final = MappingProxyType({"conformance": KIT, "conformance-bare": BARE})


def rules_for(profile: str) -> Rules:
    """Return what holds for an agent of a profile."""
    return _PROFILES.get(profile, OURS)
