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
