"""For our tests and those of our users: doubles, contract suites, and the real programs.

`create_mock_transport` puts a test in the place of a connection's peer, `ManualClock` lets its time
pass, `byte_pair` is a stream in memory. `conformance` holds the suite for transports, `models` a
server that plays the model of any provider, `programs` the agents themselves.
"""

from bullpen.testing.clock import ManualClock
from bullpen.testing.transports import (
    MemoryTransport,
    MockPeer,
    MockTransport,
    Recorder,
    UnexpectedMessage,
    byte_pair,
    create_mock_transport,
)

__all__ = [
    "ManualClock",
    "MemoryTransport",
    "MockPeer",
    "MockTransport",
    "Recorder",
    "UnexpectedMessage",
    "byte_pair",
    "create_mock_transport",
]
