-- Messages, what became of them, and who listens to which topic.

CREATE TABLE message_v1 (
    message_id      TEXT    NOT NULL PRIMARY KEY,
    sender          TEXT    NOT NULL,
    type            TEXT    NOT NULL,
    idempotency_key TEXT,
    thread_id       TEXT    NOT NULL,
    accepted_at     TEXT    NOT NULL,
    size            INTEGER NOT NULL,
    message         TEXT    NOT NULL -- JSON, as on the wire
);
CREATE UNIQUE INDEX message_v1_by_key ON message_v1 (sender, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX message_v1_by_thread ON message_v1 (thread_id);
CREATE INDEX message_v1_tasks ON message_v1 (accepted_at) WHERE type = 'task_request';

-- A message in the mailbox of one agent.
CREATE TABLE delivery_v1 (
    number          INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    message_id      TEXT    NOT NULL REFERENCES message_v1,
    recipient       TEXT    NOT NULL,
    priority        INTEGER NOT NULL,
    state           TEXT    NOT NULL,
    available_at    TEXT    NOT NULL,
    expires_at      TEXT,
    attempt         INTEGER NOT NULL,
    attempts_before INTEGER NOT NULL,
    leased_until    TEXT,
    UNIQUE (message_id, recipient)
);
CREATE INDEX delivery_v1_queue ON delivery_v1 (recipient, priority DESC, number)
    WHERE state = 'queued';
CREATE INDEX delivery_v1_expiring ON delivery_v1 (expires_at)
    WHERE state = 'queued' AND expires_at IS NOT NULL;
CREATE INDEX delivery_v1_dead ON delivery_v1 (number) WHERE state IN ('expired', 'dead');
CREATE INDEX delivery_v1_seen ON delivery_v1 (number) WHERE state = 'seen';
CREATE INDEX delivery_v1_in_flight ON delivery_v1 (number) WHERE state IN ('injected', 'submitted');

-- Every step of every delivery: a history.
CREATE TABLE receipt_v1 (
    receipt_id INTEGER NOT NULL PRIMARY KEY,
    number     INTEGER NOT NULL REFERENCES delivery_v1,
    state      TEXT    NOT NULL,
    at         TEXT    NOT NULL,
    attempt    INTEGER NOT NULL,
    evidence   TEXT    NOT NULL -- JSON
);
CREATE INDEX receipt_v1_by_delivery ON receipt_v1 (number);
CREATE TRIGGER receipt_v1_is_not_edited BEFORE UPDATE ON receipt_v1
BEGIN
    SELECT RAISE(ABORT, 'receipt_v1 is append-only');
END;

CREATE TABLE subscription_v1 (
    topic TEXT NOT NULL,
    agent TEXT NOT NULL,
    PRIMARY KEY (topic, agent)
);

-- One record per delivery that ended, and per message that was refused.
CREATE TABLE communication_log_v1 (
    log_id       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    number       INTEGER UNIQUE, -- of the delivery
    timestamp    TEXT    NOT NULL,
    from_agent   TEXT    NOT NULL,
    to_agent     TEXT    NOT NULL,
    message_type TEXT    NOT NULL,
    message_size INTEGER NOT NULL,
    duration_ms  REAL,
    success      INTEGER NOT NULL,
    error        TEXT
);
