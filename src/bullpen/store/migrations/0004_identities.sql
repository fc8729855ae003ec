-- Who was launched through us, and what each proves itself with.

CREATE TABLE identity_v1 (
    secret_hash TEXT NOT NULL PRIMARY KEY, -- SHA-256; the secret itself is kept nowhere
    name        TEXT NOT NULL,
    provider    TEXT NOT NULL,
    profile     TEXT NOT NULL,
    minted_at   TEXT NOT NULL,
    ended_at    TEXT
);
CREATE INDEX identity_v1_by_name ON identity_v1 (name);

-- What the room is called, so that the secrets of another one are told from unknown ones.
CREATE TABLE realm_v1 (
    realm TEXT NOT NULL
);
