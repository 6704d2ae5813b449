-- Rule commands into the shard log: numbered under a fence, published in number order, marked.

-- name: try_lead$
-- Held by the session until it ends; one relay works, others stand by.
SELECT pg_try_advisory_lock(hashtextextended('alerts rule relay of ' || current_schema, 0));

-- name: resign$
-- The end of the session gives it up too, but the server sees that only some time after the client has closed.
SELECT pg_advisory_unlock(hashtextextended('alerts rule relay of ' || current_schema, 0));

-- name: find_waiting_shards
-- Those behind :after, in order. Walks the partial index from shard to shard, however long their backlogs are.
WITH RECURSIVE waiting (shard) AS (
    (SELECT shard FROM rule_commands WHERE published_at IS NULL AND shard > :after ORDER BY shard LIMIT 1)
    UNION ALL
    SELECT (SELECT c.shard FROM rule_commands c
             WHERE c.published_at IS NULL AND c.shard > w.shard ORDER BY c.shard LIMIT 1)
      FROM waiting w WHERE w.shard IS NOT NULL
)
SELECT shard FROM waiting WHERE shard IS NOT NULL LIMIT :limit;

-- name: take_shards
INSERT INTO shard_relays AS r (shard, fence) SELECT shard, 1 FROM unnest(:shards::text[]) AS shard ORDER BY shard
ON CONFLICT (shard) DO UPDATE SET fence = r.fence + 1
RETURNING shard, fence;

-- name: lock_fences
SELECT r.shard, r.fence FROM shard_relays r WHERE r.shard = ANY (:shards::text[]) ORDER BY r.shard FOR NO KEY UPDATE;

-- name: number_commands$
-- In order of command_id among the committed ones. One that commits later, under a lower command_id, gets a later
-- number: it is never skipped.
WITH fresh AS (
    SELECT c.command_id, c.shard FROM rule_commands c
     WHERE c.number IS NULL AND c.published_at IS NULL AND c.shard = ANY (:shards::text[])
     ORDER BY c.command_id
     LIMIT :limit
), placed AS (
    SELECT f.command_id, r.epoch, r.last_number + row_number() OVER (PARTITION BY f.shard ORDER BY f.command_id) AS number
      FROM fresh f JOIN shard_relays r USING (shard)
), numbered AS (
    UPDATE rule_commands c SET epoch = p.epoch, number = p.number FROM placed p WHERE c.command_id = p.command_id
    RETURNING c.shard, c.number
), moved AS (
    UPDATE shard_relays r SET last_number = n.last_number
      FROM (SELECT shard, max(number) AS last_number FROM numbered GROUP BY shard) n
     WHERE r.shard = n.shard
)
SELECT count(*) FROM numbered;

-- name: read_numbered
-- A rule never changes but for its version, which the command carries.
SELECT c.command_id, c.shard, c.epoch, c.number, c.action, c.payload, c.version, a.alert_id, a.symbol, a.kind, a.rate_window,
       a.direction, a.threshold, a.created_at_ms, a.expires_at_ms
  FROM rule_commands c
  LEFT JOIN alerts a USING (alert_id)
 WHERE c.published_at IS NULL AND c.number IS NOT NULL AND c.shard = ANY (:shards::text[])
 ORDER BY c.shard, c.epoch, c.number
 LIMIT :limit;

-- name: mark_commands_published!
UPDATE rule_commands SET published_at = now() WHERE command_id = ANY (:command_ids::bigint[]) AND published_at IS NULL;
