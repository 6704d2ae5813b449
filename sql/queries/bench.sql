-- Bulk paths of the benchmarks: the rows that the API would write, many in one transaction.

-- name: stage_instruments#
CREATE TEMPORARY TABLE staged_instruments (
    place integer, symbol text, decimals integer, bucket integer, payload bytea
) ON COMMIT DROP;

-- name: insert_staged_instruments!
WITH made AS (
    INSERT INTO instruments (symbol, feed, decimals)
    SELECT symbol, :feed, decimals FROM staged_instruments ORDER BY place
)
INSERT INTO feed_controls (feed, bucket, payload)
SELECT :feed, bucket, payload FROM staged_instruments ORDER BY place;

-- name: stage_alerts#
CREATE TEMPORARY TABLE staged_alerts (
    symbol text, shard text, kind text, rate_window text, direction text, threshold bigint, decimals integer
) ON COMMIT DROP;

-- name: insert_staged_alerts!
WITH created AS (
    INSERT INTO alerts (owner_id, symbol, shard, kind, rate_window, direction, threshold, decimals, created_at_ms,
                        expires_at_ms, status)
    SELECT :owner_id, symbol, shard, kind, rate_window, direction, threshold, decimals, :created_at_ms,
           :expires_at_ms, 'PENDING'
      FROM staged_alerts
    RETURNING shard, alert_id, version
), commanded AS (
    INSERT INTO rule_commands (shard, alert_id, version, action)
    SELECT shard, alert_id, version, 'create' FROM created
)
UPDATE owners SET live_alerts = live_alerts + (SELECT count(*) FROM created) WHERE owner_id = :owner_id;

-- name: count_by_status
SELECT status, count(*) AS alerts FROM alerts GROUP BY status;

-- name: read_outcomes
-- The row of a triggered alert was last written by the transaction that made it TRIGGERED.
SELECT alert_id, symbol, rate_window, direction, threshold, status,
       (trigger ->> 'event_time_ms')::bigint AS event_time_ms,
       CASE WHEN status = 'TRIGGERED'
            THEN (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000)::float8 END AS committed_ms
  FROM alerts
 ORDER BY alert_id;

-- name: count_outbox^
SELECT count(*) AS triggers, count(DISTINCT alert_id) AS alerts FROM triggers;

-- name: insert_owners!
INSERT INTO owners (name) SELECT 'load-' || number FROM generate_series(0, :owners - 1) AS number;

-- name: insert_active_alerts$
-- As activated long ago; owners and symbols drawn by multiplication, so that neighbours in the table share neither.
WITH place AS (
    SELECT number, symbol, shard FROM unnest(:symbols::text[], :shards::text[]) WITH ORDINALITY AS p (symbol, shard, number)
), created AS (
    INSERT INTO alerts (owner_id, symbol, shard, kind, rate_window, direction, threshold, decimals, created_at_ms,
                        expires_at_ms, status, active_from_event_time_ms, active_epoch, active_position)
    SELECT o.owner_id, p.symbol, p.shard, k.kind, k.rate_window, k.direction, k.threshold, 2, :created_at_ms,
           :expires_at_ms, 'ACTIVE', :created_at_ms, 1, g
      FROM generate_series(:first::bigint, :first + :alerts - 1) AS g
      JOIN place p ON p.number = 1 + mod(g * 7919, cardinality(:symbols::text[]))
      JOIN (VALUES (0, 'change', '1h', 'UP', 500), (1, 'price', NULL, 'ABOVE', 10500))
           AS k (remainder, kind, rate_window, direction, threshold) ON k.remainder = mod(g, 2)
      JOIN owners o ON o.name = 'load-' || mod(g * 104729, :owners)
     ORDER BY g
    RETURNING owner_id
), counted AS (
    SELECT owner_id, count(*) AS alerts FROM created GROUP BY owner_id
), placed AS (
    UPDATE owners o SET live_alerts = o.live_alerts + c.alerts FROM counted c WHERE o.owner_id = c.owner_id
)
SELECT count(*) FROM created;

-- name: read_places
SELECT alert_id, shard, kind FROM alerts WHERE alert_id = ANY (:alert_ids::bigint[]) ORDER BY alert_id;

-- name: count_finalized$
-- Numbers of candidates.v1 that are applied, all shards together.
SELECT coalesce(sum(number), 0)::bigint FROM shard_progress;

-- name: has_unpublished$
SELECT EXISTS (SELECT 1 FROM triggers WHERE published_at IS NULL);

-- name: count_fired^
-- Of these alerts: facts, and those of them that have their evidence in an outbox row.
SELECT count(*) AS triggered, count(*) FILTER (WHERE t.payload -> 'evidence' = a.trigger) AS told
  FROM alerts a LEFT JOIN triggers t USING (alert_id)
 WHERE a.alert_id = ANY (:alert_ids::bigint[]) AND a.status = 'TRIGGERED';

-- name: count_ends^
-- All of the schema: facts, outbox rows, remove commands, places that owners hold too many or too few.
SELECT (SELECT count(*) FROM alerts WHERE status = 'TRIGGERED') AS triggered,
       (SELECT count(*) FROM triggers) AS outbox,
       (SELECT count(*) FROM rule_commands WHERE action = 'remove') AS removes,
       (SELECT sum(live_alerts) FROM owners)::bigint
         - (SELECT count(*) FROM alerts WHERE status IN ('PENDING', 'ACTIVE', 'PAUSED')) AS places_off;

-- name: read_setting$
SELECT current_setting(:name);

-- name: last_alert_id$
SELECT coalesce(max(alert_id), 0) FROM alerts;

-- name: read_raced
-- With the outbox rows and remove commands of each.
SELECT a.alert_id, a.owner_id, a.shard, a.kind, a.status,
       (SELECT count(*) FROM triggers t WHERE t.alert_id = a.alert_id) AS outbox,
       coalesce(c.removes, 0) AS removes
  FROM alerts a
  LEFT JOIN (SELECT alert_id, count(*) AS removes FROM rule_commands
              WHERE action = 'remove' AND command_id > :after_command_id GROUP BY alert_id) AS c USING (alert_id)
 WHERE a.alert_id >= :first
 ORDER BY a.alert_id;

-- name: places_held$
SELECT sum(live_alerts)::bigint FROM owners;

-- name: last_command_id$
SELECT coalesce(max(command_id), 0) FROM rule_commands;
