"""What an agent says of itself: its card, in the strict form of 1.0 and with that of 0.3 merged in.

The strict one has no field that 1.0 does not know, and is what everybody gets; a client of 0.3
cannot read it, and asks for the other by its version or its address. It decides, and does nothing.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict

from bullpen.api.talk import Contact
from bullpen.model.states import Activity
from bullpen.model.version import VERSION
from bullpen.servers.a2a.v1.mapping import PRIORITY
from bullpen.servers.a2a.v1.rules import Rules

__all__ = [
    "JSONRPC",
    "REST",
    "card_of",
    "entity_tag",
    "extended_card_of",
    "merged",
    "strict",
    "with_old_interfaces",
]

JSONRPC = "a2a/jsonrpc"
REST = "a2a/rest"
"""Where the two bindings are, below an agent's address."""

STATUS = "urn:bullpen:status:v1"
MODES = ("text/plain", "application/json")
_SKILLS = {
    "claude": "Claude Code",
    "codex": "Codex",
    "copilot": "Copilot CLI",
    "gemini": "Gemini CLI",
    "opencode": "opencode",
}


def card_of(
    contact: Contact, base_url: str, rules: Rules, *, grpc: str = "", needs_token: bool = False
) -> pb.AgentCard:
    """Return the public card of an agent whose address ends in a slash."""
    card = pb.AgentCard(
        name=contact.name,
        description=_description(contact),
        version=VERSION,
        supported_interfaces=_interfaces(base_url, grpc),
        capabilities=pb.AgentCapabilities(
            streaming=rules.has_streaming,
            push_notifications=rules.has_push,
            extended_agent_card=rules.has_extended_card,
            extensions=_extensions(rules),
        ),
        default_input_modes=MODES,
        default_output_modes=MODES,
        skills=_skills(contact),
    )
    card.security_schemes["bearer"].http_auth_security_scheme.CopyFrom(
        pb.HTTPAuthSecurityScheme(scheme="Bearer", bearer_format="opaque")
    )
    if needs_token:
        card.security_requirements.add().schemes["bearer"].CopyFrom(pb.StringList())
    return card


def extended_card_of(card: pb.AgentCard, contact: Contact) -> pb.AgentCard:
    """Return the card for who may read: it tells what the agent is doing."""
    extended = pb.AgentCard()
    extended.CopyFrom(card)
    status = extended.capabilities.extensions.add(
        uri=STATUS, description="what the agent is doing, as of when this card was asked for"
    )
    status.params.update(
        {
            "activity": contact.activity.value,
            "status": contact.status,
            "isPresent": contact.is_present,
            "waiting": contact.waiting,
            "workingOn": contact.working_on or "",
        }
    )
    return extended


def strict(card: pb.AgentCard) -> dict[str, Any]:
    """Return a card as JSON that has nothing 1.0 does not know."""
    return dict(MessageToDict(card))


def merged(card: pb.AgentCard) -> dict[str, Any]:
    """Return a card as JSON that clients of 0.3 can read as well."""
    told = strict(card)
    urls = {each["protocolBinding"]: each["url"] for each in told["supportedInterfaces"]}
    needed = {"security": [{"bearer": list[str]()}]} if card.security_requirements else {}
    return {
        **told,
        **needed,
        "protocolVersion": "0.3.0",
        "url": urls["JSONRPC"],
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [
            {"url": url, "transport": binding} for binding, url in urls.items()
        ],
        "supportsAuthenticatedExtendedCard": True,
        "securitySchemes": {"bearer": {"type": "http", "scheme": "Bearer"}},
    }


def with_old_interfaces(card: pb.AgentCard) -> pb.AgentCard:
    """Return a card that says of its interfaces that 0.3 is spoken there: else 0.3 has no card."""
    told = pb.AgentCard()
    told.CopyFrom(card)
    for each in told.supported_interfaces:
        each.protocol_version = "0.3"
    return told


def entity_tag(card: dict[str, Any]) -> str:
    """Return a tag that is the same as long as the card is."""
    return f'"{hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()[:32]}"'


def _interfaces(base_url: str, grpc: str) -> list[pb.AgentInterface]:
    places = [("JSONRPC", base_url + JSONRPC), ("HTTP+JSON", base_url + REST)]
    if grpc:
        places.append(("GRPC", grpc))
    return [
        pb.AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0")
        for binding, url in places
    ]


def _extensions(rules: Rules) -> list[pb.AgentExtension]:
    priority = pb.AgentExtension(
        uri=PRIORITY,
        description="a message's priority, from 1 to 5, in its metadata; 5 interrupts the agent",
    )
    priority.params.update({"minimum": 1, "maximum": 5, "default": 3, "interrupts": 5})
    required = [pb.AgentExtension(uri=uri, required=True) for uri in rules.required_extensions]
    return [priority, *required]


def _description(contact: Contact) -> str:
    program = _SKILLS.get(contact.provider.value, contact.profile or "a program")
    absent = "" if contact.is_present else "; it has ended, and what is sent to it waits"
    return f"{program} in a terminal, reached through bullpen{absent}"


def _skills(contact: Contact) -> Sequence[pb.AgentSkill]:
    program = _SKILLS.get(contact.provider.value)
    skills = [
        pb.AgentSkill(
            id="chat",
            name="Chat",
            description="reads a message and answers it, one message after the other",
            tags=["chat", contact.provider.value],
        ),
        pb.AgentSkill(
            id="interrupt",
            name="Interrupt",
            description="stops what it is doing for a message of priority 5",
            tags=["control", "priority"],
        ),
    ]
    if program is not None:
        skills.append(
            pb.AgentSkill(
                id="code",
                name="Code",
                description=f"works on code in its directory, as {program} does",
                tags=["code", contact.provider.value],
            )
        )
    if contact.activity is Activity.EXITED:
        return skills[:1]
    return skills
