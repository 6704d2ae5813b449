-- Rows that nobody needs any more, a bounded page at a time. Rows that somebody holds are left for the next pass.

-- name: page_end$
-- The last alert of the page behind :after; NULL: there is none.
SELECT max(alert_id) FROM (SELECT alert_id FROM alerts WHERE alert_id > :after ORDER BY alert_id LIMIT :rows) page;

-- name: hold_ended
-- Alerts of (:after, :until] that ended before :before and of which nothing is under way: whole, as JSON, with trigger and deliveries.
SELECT a.alert_id, t.trigger_id,
       jsonb_build_object(
           'alert', to_jsonb(a), 'trigger', to_jsonb(t),
           'deliveries', (SELECT coalesce(jsonb_agg(to_jsonb(d) - 'body'), '[]') FROM deliveries d WHERE d.trigger_id = t.trigger_id)
       ) AS row
  FROM alerts a
  LEFT JOIN triggers t ON t.alert_id = a.alert_id
 WHERE a.alert_id > :after AND a.alert_id <= :until
   AND a.status IN ('TRIGGERED', 'CANCELLED', 'EXPIRED')
   AND a.ended_at < to_timestamp(:before_ms::bigint / 1000.0)
   AND (t.trigger_id IS NULL OR t.published_at IS NOT NULL)
   AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.trigger_id = t.trigger_id AND d.status IN ('PENDING', 'SENDING'))
   AND NOT EXISTS (SELECT 1 FROM rule_commands c WHERE c.published_at IS NULL AND c.alert_id = a.alert_id)
 ORDER BY a.alert_id
   FOR UPDATE OF a SKIP LOCKED;

-- name: drop_deliveries!
DELETE FROM deliveries WHERE trigger_id = ANY (:trigger_ids::text[]);

-- name: drop_triggers!
DELETE FROM triggers WHERE trigger_id = ANY (:trigger_ids::text[]);

-- name: drop_keys!
DELETE FROM idempotency_keys WHERE alert_id = ANY (:alert_ids::bigint[]);

-- name: drop_parked!
DELETE FROM parked_claims WHERE alert_id = ANY (:alert_ids::bigint[]);

-- name: drop_alerts!
DELETE FROM alerts WHERE alert_id = ANY (:alert_ids::bigint[]);

-- name: drop_commands^
-- Of the page of commands behind :after those that were published before :before_ms; the place to go on from.
WITH page AS (
    SELECT command_id FROM rule_commands WHERE command_id > :after ORDER BY command_id LIMIT :rows
), held AS (
    SELECT c.command_id FROM rule_commands c JOIN page USING (command_id)
     WHERE c.published_at < to_timestamp(:before_ms::bigint / 1000.0)
       FOR UPDATE OF c SKIP LOCKED
), dropped AS (
    DELETE FROM rule_commands c USING held WHERE c.command_id = held.command_id RETURNING c.command_id
)
SELECT (SELECT max(command_id) FROM page) AS until, (SELECT count(*) FROM dropped) AS dropped;
