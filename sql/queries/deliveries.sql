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
-- A SENDING row is due again when its lease is over: whoever held it has died or is late.
WITH due AS MATERIALIZED (
    SELECT trigger_id, channel_id FROM deliveries
     WHERE status IN ('PENDING', 'SENDING') AND next_attempt_at <= to_timestamp(:now_ms::bigint / 1000.0)
     ORDER BY next_attempt_at
     LIMIT :limit
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries d
   SET status = 'SENDING', attempts = d.attempts + 1, token = d.token + 1,
       next_attempt_at = to_timestamp((:now_ms::bigint + :lease_ms::bigint) / 1000.0)
  FROM due, channels c
 WHERE d.trigger_id = due.trigger_id AND d.channel_id = due.channel_id AND c.channel_id = d.channel_id
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
