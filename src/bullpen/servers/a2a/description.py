"""The description of all that is answered over HTTP: of one agent, or of all at the daemon's port.

Made when it is first asked for, and kept.
"""

import functools
from typing import Any

from bullpen.servers.a2a.openapi import document
from bullpen.servers.a2a.operations import DESCRIPTION, EXTERNAL, LISTING, SEED
from bullpen.servers.a2a.v1.operations import table

__all__ = ["describe"]


def describe(url: str, under: str = "") -> dict[str, Any]:
    """Return the description for who reaches an agent at an address; or all, each `under` a path.

    May take a moment.
    """
    return {**_document(under), "servers": [{"url": url}]}


@functools.cache
def _document(under: str) -> dict[str, Any]:
    a2a = table()
    general = (DESCRIPTION, LISTING) if under else (DESCRIPTION,)
    operations = (*general, *SEED, *EXTERNAL, *a2a.operations)
    return document(operations, a2a.schemas, url="", under=under)
