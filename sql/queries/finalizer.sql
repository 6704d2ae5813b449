-- Claims become facts. All of a batch runs in one transaction, after its positions are locked.
-- Lock order everywhere: positions, then alerts, then instruments, then owners; neither the sweeper nor a driver of
-- reshards ever waits for an alert.
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
    SELECT holder.shard, alert_id, version, 'remove'
      FROM fired f CROSS JOIN LATERAL (VALUES (1, f.shard), (2, f.moving_to)) AS holder (place, shard)
     WHERE holder.shard IS NOT NULL
     ORDER BY alert_id, holder.place
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

-- name: lock_refused
-- After trigger_alerts: a claim whose alert is still ACTIVE under its version lay outside the lifetime.
SELECT a.alert_id, a.symbol
  FROM unnest(:shard::text[], :alert_id::bigint[], :version::bigint[]) AS c (shard, alert_id, version)
  JOIN alerts a USING (alert_id)
 WHERE CASE WHEN a.status = 'ACTIVE' THEN a.version = c.version AND a.shard = c.shard ELSE false END
 ORDER BY a.alert_id
   FOR NO KEY UPDATE OF a;

-- name: lock_routes
-- Where rules of these symbols are installed, until the transaction ends.
SELECT i.symbol, i.feed, f.buckets, i.shards
  FROM instruments i JOIN feeds f USING (feed)
 WHERE i.symbol = ANY (:symbols::text[])
 ORDER BY i.symbol
   FOR SHARE OF i;

-- name: refuse_claims
-- The matcher has let go of the rule, so it is installed again, under a new version: where the routing says by now.
WITH refused AS (
    UPDATE alerts a
       SET status = 'PENDING', version = a.version + 1, shard = c.shard, active_from_event_time_ms = NULL,
           active_epoch = NULL, active_position = NULL, moving_to = NULL, moving_epoch = NULL, moving_position = NULL
      FROM unnest(:shard::text[], :alert_id::bigint[]) AS c (shard, alert_id)
     WHERE a.alert_id = c.alert_id AND a.status = 'ACTIVE'
    RETURNING a.shard, a.alert_id, a.version
), commanded AS (
    INSERT INTO rule_commands (shard, alert_id, version, action)
    SELECT shard, alert_id, version, 'create' FROM refused ORDER BY alert_id
)
SELECT alert_id FROM refused;

-- name: lock_moving
-- Claimed alerts that two shards hold: whichever of this batch and of the driver's switch comes first, the other sees it.
-- Without a reshard under way it reads nothing else.
SELECT a.alert_id FROM alerts a
 WHERE EXISTS (SELECT 1 FROM reshards WHERE phase <> 'DONE')
   AND a.alert_id = ANY (:alert_ids::bigint[]) AND a.status = 'ACTIVE' AND a.moving_to IS NOT NULL
 ORDER BY a.alert_id
   FOR NO KEY UPDATE;

-- name: park_claims!
-- After trigger_alerts: claims of new shards wait until the old ones have said all that they will ever say.
INSERT INTO parked_claims (alert_id, version, shard, epoch, position, candidate)
SELECT c.alert_id, c.version, c.shard, c.epoch, c.position, c.candidate
  FROM unnest(:shard::text[], :alert_id::bigint[], :version::bigint[], :epoch::bigint[], :position::bigint[],
              :candidate::bytea[]) AS c (shard, alert_id, version, epoch, position, candidate)
  JOIN alerts a USING (alert_id)
 WHERE a.status = 'ACTIVE' AND a.version = c.version AND a.moving_to = c.shard
ON CONFLICT DO NOTHING;

-- name: acknowledge_moves!
-- A new shard holds the rule too: installed behind its COPY mark, in the same life of its matcher.
UPDATE alerts a SET moving_epoch = c.epoch, moving_position = c.position
  FROM unnest(:shard::text[], :alert_id::bigint[], :version::bigint[], :epoch::bigint[], :position::bigint[])
       AS c (shard, alert_id, version, epoch, position)
 WHERE EXISTS (SELECT 1 FROM reshards WHERE phase = 'COPYING')
   AND a.alert_id = c.alert_id
   AND CASE WHEN a.status = 'ACTIVE'
            THEN a.version = c.version AND a.moving_to = c.shard AND a.moving_epoch IS NULL
                 AND EXISTS (SELECT 1 FROM routing_marks m
                              WHERE m.shard = c.shard AND m.symbol = a.symbol AND m.phase = 'COPY'
                                AND m.epoch = c.epoch AND m.position < c.position)
            ELSE false END;

-- name: write_routing_marks!
-- A matcher that has lost its state says them again under a higher epoch.
INSERT INTO routing_marks AS m (shard, symbol, phase, version, epoch, position)
SELECT * FROM unnest(:shard::text[], :symbol::text[], :phase::text[], :version::bigint[], :epoch::bigint[],
                     :position::bigint[])
ON CONFLICT (shard, symbol, phase) DO UPDATE
   SET version = excluded.version, epoch = excluded.epoch, position = excluded.position
 WHERE (excluded.version, excluded.epoch) > (m.version, m.epoch);

-- name: write_rebuild_marks!
UPDATE rebuilds r
   SET begun = r.begun OR m.begun, ended = r.ended OR m.ended, reported = r.reported + m.reported,
       known = r.known + m.known, missing = r.missing + m.missing, other_version = r.other_version + m.other_version,
       surplus = r.surplus + m.surplus,
       differences = r.differences || CASE WHEN jsonb_array_length(r.differences) < :max_differences
                                           THEN m.differences ELSE '[]' END
  FROM unnest(:rebuild_id::bigint[], :shard::text[], :begun::boolean[], :ended::boolean[], :reported::bigint[],
              :known::bigint[], :missing::bigint[], :other_version::bigint[], :surplus::bigint[],
              :differences::jsonb[])
       AS m (rebuild_id, shard, begun, ended, reported, known, missing, other_version, surplus, differences)
 WHERE r.rebuild_id = m.rebuild_id AND r.shard = m.shard AND r.phase <> 'DONE';

-- name: find_shards_due
-- A sweep behind its frontier, or an alert that was committed late with its end behind the sweep.
SELECT p.shard, p.frontier_ms
  FROM shard_progress p
 WHERE p.swept_ms < p.frontier_ms
    OR EXISTS (SELECT 1 FROM alerts a
                WHERE a.shard = p.shard AND a.expires_at_ms <= p.frontier_ms
                  AND a.status IN ('PENDING', 'ACTIVE', 'PAUSED') AND (a.moving_to IS NULL OR NOT is_held(a)))
 ORDER BY p.swept_ms, p.shard
 LIMIT :limit;

-- name: expire_alerts
-- Rows that a trigger or cancel holds are left to it; the next sweep sees what became of them.
WITH due AS MATERIALIZED (
    SELECT alert_id FROM alerts a
     WHERE shard = :shard AND expires_at_ms <= :frontier_ms AND status IN ('PENDING', 'ACTIVE', 'PAUSED')
       AND (a.moving_to IS NULL OR NOT is_held(a))
     ORDER BY expires_at_ms
     LIMIT :limit
       FOR NO KEY UPDATE SKIP LOCKED
), expired AS (
    UPDATE alerts a SET status = 'EXPIRED', ended_at = to_timestamp(:ended_at_ms::bigint / 1000.0)
     WHERE a.alert_id = ANY (ARRAY(SELECT alert_id FROM due)) AND a.status IN ('PENDING', 'ACTIVE', 'PAUSED')
    RETURNING a.alert_id, a.owner_id, a.shard, a.moving_to, a.version
), commanded AS (
    INSERT INTO rule_commands (shard, alert_id, version, action)
    SELECT holder.shard, alert_id, version, 'remove'
      FROM expired e CROSS JOIN LATERAL (VALUES (1, e.shard), (2, e.moving_to)) AS holder (place, shard)
     WHERE holder.shard IS NOT NULL
     ORDER BY alert_id, holder.place
)
SELECT owner_id FROM expired;

-- name: move_sweep!
-- Only when nothing that is committed lies behind the frontier any more; what a reshard holds is found once it is free.
UPDATE shard_progress p SET swept_ms = :frontier_ms
 WHERE p.shard = :shard AND p.swept_ms < :frontier_ms
   AND NOT EXISTS (SELECT 1 FROM alerts a
                    WHERE a.shard = :shard AND a.expires_at_ms <= :frontier_ms
                      AND a.status IN ('PENDING', 'ACTIVE', 'PAUSED') AND (a.moving_to IS NULL OR NOT is_held(a)));
