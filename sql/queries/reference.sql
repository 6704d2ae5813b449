-- What an operator declares: feeds, settings, instruments, splits, routing. Each write comes with its control.

-- name: insert_feed!
INSERT INTO feeds (feed, buckets, clock_mode, settings) VALUES (:feed, :buckets, :clock_mode, :settings)
ON CONFLICT (feed) DO NOTHING;

-- name: lock_feed^
SELECT feed, buckets, clock_mode, settings FROM feeds WHERE feed = :feed FOR NO KEY UPDATE;

-- name: list_feeds
SELECT feed FROM feeds ORDER BY feed;

-- name: write_settings!
UPDATE feeds SET settings = :settings WHERE feed = :feed;

-- name: insert_instrument!
INSERT INTO instruments (symbol, feed, decimals) VALUES (:symbol, :feed, :decimals) ON CONFLICT (symbol) DO NOTHING;

-- name: find_instrument^
SELECT i.symbol, i.feed, i.decimals, i.shards, i.routing_version, f.buckets
  FROM instruments i JOIN feeds f USING (feed) WHERE i.symbol = :symbol;

-- name: insert_split!
INSERT INTO splits (symbol, effective_from_ms, new_shares, old_shares)
VALUES (:symbol, :effective_from_ms, :new_shares, :old_shares)
ON CONFLICT (symbol, effective_from_ms) DO NOTHING;

-- name: find_split^
SELECT new_shares, old_shares FROM splits WHERE symbol = :symbol AND effective_from_ms = :effective_from_ms;

-- name: insert_control$
INSERT INTO feed_controls (feed, bucket, payload) VALUES (:feed, :bucket, :payload) RETURNING control_id;

-- name: count_unpublished_controls$
SELECT count(*) FROM feed_controls WHERE control_id = ANY (:control_ids::bigint[]) AND published_at IS NULL;
