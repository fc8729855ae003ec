"""Speaking to agents that serve A2A: on this machine beside us, or anywhere else.

`card` reads what an agent says of itself, which decides the dialect: the seed's paths, A2A 0.3 or
A2A 1.0. `messages` writes and reads what is said in each of them; both are pure. `peer` speaks to
one agent, `client` to all that are known, and `external` keeps those that somebody has added.
"""
