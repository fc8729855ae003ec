"""What we know of each agent program: how to start it, how to speak with it.

`providers/` holds one package per family of programs. It is not a second protocol stack: every
provider is a client of `bullpen.connection`.

Production: the real programs. In memory: `bullpen.testing.FakeCliServer`.
"""
