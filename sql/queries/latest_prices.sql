-- Each symbol's newest accepted price. The archive writes it (feeds/archive), the API shows it.

-- name: write_latest_prices!
-- Only what is newer replaces: an archive that reads the log again takes nothing back.
INSERT INTO latest_prices AS known (symbol, event_time_ms, price_scaled, log_offset)
SELECT symbol, event_time_ms, price_scaled, log_offset
  FROM unnest(:symbols::text[], :event_times_ms::bigint[], :prices_scaled::bigint[], :log_offsets::bigint[])
    AS given (symbol, event_time_ms, price_scaled, log_offset)
ON CONFLICT (symbol) DO UPDATE
   SET event_time_ms = excluded.event_time_ms, price_scaled = excluded.price_scaled, log_offset = excluded.log_offset
 WHERE (known.event_time_ms, known.log_offset) < (excluded.event_time_ms, excluded.log_offset);

-- name: commit_without_waiting!
-- What a crash of the database takes back comes again with the symbol's next price.
SET LOCAL synchronous_commit = off;
