"""Gemini CLI: what it tells its hooks, and what it writes into the record of a conversation."""
