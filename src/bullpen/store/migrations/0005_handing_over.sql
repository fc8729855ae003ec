-- Through which door a message is being handed over, so that a restart knows that it may have been.

ALTER TABLE delivery_v1 ADD COLUMN leased_by TEXT NOT NULL DEFAULT '';

-- What is old is found without reading what is new.
CREATE INDEX message_v1_by_time ON message_v1 (accepted_at);
