-- Owners and their API keys. Only the hash of a secret is ever here.

-- name: insert_owner^
INSERT INTO owners (name, max_live_alerts) VALUES (:name, coalesce(:max_live_alerts::bigint, 1000000))
ON CONFLICT (name) DO NOTHING
RETURNING owner_id, name, max_live_alerts, live_alerts, created_at;

-- name: find_owner^
SELECT owner_id, name, max_live_alerts, live_alerts, created_at FROM owners WHERE name = :name;

-- name: list_owners
SELECT owner_id, name, max_live_alerts, live_alerts, created_at FROM owners
 WHERE owner_id > :after_owner_id
 ORDER BY owner_id
 LIMIT :limit;

-- name: set_quota!
UPDATE owners SET max_live_alerts = :max_live_alerts WHERE owner_id = :owner_id;

-- name: insert_key!
INSERT INTO api_keys (key_id, key_hash, owner_id, scopes, expires_at)
VALUES (:key_id, :key_hash, :owner_id, :scopes::text[], :expires_at);

-- name: find_valid_key^
-- By this clock: a key expires for its holder at the same moment on every host.
SELECT key_hash, owner_id, scopes FROM api_keys
 WHERE key_id = :key_id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());

-- name: revoke_key$
-- Idempotent; NULL when there is no such key.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE key_id = :key_id RETURNING key_id;

-- name: list_keys
SELECT key_id, scopes, created_at, expires_at, revoked_at FROM api_keys
 WHERE owner_id = :owner_id
 ORDER BY created_at, key_id
 LIMIT :limit;
