-- How far a feed is: what barriers wait for. Read-only.

-- name: read_shard_progress
SELECT shard, marker_id, frontier_ms, swept_ms, rejected, duplicate, late, gap
  FROM shard_progress
 WHERE shard = ANY (:shards::text[]);

-- name: list_hot_routes
SELECT i.symbol, i.feed, f.buckets, i.shards
  FROM instruments i JOIN feeds f USING (feed)
 WHERE i.feed = :feed AND i.shards > 1
 ORDER BY i.symbol;

-- name: count_unpublished_controls^
SELECT count(*) AS controls FROM feed_controls WHERE feed = :feed AND published_at IS NULL;

-- name: count_open_deliveries^
-- Triggers whose delivery rows are not made yet, and rows that are neither delivered nor dead.
SELECT (SELECT count(*) FROM triggers t
         WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.trigger_id = t.trigger_id)) AS without_rows,
       (SELECT count(*) FROM deliveries WHERE status IN ('PENDING', 'SENDING')) AS waiting;

-- name: read_deliveries
-- Every trigger with what became of each of its channels.
SELECT t.trigger_id, t.alert_id, c.channel_id, c.kind, c.address, d.status, d.attempts, d.last_error
  FROM triggers t
  JOIN deliveries d USING (trigger_id)
  JOIN channels c USING (channel_id)
 ORDER BY t.alert_id, c.channel_id;
