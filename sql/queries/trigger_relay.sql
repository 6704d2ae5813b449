-- The trigger outbox into triggers.v1.

-- name: hold_unpublished
-- Rows that another relay holds are left to it.
SELECT trigger_id, owner_id, payload FROM triggers
 WHERE published_at IS NULL
 ORDER BY created_at, trigger_id
 LIMIT :limit
   FOR NO KEY UPDATE SKIP LOCKED;

-- name: mark_triggers_published!
UPDATE triggers SET published_at = now() WHERE trigger_id = ANY (:trigger_ids::text[]);
