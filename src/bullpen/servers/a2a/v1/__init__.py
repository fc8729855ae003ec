"""A2A 1.0 (and 0.3) for one agent, by the official SDK's types and bindings.

`routes` is what an app mounts. The requests themselves are answered by `handler.Handler`, straight
from the room: the SDK's own handler, queues and task stores are not used. `mapping` says what our
tasks are in A2A's words, `card` what an agent says of itself, `events` what is streamed, `push`
what is posted to who asked for it, and `rules` which of the specification's editions holds.
"""

import os

# Spans nobody collects cost a third of all requests; the SDK decides when it is first imported.
os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")
