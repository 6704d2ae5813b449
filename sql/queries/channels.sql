-- Where an owner triggers are delivered.

-- name: lock_owner$
-- Before counting the owner channels: two requests must not both see the last free place.
SELECT owner_id FROM owners WHERE owner_id = :owner_id FOR NO KEY UPDATE;

-- name: insert_channel^
-- A disabled channel of the same address comes back to life with the new secret. No row: it exists and is enabled,
-- or the owner has as many as allowed.
INSERT INTO channels AS c (owner_id, kind, address, secret)
SELECT :owner_id, :kind, :address, :secret
 WHERE (SELECT count(*) FROM channels e WHERE e.owner_id = :owner_id AND e.disabled_at IS NULL) < :max_channels
ON CONFLICT (owner_id, kind, address) DO UPDATE SET secret = excluded.secret, disabled_at = NULL
 WHERE c.disabled_at IS NOT NULL
RETURNING c.channel_id, c.kind, c.address, c.created_at;

-- name: find_channel_of_address^
SELECT channel_id FROM channels
 WHERE owner_id = :owner_id AND kind = :kind AND address = :address AND disabled_at IS NULL;

-- name: list_channels
SELECT channel_id, kind, address, created_at FROM channels
 WHERE owner_id = :owner_id AND disabled_at IS NULL
 ORDER BY channel_id
 LIMIT :limit;

-- name: disable_channel$
-- Idempotent; NULL when the owner has no such channel. Its row stays for the ledger, its secret does not.
UPDATE channels SET disabled_at = coalesce(disabled_at, now()), secret = NULL
 WHERE owner_id = :owner_id AND channel_id = :channel_id
RETURNING channel_id;

-- name: find_enabled_channels
SELECT channel_id FROM channels
 WHERE owner_id = :owner_id AND channel_id = ANY (:channel_ids::bigint[]) AND disabled_at IS NULL;
