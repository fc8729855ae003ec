"""The rules of a room as a file that people write: `policy.toml`.

boss = "grand_boss"                  # the only one who speaks with the user

[agents.coding_specialist]
peers = ["middle_manager"]           # with whom it exchanges messages, in both directions

[agents.middle_manager]
authority = "boss"
"""

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from bullpen.api.errors import SettingsError
from bullpen.mail.policy import Authority, Member, Policy, RateLimit

__all__ = ["read_policy"]


class _Agent(msgspec.Struct, forbid_unknown_fields=True):
    peers: list[str] | None = None
    authority: Literal["peer", "boss"] = "peer"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    boss: str | None = None
    max_hops: int = 16
    agents: dict[str, _Agent] = msgspec.field(default_factory=dict)


def read_policy(path: Path, rate: RateLimit) -> Policy:
    """Return the rules in a file; those of a room without any if there is none. It blocks.

    Raises:
        SettingsError: it cannot be read, or something in it is wrong.
    """
    try:
        said = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
    except FileNotFoundError:
        return Policy(rate=rate)
    except (OSError, ValueError) as error:  # among them what TOML and msgspec have to say
        raise SettingsError([f"{path}: {error}"]) from error
    members = {
        name: Member(
            peers=None if each.peers is None else frozenset(each.peers),
            authority=Authority[each.authority.upper()],
        )
        for name, each in said.agents.items()
    }
    return Policy(
        members=members,
        boss=said.boss,
        max_hops=said.max_hops,
        rate=rate,
    )
