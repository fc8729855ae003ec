"""JSON-RPC 2.0 without I/O: what is said, never how it travels.

`wire` holds the immutable objects both sides of the house exchange, `framing` cuts a byte stream
into frames, `codec` turns a frame into an object and back, `peer` keeps ids, waiters and batches,
`dialect` names how one family of programs cancels. Nothing here knows asyncio, a clock or the
operating system: the caller moves the bytes and passes in what time it is.

Production and test use the same code; there is nothing to fake. `connection` drives it.
"""
