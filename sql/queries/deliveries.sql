-- The ledger of deliveries. Times come from the notifier's clock.

-- name: insert_deliveries$
-- Only channels of the trigger's own owner. What is there already stays: the log repeats, also within a batch.
WITH inserted AS (
    INSERT INTO deliveries (trigger_id, channel_id, owner_id, body, status, last_error, next_attempt_at)
    SELECT t.trigger_id, c.channel_id, t.owner_id, w.body,
           CASE WHEN c.disabled_at IS NULL THEN 'PENDING' ELSE 'DEAD' END,
           CASE WHEN c.disabled_at IS NOT NULL THEN 'the channel is disabled' END,
           to_timestamp(:now_ms::bigint / 1000.0)
      FROM unnest(:trigger_ids::text[], :owner_ids::bigint[], :channel_ids::bigint[], :bodies::bytea[])
           AS w (trigger_id, owner_id, channel_id, body)
      JOIN triggers t ON t.trigger_id = w.trigger_id AND t.owner_id = w.owner_id
      JOIN channels c ON c.channel_id = w.channel_id AND c.owner_id = t.owner_id
     ORDER BY t.trigger_id, c.channel_id
    ON CONFLICT (trigger_id, channel_id) DO NOTHING
    RETURNING 1
)
SELECT count(*) FROM inserted;

-- name: claim_deliveries
-- A SENDING row is due again when its lease is over: whoever held it has died or is late. Nothing when :crowd rows or
-- more are due: the oldest may all be one owner's. Rows are ranked without locks, then locked in that order.
WITH due AS MATERIALIZED (
    SELECT trigger_id, channel_id, owner_id, next_attempt_at FROM deliveries
     WHERE status IN ('PENDING', 'SENDING') AND next_attempt_at <= to_timestamp(:now_ms::bigint / 1000.0)
     ORDER BY next_attempt_at
     LIMIT :crowd
), busy AS (
    SELECT o.owner_id, s.claims
      FROM (SELECT DISTINCT owner_id FROM due) o
     CROSS JOIN LATERAL (SELECT count(*) AS claims FROM deliveries d
                          WHERE d.owner_id = o.owner_id AND d.status = 'SENDING'
                            AND d.next_attempt_at > to_timestamp(:now_ms::bigint / 1000.0)) s
), ranked AS MATERIALIZED (
    SELECT due.*, b.claims + row_number() OVER (PARTITION BY due.owner_id
                                                ORDER BY due.next_attempt_at, due.trigger_id, due.channel_id) AS place
      FROM due JOIN busy b USING (owner_id)
     WHERE (SELECT count(*) FROM due) < :crowd
), held AS MATERIALIZED (
    SELECT d.trigger_id, d.channel_id
      FROM ranked r JOIN deliveries d ON d.trigger_id = r.trigger_id AND d.channel_id = r.channel_id
     WHERE r.place <= :owner_limit
       AND d.status IN ('PENDING', 'SENDING') AND d.next_attempt_at <= to_timestamp(:now_ms::bigint / 1000.0)
     ORDER BY r.place, r.next_attempt_at, r.trigger_id, r.channel_id
     LIMIT :limit
       FOR NO KEY UPDATE OF d SKIP LOCKED
)
UPDATE deliveries d
   SET status = 'SENDING', attempts = d.attempts + 1, token = d.token + 1,
       next_attempt_at = to_timestamp((:now_ms::bigint + :lease_ms::bigint) / 1000.0)
  FROM held, channels c
 WHERE d.trigger_id = held.trigger_id AND d.channel_id = held.channel_id AND c.channel_id = d.channel_id
RETURNING d.trigger_id, d.channel_id, d.owner_id, c.kind, c.address, c.secret, d.body, d.attempts, d.token,
          c.disabled_at IS NOT NULL AS disabled;

-- name: find_owners_in_turn
-- From owner to owner along the index, however many rows each has; none unless :crowd rows are due.
WITH RECURSIVE crowd (is_there) AS MATERIALIZED (
    SELECT count(*) >= :crowd FROM (
        SELECT 1 FROM deliveries
         WHERE status IN ('PENDING', 'SENDING') AND next_attempt_at <= to_timestamp(:now_ms::bigint / 1000.0)
         ORDER BY next_attempt_at
         LIMIT :crowd) d
), walk (owner_id, visited) AS (
    (SELECT owner_id, 1 FROM deliveries
      WHERE status IN ('PENDING', 'SENDING') AND owner_id > :after_owner_id AND (SELECT is_there FROM crowd)
      ORDER BY owner_id LIMIT 1)
    UNION ALL
    SELECT following.owner_id, w.visited + 1
      FROM walk w
     CROSS JOIN LATERAL (SELECT d.owner_id FROM deliveries d
                          WHERE d.status IN ('PENDING', 'SENDING') AND d.owner_id > w.owner_id
                          ORDER BY d.owner_id LIMIT 1) following
     WHERE w.visited < :limit
)
SELECT owner_id FROM walk ORDER BY owner_id;

-- name: claim_deliveries_of_owners
-- In the order of :owner_ids, of each the oldest, up to its bound.
WITH turn AS MATERIALIZED (
    SELECT t.owner_id, t.place,
           greatest(0, :owner_limit - (SELECT count(*) FROM deliveries d
                                        WHERE d.owner_id = t.owner_id AND d.status = 'SENDING'
                                          AND d.next_attempt_at > to_timestamp(:now_ms::bigint / 1000.0))) AS free
      FROM unnest(:owner_ids::bigint[]) WITH ORDINALITY AS t (owner_id, place)
), oldest AS MATERIALIZED (
    SELECT t.place, o.*
      FROM turn t
     CROSS JOIN LATERAL (
        SELECT * FROM (
            (SELECT d.trigger_id, d.channel_id, d.next_attempt_at FROM deliveries d
              WHERE d.owner_id = t.owner_id AND d.status = 'PENDING'
                AND d.next_attempt_at <= to_timestamp(:now_ms::bigint / 1000.0)
              ORDER BY d.next_attempt_at LIMIT t.free)
            UNION ALL
            (SELECT d.trigger_id, d.channel_id, d.next_attempt_at FROM deliveries d
              WHERE d.owner_id = t.owner_id AND d.status = 'SENDING'
                AND d.next_attempt_at <= to_timestamp(:now_ms::bigint / 1000.0)
              ORDER BY d.next_attempt_at LIMIT t.free)) either
         ORDER BY next_attempt_at, trigger_id, channel_id
         LIMIT t.free) o
), held AS MATERIALIZED (
    SELECT d.trigger_id, d.channel_id
      FROM oldest o JOIN deliveries d ON d.trigger_id = o.trigger_id AND d.channel_id = o.channel_id
     WHERE d.status IN ('PENDING', 'SENDING') AND d.next_attempt_at <= to_timestamp(:now_ms::bigint / 1000.0)
     ORDER BY o.place, o.next_attempt_at, o.trigger_id, o.channel_id
     LIMIT :limit
       FOR NO KEY UPDATE OF d SKIP LOCKED
)
UPDATE deliveries d
   SET status = 'SENDING', attempts = d.attempts + 1, token = d.token + 1,
       next_attempt_at = to_timestamp((:now_ms::bigint + :lease_ms::bigint) / 1000.0)
  FROM held, channels c
 WHERE d.trigger_id = held.trigger_id AND d.channel_id = held.channel_id AND c.channel_id = d.channel_id
RETURNING d.trigger_id, d.channel_id, d.owner_id, c.kind, c.address, c.secret, d.body, d.attempts, d.token,
          c.disabled_at IS NOT NULL AS disabled;

-- name: settle_deliveries!
UPDATE deliveries d
   SET status = s.status, last_error = s.last_error,
       next_attempt_at = to_timestamp(s.next_attempt_ms / 1000.0),
       delivered_at = CASE WHEN s.status = 'DELIVERED' THEN to_timestamp(:now_ms::bigint / 1000.0) END
  FROM unnest(:trigger_ids::text[], :channel_ids::bigint[], :tokens::bigint[], :statuses::text[], :errors::text[],
              :next_attempts_ms::bigint[]) AS s (trigger_id, channel_id, token, status, last_error, next_attempt_ms)
 WHERE d.trigger_id = s.trigger_id AND d.channel_id = s.channel_id AND d.token = s.token AND d.status = 'SENDING';

-- name: disable_channels!
UPDATE channels SET disabled_at = to_timestamp(:now_ms::bigint / 1000.0)
 WHERE channel_id = ANY (:channel_ids::bigint[]) AND disabled_at IS NULL;
