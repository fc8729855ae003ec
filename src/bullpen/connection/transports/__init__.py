"""The transports: sockets, pipes, streams, programs, our own stdio, WebSockets, channels in memory.

None of them knows the protocol. `frames` is what those with bytes share, `descriptor` those with
file descriptors, `process` those that start a program; `stream` is also under WebSockets.
"""
