-- Claims become facts. All of a batch runs in one transaction, after its positions are locked.
-- Lock order everywhere: positions, then alerts, then owners; the sweeper never waits for an alert.
-- Conditions on a claimed alert stand in a CASE: the planner can't see into it. Its statistics lag behind: right after
-- a bulk of creates it thinks that no row is ACTIVE, would begin with "the one" that is, and compare all with all.

-- name: open_positions!
INSERT INTO consumer_positions (topic, partition, next_offset)
SELECT :topic, partition, 0 FROM generate_series(0, :partitions - 1) AS partition
 WHERE NOT EXISTS (SELECT 1 FROM consumer_positions WHERE topic = :topic)
ON CONFLICT DO NOTHING;

-- name: read_positions
SELECT partition, next_offset FROM consumer_positions WHERE topic = :topic ORDER BY partition;

-- name: lock_positions
-- In order of partition, so that two instances never wait for each other.
SELECT partition, next_offset FROM consumer_positions
 WHERE topic = :topic AND partition = ANY (:partitions::integer[])
 ORDER BY partition
   FOR UPDATE;

-- name: move_positions!
UPDATE consumer_positions p SET next_offset = m.next_offset
  FROM unnest(:partitions::integer[], :next_offsets::bigint[]) AS m (partition, next_offset)
 WHERE p.topic = :topic AND p.partition = m.partition;

-- name: read_progress
SELECT shard, epoch, number, position, frontier_ms, metrics_epoch, metrics_number, marker_id, rejected, duplicate, late, gap
  FROM shard_progress WHERE shard = ANY (:shards::text[]);

-- name: find_gaps
-- A shard with a gap is written again only when the gap is filled, so its row is as old as the gap.
SELECT shard, gap AS what, floor(extract(epoch FROM updated_at) * 1000)::bigint AS since_ms, count(*) OVER () AS shards
  FROM shard_progress WHERE gap IS NOT NULL
 ORDER BY updated_at, shard
 LIMIT :limit;

-- name: write_progress!
INSERT INTO shard_progress AS p
       (shard, epoch, number, position, frontier_ms, metrics_epoch, metrics_number, marker_id, rejected, duplicate, late, gap)
SELECT * FROM unnest(:shard::text[], :epoch::bigint[], :number::bigint[], :position::bigint[], :frontier_ms::bigint[],
                     :metrics_epoch::bigint[], :metrics_number::bigint[], :marker_id::bigint[], :rejected::bigint[],
                     :duplicate::bigint[], :late::bigint[], :gap::text[])
ON CONFLICT (shard) DO UPDATE
   SET epoch = excluded.epoch, number = excluded.number, position = excluded.position,
       frontier_ms = excluded.frontier_ms, metrics_epoch = excluded.metrics_epoch,
       metrics_number = excluded.metrics_number, marker_id = excluded.marker_id, rejected = excluded.rejected,
       duplicate = excluded.duplicate, late = excluded.late, gap = excluded.gap, updated_at = now();

-- name: activate_alerts!
UPDATE alerts a
   SET status = 'ACTIVE', active_from_event_time_ms = c.active_from_ms, active_epoch = c.epoch,
       active_position = c.position
  FROM unnest(:shard::text[], :alert_id::bigint[], :version::bigint[], :active_from_ms::bigint[], :epoch::bigint[],
              :position::bigint[]) AS c (shard, alert_id, version, active_from_ms, epoch, position)
 WHERE a.alert_id = c.alert_id
   AND CASE WHEN a.status = 'PENDING' THEN a.version = c.version AND a.shard = c.shard ELSE false END;

-- name: trigger_alerts
-- A claim holds when its alert is ACTIVE under its version and the crossing lies in the alert's lifetime.
-- Price texts come out of exact decimal arithmetic: scaled * 10^-decimals, trailing zeros trimmed.
WITH claim AS (
    SELECT * FROM unnest(:shard::text[], :alert_id::bigint[], :version::bigint[], :epoch::bigint[], :position::bigint[],
                         :event_time_ms::bigint[], :sequence::bigint[], :session::bigint[], :price_scaled::bigint[],
                         :fired::text[], :reference_time_ms::bigint[], :reference_price_scaled::bigint[],
                         :previous_bps::bigint[], :current_bps::bigint[], :previous_price_scaled::bigint[],
                         :previous_event_time_ms::bigint[])
           AS c (shard, alert_id, version, epoch, position, event_time_ms, sequence, session, price_scaled, fired,
                 reference_time_ms, reference_price_scaled, previous_bps, current_bps, previous_price_scaled,
                 previous_event_time_ms)
), fired AS (
    UPDATE alerts a
       SET status = 'TRIGGERED', ended_at = to_timestamp(:finalized_at_ms::bigint / 1000.0),
           trigger = jsonb_build_object(
               'event_time_ms', c.event_time_ms, 'sequence', nullif(c.sequence, 0), 'session', c.session,
               'price', trim_scale(c.price_scaled * ('1e-' || a.decimals)::numeric)::text,
               'window', a.rate_window, 'fired', c.fired,
               'position', c.position, 'epoch', c.epoch, 'version', c.version,
               'active_from_event_time_ms', a.active_from_event_time_ms, 'finalized_at_ms', :finalized_at_ms::bigint)
           || CASE a.kind
              WHEN 'change' THEN jsonb_build_object(
                  'reference_time_ms', c.reference_time_ms,
                  'reference_price', trim_scale(c.reference_price_scaled * ('1e-' || a.decimals)::numeric)::text,
                  'previous_bps', c.previous_bps, 'current_bps', c.current_bps)
              ELSE jsonb_build_object(
                  'previous_event_time_ms', c.previous_event_time_ms,
                  'previous_price', trim_scale(c.previous_price_scaled * ('1e-' || a.decimals)::numeric)::text)
              END
      FROM claim c
     WHERE a.alert_id = c.alert_id
       AND CASE WHEN a.status = 'ACTIVE'
                THEN a.version = c.version AND a.shard = c.shard
                     AND a.active_from_event_time_ms <= c.event_time_ms AND c.event_time_ms < a.expires_at_ms
                ELSE false END
    RETURNING a.*
), outbox AS (
    INSERT INTO triggers (trigger_id, alert_id, owner_id, payload)
    SELECT t.trigger_id, f.alert_id, f.owner_id,
           jsonb_build_object(
               'trigger_id', t.trigger_id, 'alert_id', f.alert_id, 'owner_id', f.owner_id, 'symbol', f.symbol,
               'kind', f.kind, 'window', f.rate_window, 'direction', f.direction,
               'threshold_bps', CASE WHEN f.kind = 'change' THEN f.threshold END,
               'target', CASE WHEN f.kind = 'price'
                              THEN trim_scale(f.threshold * ('1e-' || f.decimals)::numeric)::text END,
               'note', f.note, 'created_at_ms', f.created_at_ms, 'expires_at_ms', f.expires_at_ms,
               'channel_ids', to_jsonb(CASE WHEN f.channel_ids <> '{}' THEN f.channel_ids ELSE ARRAY(
                   SELECT c.channel_id FROM channels c
                    WHERE c.owner_id = f.owner_id AND c.disabled_at IS NULL ORDER BY c.channel_id) END),
               'evidence', f.trigger)
      FROM fired f
      -- stable for the alert, and another one when a database is built anew and counts from 1 again
      CROSS JOIN LATERAL (SELECT 'trg_' || f.alert_id || '_'
                                 || to_hex((extract(epoch FROM f.inserted_at) * 1000)::bigint)) AS t (trigger_id)
), commanded AS (
    INSERT INTO rule_commands (shard, alert_id, version, action)
    SELECT shard, alert_id, version, 'remove' FROM fired ORDER BY alert_id
)
SELECT alert_id, owner_id FROM fired;

-- name: release_places!
-- Ended alerts give their places in the owners' quotas back; owners are locked in order.
WITH held AS MATERIALIZED (
    SELECT o.owner_id, e.alerts
      FROM unnest(:owner_ids::bigint[], :alerts::bigint[]) AS e (owner_id, alerts) JOIN owners o USING (owner_id)
     ORDER BY o.owner_id
       FOR NO KEY UPDATE OF o
)
UPDATE owners o SET live_alerts = o.live_alerts - held.alerts FROM held WHERE o.owner_id = held.owner_id;

-- name: refuse_claims
-- After trigger_alerts: a claim whose alert is still ACTIVE under its version lay outside the lifetime. The matcher
-- has let go of the rule, so it is installed again, under a new version.
WITH refused AS (
    UPDATE alerts a
       SET status = 'PENDING', version = a.version + 1, active_from_event_time_ms = NULL, active_epoch = NULL,
           active_position = NULL
      FROM unnest(:shard::text[], :alert_id::bigint[], :version::bigint[]) AS c (shard, alert_id, version)
     WHERE a.alert_id = c.alert_id
       AND CASE WHEN a.status = 'ACTIVE' THEN a.version = c.version AND a.shard = c.shard ELSE false END
    RETURNING a.shard, a.alert_id, a.version
), commanded AS (
    INSERT INTO rule_commands (shard, alert_id, version, action)
    SELECT shard, alert_id, version, 'create' FROM refused ORDER BY alert_id
)
SELECT alert_id FROM refused;

-- name: find_shards_due
-- A sweep behind its frontier, or an alert that was committed late with its end behind the sweep.
SELECT p.shard, p.frontier_ms
  FROM shard_progress p
 WHERE p.swept_ms < p.frontier_ms
    OR EXISTS (SELECT 1 FROM alerts a
                WHERE a.shard = p.shard AND a.expires_at_ms <= p.frontier_ms
                  AND a.status IN ('PENDING', 'ACTIVE', 'PAUSED'))
 ORDER BY p.swept_ms, p.shard
 LIMIT :limit;

-- name: expire_alerts
-- Rows that a trigger or cancel holds are left to it; the next sweep sees what became of them.
WITH due AS MATERIALIZED (
    SELECT alert_id FROM alerts
     WHERE shard = :shard AND expires_at_ms <= :frontier_ms AND status IN ('PENDING', 'ACTIVE', 'PAUSED')
     ORDER BY expires_at_ms
     LIMIT :limit
       FOR NO KEY UPDATE SKIP LOCKED
), expired AS (
    UPDATE alerts a SET status = 'EXPIRED', ended_at = to_timestamp(:ended_at_ms::bigint / 1000.0)
     WHERE a.alert_id = ANY (ARRAY(SELECT alert_id FROM due)) AND a.status IN ('PENDING', 'ACTIVE', 'PAUSED')
    RETURNING a.alert_id, a.owner_id, a.shard, a.version
), commanded AS (
    INSERT INTO rule_commands (shard, alert_id, version, action)
    SELECT shard, alert_id, version, 'remove' FROM expired ORDER BY alert_id
)
SELECT owner_id FROM expired;

-- name: move_sweep!
-- Only when nothing that is committed lies behind the frontier any more.
UPDATE shard_progress p SET swept_ms = :frontier_ms
 WHERE p.shard = :shard AND p.swept_ms < :frontier_ms
   AND NOT EXISTS (SELECT 1 FROM alerts a
                    WHERE a.shard = :shard AND a.expires_at_ms <= :frontier_ms
                      AND a.status IN ('PENDING', 'ACTIVE', 'PAUSED'));
