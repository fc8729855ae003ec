"""What a pane shows: which agent runs in it, and what that agent is doing."""

from collections.abc import Mapping

import msgspec

from bullpen.model.states import Activity, Provider
from bullpen.observe.signature import PaneFacts, Signature, classify_pane
from bullpen.terminal.rules.engine import Verdict, decide
from bullpen.terminal.rules.format import ProviderRules
from bullpen.terminal.rules.screen import Screen

__all__ = ["PaneVerdict", "judge_pane", "judge_screen"]


class PaneVerdict(msgspec.Struct, frozen=True):
    """Who is in a pane and what it does. Without an agent there is nothing to do."""

    signature: Signature
    verdict: Verdict | None

    @property
    def provider(self) -> Provider | None:
        """Whose program it is, if it is an agent."""
        return self.signature.provider

    @property
    def activity(self) -> Activity | None:
        """What the agent is doing, if there is one."""
        return self.verdict.activity if self.verdict else None

    @property
    def is_ready(self) -> bool:
        """A message could be typed and submitted now."""
        return self.verdict is not None and self.verdict.ready


def judge_pane(
    facts: PaneFacts,
    screen: Screen,
    rules: Mapping[Provider, ProviderRules],
    *,
    version: str = "",
) -> PaneVerdict:
    """Find out who is in a pane, then read the screen by that program's rules."""
    programs = ((provider, each.program) for provider, each in rules.items())
    return judge_screen(classify_pane(facts, programs), screen, rules, version=version)


def judge_screen(
    signature: Signature,
    screen: Screen,
    rules: Mapping[Provider, ProviderRules],
    *,
    version: str = "",
) -> PaneVerdict:
    """Read the screen of a program that is known."""
    if signature.provider is None or signature.provider not in rules:
        return PaneVerdict(signature, None)
    return PaneVerdict(signature, decide(screen, rules[signature.provider], version=version))
