"""Claude Code: what it tells its hooks, and what is in the files it keeps.

All of it is pure: `hooks` for the payloads of its hooks, `sessions` for the state file of each
process, `transcript` for the record of each session, `paths` for where those are. Whoever reads
the files and takes the deliveries is in `bullpen.observe.sources`. Written against version 2.1.197;
what a later one says in other words is left aside, never guessed at.
"""
