"""Talking, as requests to the daemon: messages, receipts, tasks, and the agents to talk to.

Who speaks is told by a secret that the daemon gave an agent when it was launched; whoever has none
is the user, unless his process belongs to an agent we know. What a message says of its sender is
never believed.
"""

from datetime import datetime
from typing import Any

import msgspec

from bullpen.connection import TypedNotification, TypedRequest
from bullpen.model.deliveries import CommunicationLog, Delivery, Receipt
from bullpen.model.dialogs import Dialog
from bullpen.model.messages import Message, MessageType
from bullpen.model.states import Activity, Provider
from bullpen.model.tasks import Task, TaskState

__all__ = [
    "AnswerAgent",
    "AwaitWake",
    "CancelTask",
    "CommunicationEntry",
    "Contact",
    "GetTask",
    "Identify",
    "InboxReply",
    "InterruptAgent",
    "ListContacts",
    "ListDeadLetters",
    "ListTasks",
    "ListTopics",
    "MailTrace",
    "ReadCommunication",
    "ReadDialog",
    "ReadInbox",
    "ReadOutput",
    "ReadOutputReply",
    "ReplyMessage",
    "RequeueMessage",
    "SendKeys",
    "SendMessage",
    "SendReply",
    "StopAgent",
    "SubscribeTopic",
    "TaskChanged",
    "TaskOutput",
    "TraceMessage",
    "WaitMessage",
    "WaitMessageReply",
    "WakeReply",
    "WatchTasks",
    "WhoAmI",
]


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody a message can be sent to."""

    name: str
    provider: Provider
    activity: Activity
    status: str
    """The seed's word: `STARTING`, `BUSY`, `IDLE` or `NOT_STARTED`."""
    is_present: bool = True
    """False for an agent that has ended: what is sent to it waits for its return."""
    is_wrapped: bool = False
    doors: tuple[str, ...] = ()
    """How it can be reached, best first: `own`, `hook`, `pty`, `tmux`, `inbox`."""
    waiting: int = 0
    """How many messages wait for it."""
    working_on: str | None = None
    """The id of the message it has."""
    holding: str = ""
    """Why the next message is not handed over, in words."""
    profile: str = ""
    cwd: str = ""
    pid: int = 0
    port: int | None = None
    endpoint: str = ""
    """Where it serves A2A, if it does."""
    session_key: str | None = None
    submit_sequence: str = "\n"
    """What is typed behind a message to a wrapped agent."""
    also: tuple[str, ...] = ()
    """By what it is found as well, if nobody else is called so: an agent of this machine that is
    not ours by its type, for one."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether it was added by its address, and need not be on this machine."""
        return bool(self.endpoint) and self.port is None


class ListContacts(TypedRequest[tuple[Contact, ...]]):
    """Everybody a message can be sent to."""

    METHOD = "agent.contacts"
    name: str = ""
    """Only who has this name."""
    counts: bool = True
    """Whether what waits for each is counted, which takes a look at the mailboxes."""


class Identify(msgspec.Struct, frozen=True):
    """Whom the daemon takes the caller for."""

    name: str
    authority: str
    """`human`, `boss` or `peer`."""


class WhoAmI(TypedRequest[Identify]):
    """Whom the daemon takes the caller for."""

    METHOD = "agent.whoami"
    secret: str = ""


# ----------------------------------------------------------------------------------------- messages


class SendReply(msgspec.Struct, frozen=True):
    """A message that is kept."""

    message: Message
    deliveries: tuple[Delivery, ...]
    is_new: bool = True
    """False if the same was sent before: then this is what became of it."""


class SendMessage(TypedRequest[SendReply]):
    """Send a message. When this is answered it is kept, and outlives the daemon."""

    METHOD = "mail.send"
    to: str
    """An agent, `#` and a topic, or `*` for everybody."""
    content: str
    type: MessageType = MessageType.TASK_REQUEST
    """A `task_request` wants an answer; `info` does not."""
    thinking: str | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    """`priority` (low, normal, high, urgent), `ttl` in seconds, `correlation_id` …"""
    reply_to: str | None = None
    idempotency_key: str | None = None
    id: str | None = None
    awaits: bool = False
    """Who sends will ask for the answer by `mail.wait` at once: it does not come another way."""
    secret: str = ""


class ReplyMessage(TypedRequest[SendReply]):
    """Answer a message one was sent."""

    METHOD = "mail.reply"
    content: str
    to_message: str = ""
    """Its id; empty for the one the caller is working on, or else the last unanswered one."""
    type: MessageType = MessageType.TASK_RESPONSE
    thinking: str | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    secret: str = ""


class WaitMessageReply(msgspec.Struct, frozen=True, kw_only=True):
    """What became of waiting."""

    outcome: str
    """`reached`, `ended` (it can no longer be reached) or `timeout`."""
    deliveries: tuple[Delivery, ...]
    reply: Message | None = None
    """The answer, if there is one; the newest of several."""
    replies: tuple[Message, ...] = ()
    """The answer of each who was asked and has answered."""
    reason: str = ""
    """Why it ended, or why it still waits, in words."""
    timeout_seconds: float = 0.0
    agent_id: str = ""


class WaitMessage(TypedRequest[WaitMessageReply]):
    """Wait until a message has come so far; at once if it has already."""

    METHOD = "mail.wait"
    message_id: str
    until: str = "answered"
    """`seen`, `answered`, or `ended` (any end)."""
    timeout_seconds: float | None = None
    """None is the setting for its type: `mail.task_seconds`, `mail.receive_seconds`."""
    take: bool = False
    """Who asked takes the answer by this: it counts as seen, and does not come to him again."""
    secret: str = ""


class InboxReply(msgspec.Struct, frozen=True):
    """Messages for the caller."""

    deliveries: tuple[Delivery, ...]
    waiting: int = 0
    """How many more there are."""


class ReadInbox(TypedRequest[InboxReply]):
    """Read one's mailbox; with `take` what is returned counts as seen and is not returned again."""

    METHOD = "mail.inbox"
    agent: str = ""
    """Somebody else's mailbox, to look at; only a person may."""
    take: bool = False
    limit: int = 50
    timeout_seconds: float = 0.0
    """How long to wait for one if there is none."""
    secret: str = ""


class MailTrace(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a message."""

    message: Message
    deliveries: tuple[Delivery, ...]
    receipts: tuple[Receipt, ...]
    """Every step with its evidence, in order."""
    thread: tuple[Message, ...]
    """The conversation it belongs to."""
    holding: dict[str, str] = {}
    """By recipient: why it is not handed over yet."""
    positions: dict[str, int] = {}
    """By recipient: its place in the queue."""


class TraceMessage(TypedRequest[MailTrace]):
    """All that is known of a message. A part of its id will do, if no other begins so."""

    METHOD = "mail.trace"
    message_id: str


class ListDeadLetters(TypedRequest[tuple[Delivery, ...]]):
    """What ended before it was delivered, the oldest first."""

    METHOD = "mail.dead_letters"
    recipient: str | None = None
    limit: int = 500


class RequeueMessage(TypedRequest[Delivery]):
    """Send a dead letter again."""

    METHOD = "mail.requeue"
    message_id: str
    recipient: str | None = None
    secret: str = ""


class SubscribeTopic(TypedRequest[tuple[str, ...]]):
    """Begin to get what is sent to a topic, or end that; the answer is who does."""

    METHOD = "mail.subscribe"
    topic: str
    subscribe: bool = True
    agent: str = ""
    """Somebody else; only a person may."""
    secret: str = ""


class ListTopics(TypedRequest[dict[str, tuple[str, ...]]]):
    """Every topic, and who listens to it."""

    METHOD = "mail.topics"


class CommunicationEntry(msgspec.Struct, frozen=True):
    """A record with its number."""

    number: int
    entry: CommunicationLog


class ReadCommunication(TypedRequest[tuple[CommunicationEntry, ...]]):
    """The communication log after a number."""

    METHOD = "mail.log"
    after: int = 0
    limit: int = 500


class WakeReply(msgspec.Struct, frozen=True):
    """What a waiting helper of an agent program is to hand it; nothing if it is to go away."""

    text: str = ""
    attempt_id: str = ""


class AwaitWake(TypedRequest[WakeReply]):
    """From a helper an agent program runs in its background: wait for something to wake it with.

    A newer helper of the same agent takes the place of an older one, which is told nothing.
    """

    METHOD = "agent.wake"
    secret: str
    timeout_seconds: float = 3600.0


# -------------------------------------------------------------------------------------------- tasks


class GetTask(TypedRequest[Task]):
    """One task."""

    METHOD = "task.get"
    task_id: str


class ListTasks(TypedRequest[tuple[Task, ...]]):
    """Tasks, newest first."""

    METHOD = "task.list"
    recipient: str | None = None
    sender: str | None = None
    state: TaskState | None = None
    context_id: str | None = None
    before: datetime | None = None
    limit: int = 50


class CancelTask(TypedRequest[Task]):
    """End a task: one that waits is not delivered, one that is worked on is interrupted."""

    METHOD = "task.cancel"
    task_id: str
    secret: str = ""


class WatchTasks(TypedRequest[bool]):
    """Be told on this connection what becomes of tasks: of some, or of all of one agent."""

    METHOD = "task.watch"
    task_ids: tuple[str, ...] = ()
    recipient: str = ""
    watch: bool = True
    """False ends it."""


class TaskChanged(TypedNotification):
    """A task that is watched has changed. Of several changes only the last may be told."""

    METHOD = "task.changed"
    task: Task


class TaskOutput(TypedNotification):
    """What an agent says while it works on a task that is watched, before the answer is whole.

    It is told in order, and from its beginning to who begins to watch: so some of it may be told
    again, and what is missing was dropped. The answer is told by `task.changed`, whatever was said.
    """

    METHOD = "task.output"
    task_id: str
    text: str
    at: int = 0
    """How many characters of what the agent says now stand before it."""
    number: int = 1
    """Counted up when the agent begins anew: what it said before it said on the way."""


# ------------------------------------------------------------------------------------------- agents


class InterruptAgent(TypedRequest[bool]):
    """Interrupt what an agent is doing, as Esc or Ctrl-C would."""

    METHOD = "agent.interrupt"
    agent: str
    secret: str = ""


class ReadDialog(TypedRequest[Dialog | None]):
    """What an agent asks its user, and waits for; nothing if that is not known."""

    METHOD = "agent.dialog"
    agent: str


class AnswerAgent(TypedRequest[Dialog]):
    """Answer what an agent asks its user, if it still does; the answer is what was asked.

    Only a person may, or who was given a token for it.
    """

    METHOD = "agent.answer"
    agent: str
    text: str
    """`yes`, `no`, `always`, a number, or the words of a choice: one of the dialog's `answers`."""
    dialog_id: str = ""
    """Only if it is this one that is asked; empty for whichever is."""
    secret: str = ""


class SendKeys(TypedRequest[bool]):
    """Type bytes into a wrapped agent's terminal, whatever it shows. Only a person may."""

    METHOD = "agent.keys"
    agent: str
    data: bytes
    secret: str = ""


class StopAgent(TypedRequest[bool]):
    """End a wrapped agent, and its wrapper. Only a person or a boss may."""

    METHOD = "agent.stop"
    agent: str
    secret: str = ""


class ReadOutputReply(msgspec.Struct, frozen=True, kw_only=True):
    """The newest output of a wrapped agent."""

    text: str
    end: int
    """The offset behind its last byte, counted from the agent's start."""
    screen: str = ""
    """What its terminal shows, as lines."""


class ReadOutput(TypedRequest[ReadOutputReply]):
    """The newest output of a wrapped agent."""

    METHOD = "agent.output"
    agent: str
    limit: int = 10_000
