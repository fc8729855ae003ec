"""The MCP server: agents, and any other MCP peer, talk to each other through its tools.

It runs once, in the daemon's process, and knows the daemon through `api.Client` alone. `serve` is
all there is to start. A peer comes in over a Unix socket (`bullpen mcp` is the pump to it) or over
HTTP on loopback. `tools` does what is asked, whoever asks; `raw` answers peers that never said
`initialize` in the seed's plain shapes; all others are served by the official SDK, in `sdk`, which
is imported by the first of them: it takes a second and 70 MB.
"""

from bullpen.servers.mcp.serve import OpenClient, serve

__all__ = ["OpenClient", "serve"]
