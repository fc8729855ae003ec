"""The transports: sockets, pipes, stream pairs, subprocesses, WebSockets and channels in memory.

None of them knows the protocol or another transport; `frames` is what those with bytes share.
"""
