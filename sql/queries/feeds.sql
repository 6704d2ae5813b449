-- What a feed's gateway asks. Whatever it writes is conditional on its lease.

-- name: list_feeds
SELECT feed, buckets, clock_mode, settings, lease, signs_of_life FROM feeds ORDER BY feed;

-- name: take_lease^
UPDATE feeds SET lease = lease + 1, signs_of_life = signs_of_life + 1,
       checkpoint = coalesce(checkpoint, :first_checkpoint::jsonb)
 WHERE feed = :feed
RETURNING feed, buckets, clock_mode, settings, lease, signs_of_life, checkpoint::text AS checkpoint;

-- name: save_checkpoints!
UPDATE feeds f SET checkpoint = given.checkpoint::jsonb, signs_of_life = f.signs_of_life + 1
  FROM unnest(:feeds::text[], :leases::bigint[], :checkpoints::text[]) AS given (feed, lease, checkpoint)
 WHERE f.feed = given.feed AND f.lease = given.lease;

-- name: list_instruments
SELECT symbol, decimals FROM instruments WHERE feed = :feed ORDER BY symbol;

-- name: find_feeds_with_controls
SELECT DISTINCT feed FROM feed_controls WHERE feed = ANY (:feeds::text[]) AND published_at IS NULL ORDER BY feed;

-- name: lock_lease$
SELECT lease FROM feeds WHERE feed = :feed FOR NO KEY UPDATE;

-- name: number_controls!
-- Under lock_lease. A row that commits late, under a lower control_id, gets a later number: it is never skipped.
WITH fresh AS (
    SELECT control_id, row_number() OVER (ORDER BY control_id) AS place
      FROM (SELECT control_id FROM feed_controls
             WHERE feed = :feed AND control_number IS NULL AND published_at IS NULL
             ORDER BY control_id LIMIT :limit) AS waiting
), numbered AS (
    UPDATE feed_controls c SET control_number = f.last_control + fresh.place
      FROM fresh, feeds f
     WHERE c.control_id = fresh.control_id AND f.feed = :feed
    RETURNING c.control_number
)
UPDATE feeds SET last_control = (SELECT max(control_number) FROM numbered)
 WHERE feed = :feed AND EXISTS (SELECT 1 FROM numbered);

-- name: read_numbered_controls
SELECT control_id, control_number, bucket, payload FROM feed_controls
 WHERE feed = :feed AND published_at IS NULL AND control_number IS NOT NULL
 ORDER BY control_number
 LIMIT :limit;

-- name: mark_controls_published!
UPDATE feed_controls SET published_at = now()
 WHERE feed = :feed AND control_id = ANY (:control_ids::bigint[]) AND published_at IS NULL;
