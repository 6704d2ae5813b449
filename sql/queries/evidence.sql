-- What the check of an alert's evidence needs beside the alert itself.

-- name: find_context^
-- The outbox row's times by the wall clock; the splits of the symbol as they are known now, oldest first.
SELECT i.feed, f.buckets,
       (extract(epoch FROM t.published_at) * 1000)::bigint AS published_at_ms,
       (SELECT (extract(epoch FROM min(d.delivered_at)) * 1000)::bigint FROM deliveries d
         WHERE d.trigger_id = t.trigger_id) AS delivered_at_ms
  FROM alerts a
  JOIN instruments i USING (symbol)
  JOIN feeds f USING (feed)
  JOIN triggers t USING (alert_id)
 WHERE a.alert_id = :alert_id AND a.owner_id = :owner_id;

-- name: list_splits
SELECT effective_from_ms, new_shares, old_shares FROM splits WHERE symbol = :symbol ORDER BY effective_from_ms;
