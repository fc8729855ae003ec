"""Doors for others: MCP for agents that call tools. They know the daemon only through `api`."""
