-- What the API shows about feeds and instruments.

-- name: list_instruments
SELECT i.symbol, i.feed, i.decimals, p.event_time_ms, p.price_scaled
  FROM instruments i LEFT JOIN latest_prices p USING (symbol)
 WHERE i.symbol > :after_symbol AND starts_with(i.symbol, :prefix)
 ORDER BY i.symbol
 LIMIT :limit;

-- name: find_shown_instrument^
-- The first of the spellings that is one.
SELECT i.symbol, i.feed, i.decimals, p.event_time_ms, p.price_scaled
  FROM instruments i LEFT JOIN latest_prices p USING (symbol)
 WHERE i.symbol = ANY (:spellings::text[])
 ORDER BY array_position(:spellings::text[], i.symbol)
 LIMIT 1;

-- name: read_decimals
SELECT symbol, feed, decimals FROM instruments WHERE symbol = ANY (:symbols::text[]);

-- name: read_feed_overview
-- Counters are per bucket and repeat on the shards of hot symbols, and those that such a symbol has left stand still for
-- ever: only the bucket shards tell counters and frontiers.
SELECT f.feed, f.clock_mode, f.buckets,
       count(p.shard) FILTER (WHERE p.of_bucket AND p.frontier_ms > 0) AS shards_with_frontier,
       min(p.frontier_ms) FILTER (WHERE p.of_bucket AND p.frontier_ms > 0) AS frontier_ms,
       max(p.frontier_ms) FILTER (WHERE p.of_bucket AND p.frontier_ms > 0) AS newest_frontier_ms,
       coalesce(sum(p.rejected) FILTER (WHERE p.of_bucket), 0)::bigint AS rejected,
       coalesce(sum(p.duplicate) FILTER (WHERE p.of_bucket), 0)::bigint AS duplicate,
       coalesce(sum(p.late) FILTER (WHERE p.of_bucket), 0)::bigint AS late,
       count(p.gap) AS gaps
  FROM feeds f
  LEFT JOIN (SELECT *, shard ~ '^[^/]+/[0-9]+~' AS of_bucket FROM shard_progress) p ON starts_with(p.shard, f.feed || '/')
 GROUP BY f.feed
 ORDER BY f.feed;

-- name: read_backlog^
-- Outboxes that wait, counted up to a bound: the figure is for a person.
SELECT (SELECT count(*) FROM (SELECT 1 FROM rule_commands WHERE published_at IS NULL LIMIT :bound) c) AS rule_commands,
       (SELECT count(*) FROM (SELECT 1 FROM triggers WHERE published_at IS NULL LIMIT :bound) t) AS triggers,
       (SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE status IN ('PENDING', 'SENDING') LIMIT :bound) d) AS deliveries;

-- name: read_owner^
SELECT name, live_alerts, max_live_alerts FROM owners WHERE owner_id = :owner_id;

-- name: ping$
SELECT 1;
