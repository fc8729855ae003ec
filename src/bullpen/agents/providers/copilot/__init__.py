"""GitHub Copilot CLI in server mode: many sessions with one process over one connection.

`CopilotGateway` owns the process and its router; `CopilotSession` is one conversation. The rest of
the house imports these two and never the router under them.
"""

from bullpen.agents.providers.copilot.gateway import CopilotGateway
from bullpen.agents.providers.copilot.session import CopilotSession, Tool

__all__ = ["CopilotGateway", "CopilotSession", "Tool"]
