"""Whoever looks at one part of the world and says what it sees: `Source`, one module per kind.

A source emits observations and does nothing else: it neither decides who is right nor remembers
what was said. `serve` gives it a buffer, a health and a connection on which `source.pull_events` is
served: over a channel in the daemon's process, over a Unix socket in one of its own. Same code.
"""
