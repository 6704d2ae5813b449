-- Everything the API asks about alerts. Times *_ms are the market clock (epoch milliseconds).
-- A feed's frontier is that of its bucket shards: the shards that a hot symbol has left stand still for ever.

-- name: find_instrument^
-- What a create must know of its symbol; the first spelling that exists wins. Takes the next alert_id, for a hot
-- symbol shard depends on it. The lock keeps the routing as it is until the alert is committed; after a wait for it the
-- instrument is the newest.
SELECT i.symbol, i.feed, i.decimals, i.shards, f.buckets, f.clock_mode,
       (SELECT min(p.frontier_ms) FROM shard_progress p
         WHERE starts_with(p.shard, i.feed || '/') AND p.shard ~ '^[^/]+/[0-9]+~' AND p.frontier_ms > 0) AS frontier_ms,
       nextval(pg_get_serial_sequence('alerts', 'alert_id')::regclass) AS next_alert_id
  FROM unnest(:spellings::text[]) WITH ORDINALITY AS wanted (symbol, place)
  JOIN instruments i USING (symbol)
  JOIN feeds f USING (feed)
 ORDER BY wanted.place
 LIMIT 1
   FOR SHARE OF i;

-- name: resolve_symbol^
SELECT i.symbol
  FROM unnest(:spellings::text[]) WITH ORDINALITY AS wanted (symbol, place)
  JOIN instruments i USING (symbol)
 ORDER BY wanted.place
 LIMIT 1;

-- name: read_feed_clocks
SELECT f.feed, f.clock_mode,
       (SELECT min(p.frontier_ms) FROM shard_progress p
         WHERE starts_with(p.shard, f.feed || '/') AND p.shard ~ '^[^/]+/[0-9]+~' AND p.frontier_ms > 0) AS frontier_ms
  FROM feeds f
 ORDER BY f.feed;

-- name: insert_alert^
-- No row: the owner quota is used up. A unique violation: another request holds this idempotency key.
WITH admitted AS (
    UPDATE owners SET live_alerts = live_alerts + 1
     WHERE owner_id = :owner_id AND live_alerts < max_live_alerts
    RETURNING owner_id
), created AS (
    INSERT INTO alerts (alert_id, owner_id, symbol, shard, kind, rate_window, direction, threshold, decimals, note,
                        channel_ids, created_at_ms, expires_at_ms, series_version, status)
    OVERRIDING SYSTEM VALUE
    SELECT :alert_id, admitted.owner_id, :symbol, :shard, :kind, :window, :direction, :threshold, :decimals, :note,
           :channel_ids::bigint[], :created_at_ms, :expires_at_ms,
           (SELECT count(*) FROM splits s WHERE s.symbol = :symbol AND s.effective_from_ms <= :created_at_ms), 'PENDING'
      FROM admitted
    RETURNING *
), commanded AS (
    INSERT INTO rule_commands (shard, alert_id, version, action)
    SELECT shard, alert_id, version, 'create' FROM created
), remembered AS (
    INSERT INTO idempotency_keys (owner_id, key, request_hash, alert_id)
    SELECT owner_id, :idempotency_key, :request_hash, alert_id FROM created WHERE :idempotency_key::text IS NOT NULL
)
SELECT *, status AS shown_status FROM created;

-- name: find_idempotent_request^
SELECT request_hash, alert_id FROM idempotency_keys WHERE owner_id = :owner_id AND key = :idempotency_key;

-- name: find_alert^
SELECT a.*,
       CASE WHEN a.status IN ('PENDING', 'ACTIVE', 'PAUSED') AND a.expires_at_ms <= clock.now_ms
            THEN 'EXPIRING' ELSE a.status END AS shown_status
  FROM alerts a
  JOIN instruments i USING (symbol)
  LEFT JOIN unnest(:feeds::text[], :clocks_ms::bigint[]) AS clock (feed, now_ms) ON clock.feed = i.feed
 WHERE a.owner_id = :owner_id AND a.alert_id = :alert_id;

-- name: list_alerts
-- Newest first, below a cursor: what is created meanwhile lies above it, what ends meanwhile moves nothing.
SELECT * FROM (
    SELECT a.*,
           CASE WHEN a.status IN ('PENDING', 'ACTIVE', 'PAUSED') AND a.expires_at_ms <= clock.now_ms
                THEN 'EXPIRING' ELSE a.status END AS shown_status
      FROM alerts a
      JOIN instruments i USING (symbol)
      LEFT JOIN unnest(:feeds::text[], :clocks_ms::bigint[]) AS clock (feed, now_ms) ON clock.feed = i.feed
     WHERE a.owner_id = :owner_id AND a.alert_id < :before_alert_id
       AND (:symbol::text IS NULL OR a.symbol = :symbol)
) AS shown
 WHERE :status::text IS NULL OR shown_status = :status
 ORDER BY alert_id DESC
 LIMIT :limit;

-- name: list_live_alerts
-- As list_alerts, for the statuses of live alerts: their partial index keeps ended ones out of the scan.
SELECT * FROM (
    SELECT a.*,
           CASE WHEN a.expires_at_ms <= clock.now_ms THEN 'EXPIRING' ELSE a.status END AS shown_status
      FROM alerts a
      JOIN instruments i USING (symbol)
      LEFT JOIN unnest(:feeds::text[], :clocks_ms::bigint[]) AS clock (feed, now_ms) ON clock.feed = i.feed
     WHERE a.owner_id = :owner_id AND a.alert_id < :before_alert_id
       AND a.status IN ('PENDING', 'ACTIVE', 'PAUSED')
       AND (:symbol::text IS NULL OR a.symbol = :symbol)
) AS shown
 WHERE shown_status = :status
 ORDER BY alert_id DESC
 LIMIT :limit;

-- name: read_statuses
-- Of alerts whose creators wait for the activation.
SELECT alert_id, status FROM alerts WHERE alert_id = ANY (:alert_ids::bigint[]);

-- name: cancel_alert!
-- Nothing happens when the alert has ended, is not the owner, or does not exist.
WITH ended AS (
    UPDATE alerts SET status = 'CANCELLED', ended_at = now()
     WHERE alert_id = :alert_id AND owner_id = :owner_id AND status = ANY (:from_statuses::text[])
    RETURNING owner_id, shard, moving_to, alert_id, version
), commanded AS (
    INSERT INTO rule_commands (shard, alert_id, version, action)
    SELECT holder.shard, alert_id, version, 'remove'
      FROM ended e CROSS JOIN LATERAL (VALUES (e.shard), (e.moving_to)) AS holder (shard)
     WHERE holder.shard IS NOT NULL
)
UPDATE owners o SET live_alerts = o.live_alerts - 1 FROM ended WHERE o.owner_id = ended.owner_id;

-- name: pause_alert!
WITH paused AS (
    UPDATE alerts SET status = 'PAUSED', active_from_event_time_ms = NULL, active_epoch = NULL, active_position = NULL
     WHERE alert_id = :alert_id AND owner_id = :owner_id AND status = ANY (:from_statuses::text[])
    RETURNING shard, moving_to, alert_id, version
)
INSERT INTO rule_commands (shard, alert_id, version, action)
SELECT holder.shard, alert_id, version, 'remove'
  FROM paused p CROSS JOIN LATERAL (VALUES (p.shard), (p.moving_to)) AS holder (shard)
 WHERE holder.shard IS NOT NULL;

-- name: lock_alert^
SELECT symbol FROM alerts WHERE alert_id = :alert_id AND owner_id = :owner_id FOR NO KEY UPDATE;

-- name: resume_alert!
-- A new activation under a new version, where the routing says by now: the tombstone of the pause stops at the old one.
WITH resumed AS (
    UPDATE alerts SET status = 'PENDING', version = version + 1, shard = :shard,
                      moving_to = NULL, moving_epoch = NULL, moving_position = NULL
     WHERE alert_id = :alert_id AND owner_id = :owner_id AND status = ANY (:from_statuses::text[])
    RETURNING shard, alert_id, version
)
INSERT INTO rule_commands (shard, alert_id, version, action)
SELECT shard, alert_id, version, 'create' FROM resumed;

-- name: list_deliveries
SELECT d.trigger_id, d.channel_id, c.kind, c.address, d.status, d.attempts, d.last_error, d.next_attempt_at,
       d.delivered_at, d.created_at
  FROM triggers t
  JOIN deliveries d USING (trigger_id)
  JOIN channels c USING (channel_id)
 WHERE t.alert_id = :alert_id AND t.owner_id = :owner_id
 ORDER BY d.channel_id
 LIMIT :limit;
