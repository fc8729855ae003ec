"""Codex: what its app server, its hooks, its session files and `codex exec --json` say.

Everything here is pure: JSON in, `CodexFact` out. Who reads the files and holds the connections is
`bullpen.observe.sources`.

Of Codex's threads, those are left out that nobody works in: the hidden one that thinks of a title,
and those of subagents, whose work is part of a turn of the thread that began them.
"""
