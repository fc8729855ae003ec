-- What is observed, what is said of it, and how far the sources have been read.
-- Times are UTC, as 2026-01-31T23:59:59.000000Z, so that their order is that of the text.

-- The log. An event_id is unique within its source and session only: where another session of the
-- source has used it before, the row has a longer one, and given_event_id is the one that was given.
CREATE TABLE events_raw_v2 (
    provider        TEXT    NOT NULL,
    source_kind     TEXT    NOT NULL,
    event_id        TEXT    NOT NULL,
    ingest_seq      INTEGER NOT NULL UNIQUE,
    given_event_id  TEXT,
    tier            TEXT    NOT NULL,
    observed_at     TEXT    NOT NULL,
    session_key     TEXT    NOT NULL,
    event_type      TEXT    NOT NULL,
    pane_id         TEXT,
    pane_generation INTEGER,
    pane_birth_ts   TEXT,
    tmux_server     TEXT,
    source_event_id TEXT,
    payload         TEXT, -- JSON
    confidence      REAL,
    origin          TEXT, -- JSON
    PRIMARY KEY (provider, source_kind, event_id)
);
CREATE INDEX events_raw_v2_by_session ON events_raw_v2 (session_key, ingest_seq);
CREATE INDEX events_raw_v2_by_pane ON events_raw_v2 (pane_id, ingest_seq) WHERE pane_id IS NOT NULL;
CREATE INDEX events_raw_v2_by_time ON events_raw_v2 (observed_at);

-- What retention may remove from the log: rows that are both older and earlier than this.
CREATE TABLE retention_v1 (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    observed_before TEXT    NOT NULL,
    through_seq     INTEGER NOT NULL
);
INSERT INTO retention_v1 VALUES (1, '', 0);

CREATE TRIGGER events_raw_v2_is_not_edited BEFORE UPDATE ON events_raw_v2
BEGIN
    SELECT RAISE(ABORT, 'events_raw_v2 is append-only');
END;
CREATE TRIGGER events_raw_v2_is_removed_by_retention_only BEFORE DELETE ON events_raw_v2
WHEN NOT EXISTS (
    SELECT 1 FROM retention_v1
    WHERE OLD.observed_at < observed_before AND OLD.ingest_seq <= through_seq
)
BEGIN
    SELECT RAISE(ABORT, 'events_raw_v2 is append-only but for retention');
END;

-- What we say. `state` is all of it, as JSON; the other columns are for whoever looks from outside.
CREATE TABLE session_state_v2 (
    session_key                     TEXT    NOT NULL PRIMARY KEY,
    presence                        TEXT    NOT NULL,
    evidence_mode                   TEXT    NOT NULL,
    deterministic_last_seen         TEXT,
    winner_tier                     TEXT    NOT NULL,
    activity_state                  TEXT    NOT NULL,
    activity_source                 TEXT    NOT NULL,
    representative_pane_instance_id TEXT, -- JSON
    provider                        TEXT    NOT NULL,
    agent                           TEXT,
    state_version                   INTEGER NOT NULL,
    updated_at                      TEXT    NOT NULL,
    state                           TEXT    NOT NULL
);

-- A pane instance: one life of a pane in one run of a tmux server.
CREATE TABLE pane_state_v2 (
    pane_id                 TEXT    NOT NULL,
    generation              INTEGER NOT NULL,
    birth_ts                TEXT    NOT NULL,
    server                  TEXT    NOT NULL,
    presence                TEXT    NOT NULL,
    evidence_mode           TEXT    NOT NULL,
    binding_state           TEXT    NOT NULL,
    signature_class         TEXT    NOT NULL,
    signature_reason        TEXT    NOT NULL,
    signature_confidence    REAL,
    no_agent_streak         INTEGER NOT NULL,
    activity_state          TEXT    NOT NULL,
    provider                TEXT,
    agent                   TEXT,
    session_key             TEXT,
    deterministic_last_seen TEXT,
    state_version           INTEGER NOT NULL,
    updated_at              TEXT    NOT NULL,
    state                   TEXT    NOT NULL,
    PRIMARY KEY (pane_id, generation, birth_ts, server)
);

-- Which session was in which pane, and since when: a history.
CREATE TABLE binding_link_v2 (
    pane_id     TEXT    NOT NULL,
    generation  INTEGER NOT NULL,
    birth_ts    TEXT    NOT NULL,
    server      TEXT    NOT NULL,
    bound_at    TEXT    NOT NULL,
    session_key TEXT    NOT NULL,
    source_kind TEXT    NOT NULL,
    title       TEXT    NOT NULL,
    unbound_at  TEXT,
    PRIMARY KEY (pane_id, generation, birth_ts, server, bound_at)
);

CREATE TABLE cursor_state_v2 (
    source_kind      TEXT NOT NULL PRIMARY KEY,
    fetched_cursor   TEXT,
    committed_cursor TEXT,
    checkpoint_ts    TEXT NOT NULL
);

CREATE TABLE source_health_v2 (
    source_kind   TEXT    NOT NULL PRIMARY KEY,
    status        TEXT    NOT NULL,
    checked_at    TEXT    NOT NULL,
    reason        TEXT    NOT NULL,
    last_event_at TEXT,
    accepted      INTEGER NOT NULL,
    dropped       TEXT    NOT NULL, -- JSON
    version       TEXT    NOT NULL
);

CREATE TABLE alert_ledger_v1 (
    alert_id        TEXT    NOT NULL PRIMARY KEY,
    key             TEXT    NOT NULL,
    level           TEXT    NOT NULL,
    code            TEXT    NOT NULL,
    message         TEXT    NOT NULL,
    policy          TEXT    NOT NULL,
    raised_at       TEXT    NOT NULL,
    last_seen_at    TEXT    NOT NULL,
    count           INTEGER NOT NULL,
    acknowledged_at TEXT,
    resolved_at     TEXT
);
CREATE INDEX alert_ledger_v1_open ON alert_ledger_v1 (raised_at) WHERE resolved_at IS NULL;

CREATE TABLE state_snapshot_v2 (
    snapshot_id     TEXT    NOT NULL PRIMARY KEY,
    created_at      TEXT    NOT NULL,
    reason          TEXT    NOT NULL,
    panes           INTEGER NOT NULL,
    sessions        INTEGER NOT NULL,
    last_ingest_seq INTEGER NOT NULL,
    size_bytes      INTEGER NOT NULL,
    sha256          TEXT    NOT NULL,
    content         TEXT    NOT NULL -- JSON
);
