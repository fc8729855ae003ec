"""What bullpen promises, row by row; each row is quoted by at least one test.

A test says which rows it checks by `@pytest.mark.requirement("T-01", "L-3")`. That every row is
quoted and every quotation is a row is checked by `test_requirements.py`. A row's id is never
reused; a promise that is given up takes its row with it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["REQUIREMENTS"]

_CONNECTION = {
    # Layers and boundary
    "T-01": "One connection gives the same results over every transport.",
    "T-02": "Each request of a connection has an id of its own, and ids of two types never meet.",
    "T-03": "A response reaches the request that caused it, in whatever order responses arrive.",
    "T-04": "A method reaches the handler registered for it and no other.",
    "T-05": "Every error situation has the one outcome that the error table gives it.",
    "T-06": "A transport puts exactly the expected bytes on the wire.",
    "T-07": "Only byte transports serialize; over a channel no JSON is written or read.",
    "T-08": "Opening, closing and end of input look the same to the protocol on every transport.",
    "T-09": "Messages are immutable, transport-neutral and all that the two layers share.",
    "T-10": "Transports and protocol do not import each other.",
    # Parts of the protocol and of the transports
    "T-11": "A request waits for its response before it is sent, so none comes too early.",
    "T-12": "A response is routed to its waiter by id.",
    "T-13": "Requests and notifications reach the handlers with their method and raw params.",
    "T-14": "No waiter is left once all responses came, and an unknown id disturbs nothing.",
    "T-15": "Spawned work runs beside the messages, ends with the connection, and fails visibly.",
    "T-16": "A newline frame is one line of UTF-8 JSON with exactly one newline, its last byte.",
    "T-17": "A channel hands over the very object that was sent.",
    "T-18": "Frames parse alike however the stream is cut; CRLF and blank lines are tolerated.",
    "T-19": "What arrives over a channel is the object itself, in the order sent.",
    "T-20": "A transport moves any message unchanged and knows nothing of ids or methods.",
    "T-21": "An outgoing message passes protocol, transport and wire in this order.",
    "T-22": "An incoming message passes wire, transport, protocol and handler in this order.",
    # Transport interface
    "T-23": "A custom transport of some twenty lines passes the conformance suite.",
    "T-24": "A transport serves once; using it again raises a clear error.",
    "T-25": "What a transport started ends with its connection.",
    "T-26": "A transport sees messages only, never waiters or application types.",
    "T-27": "Opening a transport does not wait for a peer that stays silent.",
    # Implementations
    "T-28": "Any reader and writer pair makes a transport: streams, pipes, sockets.",
    "T-29": "A subprocess is spoken to over its stdio.",
    "T-30": "Two ends speak over TCP.",
    "T-31": "Two ends speak over a Unix socket, and a path too long for one is explained.",
    "T-32": "Any other byte stream works, such as a socketpair or a PTY.",
    "T-33": "A channel carries values that JSON cannot.",
    "T-34": "A channel has no way to fail at parsing.",
    "T-35": "Paired channel transports carry both ways, and closing one ends the other.",
    "T-36": "A mock transport tests a handler without I/O and controls the timing exactly.",
    # Construction
    "T-37": "Handlers are set up before and apart from the transport; one builder serves many.",
    "T-38": "A connection's name appears in its log records and task names.",
    "T-39": "A handler's parameter type selects the method; wrong params are refused, not fatal.",
    "T-40": "A notification handler is called and nothing is ever written back.",
    "T-41": "A catch-all handler sees every request and notification not claimed before it.",
    "T-42": "Serving returns at a clean end of input and raises at a failure.",
    "T-43": "Serving over a pair of streams is the same as serving over their transport.",
    "T-44": "The example of a stdio agent runs.",
    "T-45": "An in-process chain of rewriting proxies keeps order and serializes nothing.",
    "T-46": "Components on two sides of a network are served like any other.",
    "T-47": "A handler is written once and works over every transport.",
    "T-48": "The WebSocket transport is one module that changes nothing in the protocol.",
    "T-49": "The protocol is tested on the mock with exact timing and without a real clock.",
    "T-50": "A hop over a channel is at least five times cheaper than a hop over JSON.",
    "T-51": "A large params object crosses a channel without being copied.",
    "T-52": "The transport is chosen by an address alone, without a change of code.",
    "T-53": "Package and examples pass the strict type checker, the channel path included.",
    "T-54": "Tests of the protocol need no socket, pipe or subprocess.",
    "T-55": "The layers are kept apart by an import contract.",
    "T-56": "Actors, transports, the in-process transport and proxy chains are documented.",
    "T-57": "The chapters on architecture, proxies and chains have examples that run.",
}

_CONTRACT = {
    # Order
    "contract:O1": "Frames leave in call order, each whole, also when a caller is cancelled.",
    "contract:O2": "A reader that awaits no user code routes inbound messages in wire order.",
    "contract:O3": "Delivery is FIFO per session; sessions and request handlers run concurrently.",
    "contract:O4": "When a request returns, the notifications before its response are queued.",
    "contract:O5": "What a response installs is in effect before the next message is dispatched.",
    "contract:O6": "A handler may await requests; awaiting its own session's events is refused.",
    # Bounds
    "contract:B1": "Every queue is limited in bytes and count, and its statistics can be read.",
    "contract:B2": "A slow session delays no other session, no response and no close.",
    "contract:B3": "A session over its limit fails, coalesces or pauses, as its policy says.",
    "contract:B4": "Nothing is dropped silently or from the middle of a stream.",
    "contract:B5": "Sending waits above the mark, and the reader's own replies never block it.",
    "contract:B6": "A request over the limit is answered with the overload error.",
    # Cancellation and time
    "contract:C1": "Cancelling a caller frees its waiter, tells the peer, drops a late response.",
    "contract:C2": "Request timeout, closed connection and write timeout are different errors.",
    "contract:C3": "A cancelled inbound request is answered as its dialect wants: once, or never.",
    "contract:C4": "After a cancelled turn the next one is clean.",
    "contract:C5": "A proxy cancels hop by hop, with the next hop's own id.",
    # Close
    "contract:X1": "At close each waiter fails once with the first cause, and later calls at once.",
    "contract:X2": "What was received before the end is delivered before the error.",
    "contract:X3": "Closing is idempotent, bounded, and leaves no task, descriptor or process.",
    "contract:X4": "The peer's end of input does not keep our queued replies from being written.",
    # Identity
    "contract:I1": "String, integer and null ids are echoed verbatim; all others are refused.",
    "contract:I2": "Unknown, late and duplicate responses are counted and dropped.",
    "contract:I3": "Every inbound request gets exactly one response, however its handler ends.",
}

_ERRORS = {
    "error:invalid-json": "Invalid JSON is answered with -32700 unless it looks like a response.",
    "error:invalid-envelope": "JSON that is no envelope is answered with -32600 and survived.",
    "error:oversized": "An oversized frame is skipped unbuffered, answered with -32600, survived.",
    "error:bad-content-length": "A bad Content-Length header closes the connection.",
    "error:unknown-method": "An unknown method is answered with -32601 and its name.",
    "error:unknown-notification": "An unknown notification is ignored.",
    "error:bad-params": "Bad params are answered with -32602 and field paths, without values.",
    "error:rpc-error": "An RPC error raised by a handler is answered as it was given.",
    "error:internal": "Any other error is answered with -32603, its text only in debug mode.",
    "error:response-hook": "A failing response hook fails the local caller alone.",
    "error:unserializable": "A result that cannot be serialized is answered with -32603.",
    "error:spawned": "A failed spawned task is observed, and closes only when said to be fatal.",
}

_ROUTER = {
    # Principles
    "D-01": "Many sessions share one connection to one server process.",
    "D-02": "A session receives exactly its own events, in order.",
    "D-03": "A session that stops reading does not stop the others.",
    "D-04": "The cost of an event does not grow with the number of sessions.",
    "D-05": "Exactly one task reads, and nobody else can.",
    "D-06": "Concurrent writers never tear or interleave frames.",
    "D-07": "A blocked writing side does not keep events from arriving.",
    "D-08": "Whatever happens to one session's channel changes nothing for another.",
    "D-09": "A channel that is closed or dropped takes its route with it.",
    # Classification and routing
    "D-10": "A message with an id and no method settles the request of that id.",
    "D-11": "A tool call reaches the channel of its session only.",
    "D-12": "A notification is delivered to the route of its session.",
    "D-13": "Parallel creations each get their own session, however starts are permuted.",
    "D-14": "Every other session event reaches the channel of its session.",
    "D-15": "Messages are classified by a pure function, whatever their id and method.",
    "D-16": "Traffic for an unknown session disturbs nobody, and its requests are answered.",
    # MessageRouter
    "D-17": "Routes and pending requests can be counted and return to zero.",
    "D-18": "Spawning returns when connected, or fails with its own error and no process left.",
    "D-19": "A created session returns its id and a channel that holds its earliest events.",
    "D-20": "A thousand concurrent requests get their own shuffled responses.",
    "D-21": "A fire-and-forget request leaves nothing pending, and its response is dropped.",
    "D-22": "A response goes out once, with the id exactly as it came.",
    "D-23": "Deregistering is synchronous and idempotent.",
    "D-24": "The router lives while a channel does, and its process ends with it.",
    # SessionChannel, RoutedMessage, streaming
    "D-25": "A channel knows its session and works after the creator dropped the router.",
    "D-26": "Receiving keeps order, and two receivers on one channel are well defined.",
    "D-27": "Reading a turn calls back per piece and returns the whole text.",
    "D-28": "Reading for tools ends at idle or at a tool call and can be resumed.",
    "D-29": "A reading can be cancelled promptly.",
    "D-30": "An event is passed through untouched, with its type beside it.",
    "D-31": "A tool call has the wire's fields; missing ones are answered with an error.",
    "D-32": "The outcomes of a reading can be matched exhaustively.",
    "D-33": "A tool call in a plain reading is refused to the peer and the reading goes on.",
    "D-34": "A session error ends that session's reading with the peer's message.",
    "D-35": "An answer without deltas is given once, and one with them is not doubled.",
    # Flows
    "D-36": "A session's route exists before its creation returns.",
    "D-37": "A hundred parallel creations never confuse their sessions.",
    "D-38": "A failed creation leaves nothing behind, here or at the peer.",
    "D-39": "A request that cannot be sent raises and leaves nothing pending.",
    # Integration and errors
    "D-44": "Gateway, session and router are layers, and applications see the ports only.",
    "D-45": "When the reader ends, waiters of every kind fail once and promptly.",
    "D-46": "A creation that is never answered fails with an error of its own.",
    "D-47": "A request whose response can no longer come fails as stopped.",
    "D-48": "A crashed server is reported with its exit code and the tail of its stderr.",
    "D-49": "After the stop every call fails at once.",
    "D-50": "What arrived before the disconnect is delivered before the error.",
    "D-51": "Gateway, session, router, transport and errors are modules of their own.",
    "D-52": "Each way to stop has one documented error type under one base.",
    "D-53": "More sessions never mean more connections.",
}

_TRAPS = {
    # Routing and sessions
    "L-1": "A session is correlated by id, never by the order of its start.",
    "L-2": "A route exists before the next inbound message is dispatched.",
    "L-3": "Traffic that precedes the creation's response is held, bounded, and delivered.",
    "L-4": "A request for a session that is gone, or that cannot be parsed, is answered.",
    "L-5": "Closing a channel ends the session at the peer as well.",
    "L-6": "A creation or request abandoned after its success leaves nothing registered.",
    "L-7": "Concurrent first calls start one server.",
    "L-8": "A frame is built in one place and written in one piece.",
    "L-9": "A tool is seen to have run; text coming back is not taken as proof.",
    # Streams and turns
    "L-10": "A session runs one turn at a time.",
    "L-11": "The end of a turn comes in the same queue as its pieces.",
    "L-12": "A cancelled turn is aborted and drained, or its session replaced.",
    "L-13": "The text of a turn is given once, whichever events carry it.",
    "L-14": "Events of a closed session reach no other.",
    # Ordering and deadlock
    "L-15": "A handler awaiting a request on its own connection does not deadlock.",
    "L-16": "A response does not overtake the notifications before it.",
    "L-17": "A nested request does not wait for its own handler.",
    "L-18": "The documented order is the one observed from outside.",
    "L-19": "Code that consumes later traffic does not hold up the reader.",
    "L-20": "Any order of completion gives the same result.",
    # Closing
    "L-21": "The end of input is noticed while other senders are alive.",
    "L-22": "Closing keeps the first cause, and a late response closes nothing.",
    "L-23": "Queued writes are flushed at close, within a bound.",
    "L-24": "A channel's end does not depend on when Python collects it.",
    "L-25": "A process is ended with its whole group.",
    "L-26": "A child's exit is reported with its status and a bounded tail of stderr.",
    "L-27": "A handle that escaped does not keep the connection alive.",
    # Flow control and memory
    "L-28": "No piece of text is dropped, and none blocks a response.",
    "L-29": "A burst is survived, and an overflow ends with a reason.",
    "L-30": "Nothing grows with the number of requests served.",
    "L-31": "Bytes of cancelled writes count against the limit.",
    # Bytes and JSON
    "L-32": "A line over the limit is skipped to its end and never read as a message.",
    "L-33": "A frame stays whole when its writer is cancelled.",
    "L-34": "Deep nesting, huge integers and NaN do not end the connection.",
    "L-35": "A lone surrogate can be read and forwarded.",
    "L-36": "A frame that is no object does not end the connection.",
    "L-37": "True, 1 and 1.0 are not one id.",
    "L-38": "Content-Length is checked before it is believed.",
    "L-39": "A request that reuses one of our ids is not taken for a response.",
    "L-40": "A stray print does not reach the wire.",
    "L-41": "A queue can be closed on every supported Python.",
    "L-42": "Background tasks are held, named, and heard when they fail.",
}

_BENCHMARKS = {
    "bench:round-trips": "Round trips with 64 in flight are ten times those of the peer SDKs.",
    "bench:demultiplexing": "Events reach 64 sessions at near the pace of a bare decode loop.",
    "bench:flat": "An event costs the same from one session to a thousand.",
    "bench:channel": "The price of a channel hop is shown beside that of a JSON hop.",
    "bench:import": "Importing costs at most 1.3 times importing asyncio and msgspec.",
    "bench:tmux": "Capturing 100 tmux panes costs a twentieth of a process per pane.",
}

_SIGNATURE = {
    "SIG-1": "An event with all that identifies it makes a deterministic signature.",
    "SIG-2": "An event that lacks any of it is inconclusive.",
    "SIG-3": "The process in front names the provider with weight 1.00.",
    "SIG-4": "The current command names the provider with weight 0.86.",
    "SIG-5": "What the screen shows names the provider with weight 0.78.",
    "SIG-6": "A title supports with weight 0.66.",
    "SIG-7": "The score is the largest of the weights that matched.",
    "SIG-8": "A title alone never makes an agent of a pane.",
    "TG-7": "Panes of other programs beside agents stay without an agent.",
    "SIG-9": "A title over a bare runtime is rejected.",
    "DET-1": "What the screen shows is a signal of its own, between command and title.",
    "DET-2": "Claude is known by its name on the screen, not by its box.",
    "DET-3": "Codex is known by its prompt on the screen, not by its name.",
    "DET-4": "A match of the screen counts as the poller's.",
    "DET-5": "A shell under a stale title is no agent.",
    "DET-6": "Eleven shells are known.",
    "DET-7": "A shell is known by its base name, in any case, with or without a dash.",
}

_ACCURACY = {
    "TG-13": "Screens are read with weighted F1 and waiting recall of at least 0.85.",
    "accuracy:weighted-f1": "On the recorded screens weighted F1 is at least 0.99.",
    "accuracy:waiting-recall": "On the recorded screens no waiting agent is overlooked.",
    "accuracy:false-agents": "On the recorded screens no other program is taken for an agent.",
    "accuracy:approvals-called-idle": "On the recorded screens no approval is called idle.",
    "accuracy:ready-errors": "On the recorded screens ready is claimed exactly where it is true.",
}

_TMUX = {
    "TMX-1": "Whoever runs tmux commands is behind a port, with a double for tests.",
    "TMX-2": "A process per command is one implementation of it, for a tmux too old for another.",
    "TMX-3": "Flag, path, name, TMUX and default choose the server in this order.",
    "TMX-4": "Panes are listed with full metadata, whatever they are called.",
    "TMX-5": "A pane is captured by one command with a number of lines of history.",
    "TMX-6": "The processes below a pane tell by their arguments which program runs in it.",
    "TMX-7": "Each life of a pane has a generation and a birth.",
    "TMX-8": "A snapshot has what tmux tells of a pane, its screen, its processes and its life.",
    "TMX-9": "A tmux that hangs holds up neither the event loop nor other servers.",
    "TMX-10": "Errors are typed; a pane that cannot be captured is logged and left out.",
    "PL-1": "A server that is gone fails the look at it, and is found again when it is back.",
    "PL-2": "Panes are captured with fifty lines of history; one that fails is skipped.",
    "PL-3": "The processes of all panes come from one reading of the process table.",
    "PL-4": "Every look follows the generations of the panes.",
    "BND-8": "A pane id that comes back with another process or server is a new generation.",
    "Q3": "A server's process id and start time are part of what a pane is.",
    "TR-09": "A program is known by its arguments, whatever it calls itself.",
    "TR-11": "A process table that cannot be read is an error, not an empty one.",
    "TR-12": "A respawned pane and a restarted server are told by their process ids.",
    "TR-13": "A pane in linked windows is listed at each place and captured once.",
    "TR-49": "Titles and names keep their characters whatever the locale.",
    "TR-50": "A server is not started by looking, and is found when it starts later.",
    "TR-66": "A screen that changed is never taken for one that did not.",
    "tmux:unseen": "Looking changes no size, session, environment or focus that a user could see.",
    "tmux:unchanged": "A pane that did not change is not captured again.",
}

_COMMAND_LINE = {
    "cli:hot-path": "The version is answered with the standard library alone.",
    "cli:lazy": "A command imports only what it needs, and help imports no command.",
}

REQUIREMENTS: Final[Mapping[str, str]] = MappingProxyType(
    _CONNECTION
    | _CONTRACT
    | _ERRORS
    | _ROUTER
    | _TRAPS
    | _SIGNATURE
    | _ACCURACY
    | _TMUX
    | _COMMAND_LINE
    | _BENCHMARKS
)
