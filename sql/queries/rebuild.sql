-- Rebuilds: a shard's live rules, read out into its log.

-- name: insert_rebuild$
-- NULL: one of the shard is under way.
INSERT INTO rebuilds (shard, symbol, repair, differences) VALUES (:shard, :symbol, :repair, '[]')
ON CONFLICT DO NOTHING
RETURNING rebuild_id;

-- name: renumber_shards!
-- A matcher that has lost its state and its log takes nothing but a new epoch's first number. What was numbered and not
-- published gets its number anew; the fence turns a relay away that still has the old numbers in hand.
WITH raised AS (
    INSERT INTO shard_relays AS r (shard, fence, epoch) SELECT shard, 1, 2 FROM unnest(:shards::text[]) AS shard
    ON CONFLICT (shard) DO UPDATE SET fence = r.fence + 1, epoch = r.epoch + 1, last_number = 0
)
UPDATE rule_commands SET epoch = NULL, number = NULL
 WHERE shard = ANY (:shards::text[]) AND published_at IS NULL AND number IS NOT NULL;

-- name: find_open_rebuilds
SELECT shard FROM rebuilds WHERE phase <> 'DONE' AND shard = ANY (:shards::text[]) ORDER BY shard;

-- name: read_rebuilds
SELECT rebuild_id, shard, symbol, repair, phase, commands, asserted, reported, known, missing, other_version, surplus,
       differences
  FROM rebuilds WHERE rebuild_id = ANY (:rebuild_ids::bigint[]) ORDER BY rebuild_id;

-- name: count_live
SELECT shard, count(*) AS alerts FROM alerts
 WHERE shard = ANY (:shards::text[]) AND status IN ('PENDING', 'ACTIVE')
   AND (:symbol::text IS NULL OR symbol = :symbol)
 GROUP BY shard;

-- name: list_routes
-- Every symbol's, or one feed's or one symbol's.
SELECT i.symbol, i.feed, f.buckets, i.shards
  FROM instruments i JOIN feeds f USING (feed)
 WHERE (:feed::text IS NULL OR i.feed = :feed) AND (:symbol::text IS NULL OR i.symbol = :symbol)
 ORDER BY i.symbol;

-- name: find_under_way
SELECT rebuild_id FROM rebuilds WHERE phase <> 'DONE' ORDER BY rebuild_id;

-- name: hold_rebuild^
SELECT r.rebuild_id, r.shard, r.symbol, r.repair, r.phase, r.commands, r.reported, r.begun, r.ended,
       coalesce((SELECT p.frontier_ms FROM shard_progress p WHERE p.shard = r.shard), 0) AS frontier_ms
  FROM rebuilds r
 WHERE r.rebuild_id = :rebuild_id AND r.phase <> 'DONE'
   FOR NO KEY UPDATE OF r SKIP LOCKED;

-- name: insert_command!
INSERT INTO rule_commands (shard, action, payload) VALUES (:shard, 'rebuild', :payload);

-- name: count_command!
UPDATE rebuilds SET commands = commands + :pages, asserted = asserted + :rules WHERE rebuild_id = :rebuild_id;

-- name: hold_rules
-- The share lock is held until the page is committed: what moves one of these alerts comes behind the page in the log,
-- and what moved it before is seen here.
SELECT alert_id, version, symbol, kind, rate_window, direction, threshold, created_at_ms, expires_at_ms,
       CASE WHEN status = 'ACTIVE' THEN active_from_event_time_ms ELSE 0 END AS active_from_ms
  FROM alerts
 WHERE alert_id = ANY (:alert_ids::bigint[]) AND shard = :shard AND status IN ('PENDING', 'ACTIVE')
   AND (:symbol::text IS NULL OR symbol = :symbol)
 ORDER BY alert_id
   FOR SHARE SKIP LOCKED;

-- name: list_rules
-- hold_rules without the lock: what it left out is held by others.
SELECT alert_id FROM alerts
 WHERE alert_id = ANY (:alert_ids::bigint[]) AND shard = :shard AND status IN ('PENDING', 'ACTIVE')
   AND (:symbol::text IS NULL OR symbol = :symbol);

-- name: enter_phase!
UPDATE rebuilds SET phase = :phase, ended_at = CASE WHEN :phase = 'DONE' THEN now() END WHERE rebuild_id = :rebuild_id;
