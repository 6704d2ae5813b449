-- Reshards: a symbol's live alerts into other shards. No statement here waits for an alert (SKIP LOCKED).

-- name: insert_reshard$
-- NULL: one of the symbol is under way.
INSERT INTO reshards (symbol, version, old_shards, new_shards)
VALUES (:symbol, :version, :old_shards, :new_shards)
ON CONFLICT DO NOTHING
RETURNING reshard_id;

-- name: find_open_reshard^
SELECT reshard_id, version, old_shards, new_shards, phase FROM reshards WHERE symbol = :symbol AND phase <> 'DONE';

-- name: raise_routing_version$
UPDATE instruments SET routing_version = routing_version + 1 WHERE symbol = :symbol RETURNING routing_version;

-- name: find_newest_reshard^
SELECT r.reshard_id, r.symbol, r.version, r.old_shards, r.new_shards, r.phase, r.copied, r.switched,
       i.feed, f.buckets
  FROM reshards r JOIN instruments i USING (symbol) JOIN feeds f USING (feed)
 WHERE r.symbol = :symbol
 ORDER BY r.version DESC
 LIMIT 1;

-- name: find_under_way
SELECT reshard_id FROM reshards WHERE phase <> 'DONE' ORDER BY reshard_id;

-- name: find_open_of_feed
SELECT r.reshard_id, r.symbol, r.version, r.old_shards, r.new_shards, r.phase, i.feed, f.buckets
  FROM reshards r JOIN instruments i USING (symbol) JOIN feeds f USING (feed)
 WHERE i.feed = :feed AND r.phase <> 'DONE'
 ORDER BY r.reshard_id;

-- name: hold_reshard^
SELECT r.reshard_id, r.symbol, r.version, r.old_shards, r.new_shards, r.phase, i.feed, f.buckets
  FROM reshards r JOIN instruments i USING (symbol) JOIN feeds f USING (feed)
 WHERE r.reshard_id = :reshard_id AND r.phase <> 'DONE'
   FOR NO KEY UPDATE OF r SKIP LOCKED;

-- name: count_marked$
SELECT count(*) FROM routing_marks
 WHERE symbol = :symbol AND phase = :phase AND version = :version AND shard = ANY (:shards::text[]);

-- name: list_live
-- In the order of alerts_expiring, which nothing that happens to a live alert changes.
SELECT alert_id, symbol, status, expires_at_ms, moving_to IS NOT NULL AS moves,
       moving_to IS NOT NULL AND moving_epoch IS NOT NULL AS acknowledged
  FROM alerts
 WHERE shard = :shard AND status IN ('PENDING', 'ACTIVE', 'PAUSED')
   AND (expires_at_ms, alert_id) > (:after_expires_at_ms::bigint, :after_alert_id::bigint)
 ORDER BY expires_at_ms, alert_id
 LIMIT :limit;

-- name: count_waiting_commands$
SELECT count(*) FROM (
    SELECT 1 FROM rule_commands WHERE published_at IS NULL AND shard = ANY (:shards::text[]) LIMIT :limit
) AS waiting;

-- name: copy_alerts$
-- Both shards hold the rule from here on: whoever ends the alert sees that on its row, and removes it from both.
WITH held AS MATERIALIZED (
    SELECT a.alert_id, t.target
      FROM unnest(:alert_ids::bigint[], :targets::text[]) AS t (alert_id, target) JOIN alerts a USING (alert_id)
     WHERE a.shard = :shard AND a.status = 'ACTIVE' AND a.moving_to IS NULL
       FOR NO KEY UPDATE OF a SKIP LOCKED
), copied AS (
    UPDATE alerts a SET moving_to = h.target, moving_epoch = NULL, moving_position = NULL
      FROM held h
     WHERE a.alert_id = h.alert_id
    RETURNING a.moving_to, a.alert_id, a.version
), commanded AS (
    INSERT INTO rule_commands (shard, alert_id, version, action)
    SELECT moving_to, alert_id, version, 'create' FROM copied ORDER BY alert_id
), counted AS (
    UPDATE reshards SET copied = copied + (SELECT count(*) FROM copied) WHERE reshard_id = :reshard_id
)
SELECT count(*) FROM copied;

-- name: switch_alerts
-- An ACTIVE alert goes where its rule is; a paused one has no rule.
WITH held AS MATERIALIZED (
    SELECT a.alert_id, t.target
      FROM unnest(:alert_ids::bigint[], :targets::text[]) AS t (alert_id, target) JOIN alerts a USING (alert_id)
     WHERE a.shard = :shard
       AND (a.status = 'PAUSED' OR (a.status = 'ACTIVE' AND a.moving_to = t.target AND a.moving_epoch IS NOT NULL))
       FOR NO KEY UPDATE OF a SKIP LOCKED
), switched AS (
    UPDATE alerts a
       SET shard = h.target, active_epoch = CASE a.status WHEN 'ACTIVE' THEN a.moving_epoch END,
           active_position = CASE a.status WHEN 'ACTIVE' THEN a.moving_position END,
           moving_to = NULL, moving_epoch = NULL, moving_position = NULL
      FROM held h
     WHERE a.alert_id = h.alert_id
    RETURNING a.alert_id
), counted AS (
    UPDATE reshards SET switched = switched + (SELECT count(*) FROM switched) WHERE reshard_id = :reshard_id
)
SELECT alert_id FROM switched;

-- name: take_parked
-- In the order of their shard's log.
WITH taken AS (
    UPDATE parked_claims SET taken = true WHERE alert_id = ANY (:alert_ids::bigint[]) AND NOT taken
    RETURNING alert_id, version, shard, epoch, position, candidate
)
SELECT * FROM taken ORDER BY shard, epoch, position;

-- name: forget_parked!
DELETE FROM parked_claims p
 WHERE p.alert_id IN (SELECT c.alert_id FROM parked_claims c JOIN alerts a USING (alert_id)
                       WHERE a.symbol = :symbol AND c.shard = ANY (:shards::text[]) LIMIT :limit)
   AND p.shard = ANY (:shards::text[]);

-- name: route_creates!
-- Waits for creates and refusals that have read the routing, and makes later ones wait.
WITH held AS MATERIALIZED (SELECT symbol FROM instruments WHERE symbol = :symbol FOR UPDATE)
UPDATE instruments i SET shards = :shards FROM held h WHERE i.symbol = h.symbol;

-- name: enter_phase!
UPDATE reshards SET phase = :phase, ended_at = CASE WHEN :phase = 'DONE' THEN now() END WHERE reshard_id = :reshard_id;
