"""Why a turn ended with an error: refused for usage, or for anything else."""

import re
from typing import Any, Final

from bullpen.agents.providers.codex.facts import clip, text

__all__ = ["failed_turn"]

# As Codex words them, with the status of the last of several attempts. A bare number is no sign:
# an error may quote anything.
_RATE_LIMITED: Final = re.compile(
    r"status:? 429\b|\b429 Too Many Requests\b|hit your usage limit"
    r"|\busage_limit_reached\b|\brate_limit_exceeded\b|\binsufficient_quota\b",
    re.IGNORECASE,
)
_TOO_MANY_REQUESTS: Final = 429


def failed_turn(message: object, info: object = None) -> tuple[str, str]:
    """Return the event type and the message of a turn that ended with an error.

    `info` is Codex's own name for the error, in the spelling of the app server
    (`usageLimitExceeded`) or of its files (`usage_limit_exceeded`), with or without details.
    """
    is_rate_limited = _names_rate_limit(info) or _RATE_LIMITED.search(text(message)) is not None
    return ("turn.rate_limited" if is_rate_limited else "turn.failed"), clip(message)


def _names_rate_limit(info: Any) -> bool:
    if isinstance(info, str):
        return info.replace("_", "").casefold() == "usagelimitexceeded"
    if isinstance(info, dict):
        return any(
            _names_rate_limit(name) or _status(details) == _TOO_MANY_REQUESTS
            for name, details in info.items()
        )
    return False


def _status(details: object) -> object:
    if not isinstance(details, dict):
        return None
    return details.get("httpStatusCode", details.get("http_status_code"))
