-- Who is to be told by post what becomes of a task.

CREATE TABLE push_v1 (
    number   INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    task_id  TEXT    NOT NULL,
    push_id  TEXT    NOT NULL,
    agent    TEXT    NOT NULL,
    owner    TEXT    NOT NULL,
    is_local INTEGER NOT NULL,
    config   TEXT    NOT NULL, -- JSON, with secrets
    is_over  INTEGER NOT NULL DEFAULT 0, -- the end of the task was told, or is told no more
    UNIQUE (task_id, push_id)
);
CREATE INDEX push_v1_open ON push_v1 (number) WHERE is_over = 0;

-- It is forgotten with the task, which is a message.
CREATE TRIGGER push_v1_goes_with_its_task AFTER DELETE ON message_v1
BEGIN
    DELETE FROM push_v1 WHERE task_id = OLD.message_id;
END;
