-- A source may have nothing to look at on this machine, which is no trouble.

ALTER TABLE source_health_v2 ADD COLUMN is_absent TEXT NOT NULL DEFAULT 'false'; -- JSON
