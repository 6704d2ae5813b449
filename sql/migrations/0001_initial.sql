-- The whole first schema. Runs inside the environment's own schema (search_path is set by the caller).
-- Event times and lifetimes are epoch milliseconds (bigint, *_ms): they come from feeds, never from this clock.
-- Wall-clock stamps are timestamptz and decide nothing.

-- ------------------------------------------------------------------------------- feeds and reference data
CREATE TABLE feeds (
    feed            text PRIMARY KEY CHECK (feed ~ '^[a-z0-9][a-z0-9-]{0,30}$'),
    buckets         integer NOT NULL CHECK (buckets BETWEEN 1 AND 1024),
    clock_mode      text NOT NULL CHECK (clock_mode IN ('live', 'replay')),
    settings        jsonb NOT NULL DEFAULT '{}',
    lease           bigint NOT NULL DEFAULT 0,          -- raised by each gateway that takes the feed; fences the one before
    signs_of_life   bigint NOT NULL DEFAULT 0,          -- raised with every checkpoint: a standby takes the feed when it stands still
    last_control    bigint NOT NULL DEFAULT 0,          -- newest control_number assigned
    checkpoint      jsonb,                              -- where a new gateway's scan of prices.v1 begins, and what was known there (feeds/recovery.py)
    created_at      timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE instruments (
    symbol          text PRIMARY KEY,                   -- canonical spelling
    feed            text NOT NULL REFERENCES feeds,
    decimals        integer NOT NULL CHECK (decimals BETWEEN 0 AND 18),
    shards          integer NOT NULL DEFAULT 1 CHECK (shards BETWEEN 1 AND 1024),  -- virtual shards that new rules go to
    routing_version bigint NOT NULL DEFAULT 1,          -- of the newest reshard
    created_at      timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE splits (
    symbol            text NOT NULL REFERENCES instruments,
    effective_from_ms bigint NOT NULL,
    new_shares        bigint NOT NULL CHECK (new_shares > 0),
    old_shares        bigint NOT NULL CHECK (old_shares > 0),
    created_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (symbol, effective_from_ms)
);

-- Each symbol's newest accepted price, for the API to show; it decides nothing. Written once a second by the archive, in
-- place (fillfactor), without waiting for the disk. No foreign key: prices may come before an instrument's row is seen.
CREATE TABLE latest_prices (
    symbol          text PRIMARY KEY,
    event_time_ms   bigint NOT NULL,
    price_scaled    bigint NOT NULL,                    -- as printed by the feed, not adjusted for splits
    log_offset      bigint NOT NULL                     -- of prices.v1: which of two prices of one time is the later
) WITH (fillfactor = 60);

-- Outbox of everything that changes results (settings, instruments, splits, resumes, routing) into prices.v1.
-- The feed's gateway gives each committed row the next control_number under its lease, then publishes in that
-- order: a transaction that commits late under a lower control_id is not skipped, it gets a later number.
CREATE TABLE feed_controls (
    control_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    feed            text NOT NULL REFERENCES feeds,
    bucket          integer,                            -- NULL: to every bucket of the feed
    payload         bytea NOT NULL,                     -- alerts.v1.Control, without number
    control_number  bigint,
    published_at    timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (feed, control_number)
);
CREATE INDEX feed_controls_unpublished ON feed_controls (feed, control_id) WHERE published_at IS NULL;

-- ------------------------------------------------------------------------------- owners
CREATE TABLE owners (
    owner_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name            text NOT NULL UNIQUE,
    max_live_alerts bigint NOT NULL DEFAULT 1000000,
    live_alerts     bigint NOT NULL DEFAULT 0 CHECK (live_alerts >= 0),
    created_at      timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE api_keys (
    key_id          text PRIMARY KEY,                   -- public part, in logs
    key_hash        bytea NOT NULL,                     -- of the secret part; the key itself is nowhere
    owner_id        bigint NOT NULL REFERENCES owners,
    scopes          text[] NOT NULL DEFAULT '{alerts}', -- alerts, admin
    created_at      timestamptz NOT NULL DEFAULT now(),
    expires_at      timestamptz,
    revoked_at      timestamptz
);

CREATE TABLE channels (
    channel_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner_id        bigint NOT NULL REFERENCES owners,
    kind            text NOT NULL CHECK (kind IN ('email', 'webhook')),
    address         text NOT NULL,                      -- mail address or URL
    secret          bytea,                              -- webhook signing secret, encrypted by ALERTS_SECRET_KEY
    created_at      timestamptz NOT NULL DEFAULT now(),
    disabled_at     timestamptz,
    UNIQUE (owner_id, kind, address)
);

-- ------------------------------------------------------------------------------- alerts
CREATE TABLE alerts (
    alert_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner_id        bigint NOT NULL REFERENCES owners,
    symbol          text NOT NULL REFERENCES instruments,
    shard           text NOT NULL,                      -- contracts.keys.shard_of(...)
    kind            text NOT NULL CHECK (kind IN ('change', 'price')),
    rate_window     text CHECK (rate_window IN ('1m', '1h', '1d', '1w', '1mo', '1y')),
    direction       text NOT NULL CHECK (direction IN ('UP', 'DOWN', 'EITHER', 'ABOVE', 'BELOW')),
    threshold       bigint NOT NULL,                    -- bps, or scaled target as its owner wrote it
    decimals        integer NOT NULL,                   -- of the instrument when it was created
    note            text NOT NULL DEFAULT '',
    channel_ids     bigint[] NOT NULL DEFAULT '{}',     -- empty: every channel the owner has when it fires
    created_at_ms   bigint NOT NULL,                    -- market clock
    expires_at_ms   bigint NOT NULL,
    series_version  bigint NOT NULL DEFAULT 0,          -- splits of the symbol effective at created_at_ms
    -- PENDING -> ACTIVE -> TRIGGERED | CANCELLED | EXPIRED, PENDING -> CANCELLED | EXPIRED,
    -- ACTIVE -> PAUSED -> PENDING | CANCELLED | EXPIRED, ACTIVE -> PENDING (refused claim); see finalizer/domain/lifecycle.py
    status          text NOT NULL CHECK (status IN ('PENDING', 'ACTIVE', 'PAUSED', 'TRIGGERED', 'CANCELLED', 'EXPIRED')),
    version         bigint NOT NULL DEFAULT 1,          -- raised by each new activation; commands and claims carry it
    active_from_event_time_ms bigint,
    active_epoch    bigint,                             -- the activation's (epoch, position) in its shard
    active_position bigint,
    moving_to       text,                               -- the shard that is given the rule too, while a reshard is under way
    moving_epoch    bigint,                             -- the activation's (epoch, position) there: the new shard has it
    moving_position bigint,
    ended_at        timestamptz,
    trigger         jsonb,                              -- evidence, TRIGGERED only
    inserted_at     timestamptz NOT NULL DEFAULT now(),
    CHECK (expires_at_ms > created_at_ms),
    CHECK ((kind = 'change') = (rate_window IS NOT NULL)),
    CHECK ((kind = 'change') = (direction IN ('UP', 'DOWN', 'EITHER'))),
    CHECK ((status = 'TRIGGERED') = (trigger IS NOT NULL))
);
CREATE INDEX alerts_of_owner ON alerts (owner_id, alert_id);
CREATE INDEX alerts_live_of_owner ON alerts (owner_id, alert_id) WHERE status IN ('PENDING', 'ACTIVE', 'PAUSED');
CREATE INDEX alerts_expiring ON alerts (shard, expires_at_ms, alert_id) WHERE status IN ('PENDING', 'ACTIVE', 'PAUSED');

CREATE TABLE idempotency_keys (
    owner_id        bigint NOT NULL REFERENCES owners,
    key             text NOT NULL,
    request_hash    bytea NOT NULL,
    alert_id        bigint NOT NULL REFERENCES alerts,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner_id, key)
);
CREATE INDEX idempotency_keys_of_alert ON idempotency_keys (alert_id);  -- an alert leaves with its keys

-- ------------------------------------------------------------------------------- rule commands into the shard log
-- (epoch, number) is dense per shard, given under the shard's fence once the row is committed; then it never changes.
CREATE TABLE rule_commands (
    command_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shard           text NOT NULL,
    alert_id        bigint,                             -- create, remove
    version         bigint,
    action          text NOT NULL CHECK (action IN ('create', 'remove', 'rebuild')),
    payload         bytea,                              -- rebuild: alerts.v1.Command
    epoch           bigint,
    number          bigint,
    published_at    timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    CHECK ((action = 'rebuild') = (payload IS NOT NULL AND alert_id IS NULL AND version IS NULL))
);
CREATE UNIQUE INDEX rule_commands_numbered ON rule_commands (shard, epoch, number) WHERE number IS NOT NULL;
CREATE INDEX rule_commands_unnumbered ON rule_commands (command_id) WHERE number IS NULL AND published_at IS NULL;
CREATE INDEX rule_commands_unpublished ON rule_commands (shard, epoch, number) WHERE published_at IS NULL;

CREATE TABLE shard_relays (
    shard           text PRIMARY KEY,
    fence           bigint NOT NULL DEFAULT 0,          -- raised by each relay that takes the shard
    epoch           bigint NOT NULL DEFAULT 1,          -- raised, with numbers from 1, when a restored database is behind the log
    last_number     bigint NOT NULL DEFAULT 0
);

-- ------------------------------------------------------------------------------- reshard, rebuild
-- docs/architecture.md, "Reshard" and "Rebuild and verify". A row is the protocol's whole state: any driver goes on from it.
CREATE TABLE reshards (
    reshard_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    symbol          text NOT NULL REFERENCES instruments,
    version         bigint NOT NULL,                    -- instruments.routing_version that it makes
    old_shards      integer NOT NULL CHECK (old_shards BETWEEN 1 AND 1024),
    new_shards      integer NOT NULL CHECK (new_shards BETWEEN 1 AND 1024 AND new_shards <> old_shards),
    phase           text NOT NULL DEFAULT 'OPENING'
                    CHECK (phase IN ('OPENING', 'DRAINING', 'MARKING', 'COPYING', 'ENDING', 'SWITCHING', 'DONE')),
    copied          bigint NOT NULL DEFAULT 0,          -- rules given to the new shards as well
    switched        bigint NOT NULL DEFAULT 0,          -- alerts whose shard is a new one now
    requested_at    timestamptz NOT NULL DEFAULT now(),
    ended_at        timestamptz,
    UNIQUE (symbol, version)
);
CREATE UNIQUE INDEX reshards_open ON reshards (symbol) WHERE phase <> 'DONE';

-- Places of a symbol's routing that shards have come to, the newest version's of each phase.
CREATE TABLE routing_marks (
    shard           text NOT NULL,
    symbol          text NOT NULL,
    phase           text NOT NULL CHECK (phase IN ('OPEN', 'COPY', 'END')),
    version         bigint NOT NULL,
    epoch           bigint NOT NULL,                    -- of candidates.v1
    position        bigint NOT NULL,
    PRIMARY KEY (shard, symbol, phase)
);

-- Claims of new shards on alerts that are still the old ones' to decide.
CREATE TABLE parked_claims (
    alert_id        bigint NOT NULL REFERENCES alerts,
    version         bigint NOT NULL,
    shard           text NOT NULL,
    epoch           bigint NOT NULL,
    position        bigint NOT NULL,
    candidate       bytea NOT NULL,                     -- alerts.v1.Candidate
    taken           boolean NOT NULL DEFAULT false,     -- it has been decided
    PRIMARY KEY (alert_id, version)
);
CREATE INDEX parked_claims_of_shard ON parked_claims (shard);

-- One shard's; `symbol` NULL: every rule of it. Without `repair` it is only compared.
CREATE TABLE rebuilds (
    rebuild_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shard           text NOT NULL,
    symbol          text REFERENCES instruments,
    repair          boolean NOT NULL,
    phase           text NOT NULL DEFAULT 'BEGINNING'
                    CHECK (phase IN ('BEGINNING', 'ASSERTING', 'ENDING', 'DONE')),
    commands        bigint NOT NULL DEFAULT 0,          -- pages of rules sent into the shard log
    asserted        bigint NOT NULL DEFAULT 0,          -- rules on them
    begun           boolean NOT NULL DEFAULT false,     -- what the matcher has answered, from here on
    reported        bigint NOT NULL DEFAULT 0,          -- pages
    ended           boolean NOT NULL DEFAULT false,
    known           bigint NOT NULL DEFAULT 0,
    missing         bigint NOT NULL DEFAULT 0,
    other_version   bigint NOT NULL DEFAULT 0,
    surplus         bigint NOT NULL DEFAULT 0,
    differences     jsonb NOT NULL,                     -- the first of them by name
    requested_at    timestamptz NOT NULL DEFAULT now(),
    ended_at        timestamptz
);
CREATE UNIQUE INDEX rebuilds_open ON rebuilds (shard) WHERE phase <> 'DONE';

-- ------------------------------------------------------------------------------- what has been finalized
CREATE TABLE consumer_positions (
    topic           text NOT NULL,
    partition       integer NOT NULL,
    next_offset     bigint NOT NULL,
    PRIMARY KEY (topic, partition)
);

CREATE TABLE shard_progress (
    shard           text PRIMARY KEY,
    epoch           bigint NOT NULL DEFAULT 0,          -- last (epoch, number) of candidates.v1 applied
    number          bigint NOT NULL DEFAULT 0,
    position        bigint NOT NULL DEFAULT 0,
    frontier_ms     bigint NOT NULL DEFAULT 0,
    swept_ms        bigint NOT NULL DEFAULT 0,          -- the expiry sweeper's cursor
    metrics_epoch   bigint NOT NULL DEFAULT 0,
    metrics_number  bigint NOT NULL DEFAULT 0,
    marker_id       bigint NOT NULL DEFAULT 0,
    rejected        bigint NOT NULL DEFAULT 0,
    duplicate       bigint NOT NULL DEFAULT 0,
    late            bigint NOT NULL DEFAULT 0,
    gap             text,                               -- a named failure: numbers that nobody filled
    updated_at      timestamptz NOT NULL DEFAULT now()
);

-- Whether a reshard keeps an alert from expiring: its new shard has a claim that waits, or is not as far as its end.
CREATE FUNCTION is_held(a alerts) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT a.moving_to IS NOT NULL AND a.status = 'ACTIVE'
           AND (NOT EXISTS (SELECT 1 FROM shard_progress p WHERE p.shard = a.moving_to AND p.frontier_ms >= a.expires_at_ms)
                OR EXISTS (SELECT 1 FROM parked_claims c WHERE c.alert_id = a.alert_id AND c.version = a.version))
$$;

-- ------------------------------------------------------------------------------- triggers and their delivery
-- The outbox: exactly one row for each alert that is TRIGGERED, written in the same transaction.
CREATE TABLE triggers (
    trigger_id      text PRIMARY KEY,                   -- stable: derived from the alert
    -- no foreign key: the one statement that writes it has the alert's row in hand, and a check each cost a tenth of a burst
    alert_id        bigint NOT NULL UNIQUE,
    owner_id        bigint NOT NULL,
    payload         jsonb NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    published_at    timestamptz
);
CREATE INDEX triggers_unpublished ON triggers (created_at, trigger_id) WHERE published_at IS NULL;

-- One row per trigger and channel. A worker sends only under a token it holds; a late result with an old token changes nothing.
CREATE TABLE deliveries (
    trigger_id      text NOT NULL REFERENCES triggers,
    channel_id      bigint NOT NULL REFERENCES channels,
    owner_id        bigint NOT NULL,
    -- PENDING -> SENDING -> DELIVERED | DEAD | PENDING (retry)
    status          text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'SENDING', 'DELIVERED', 'DEAD')),
    body            bytea NOT NULL,                     -- what is sent, the same bytes on every try
    attempts        integer NOT NULL DEFAULT 0,
    token           bigint NOT NULL DEFAULT 0,          -- of the newest claim
    next_attempt_at timestamptz NOT NULL,               -- SENDING: the end of the claim's lease
    last_error      text,
    delivered_at    timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (trigger_id, channel_id)
);
CREATE INDEX deliveries_due ON deliveries (next_attempt_at) WHERE status IN ('PENDING', 'SENDING');
CREATE INDEX deliveries_of_owner ON deliveries (owner_id, status, next_attempt_at) WHERE status IN ('PENDING', 'SENDING');
