"""The whole audit of a world at rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import orjson

from contracts import frames_pb2 as pb
from contracts.keys import bucket_of, bucket_shard
from contracts.topics import DEAD_LETTERS, TICKS
from flink_jobs.domain.matcher import MatcherCore
from simulation.audit.finding import Finding
from simulation.audit.logs import PriceEntry, Row
from simulation.audit.moves import audit_moves
from simulation.audit.triggers import Trail, audit_expiry, audit_states, audit_ticks, follow
from simulation.plan import FaultKind, Feed, Role

if TYPE_CHECKING:
    from simulation.world import World
MAKES_DOUBT: Final = frozenset({FaultKind.ZOMBIE, FaultKind.CLOCK_JUMP})  # a lease is over when the wall clock says so

FLUSH: Final = -1
Said = Row | int  # a heartbeat's time, or FLUSH

MAY_DOUBLE: Final = frozenset({Role.NOTIFIER, Role.SEND, Role.TRIGGER_RELAY})  # faults here may send a message twice


def audit_world(world: World) -> list[Finding]:
    """Every invariant; empty when all hold."""
    trail = follow(world)
    found = [
        *_audit_gateway(world, trail),
        *audit_ticks(world, trail),
        *_audit_counts(world, trail),
        *_audit_controls(world, trail),
    ]
    found += [*audit_states(world, trail), *audit_expiry(world), *_audit_index(world, trail)]
    return [*found, *_audit_deliveries(world), *_audit_owners(world), *audit_moves(world)]


def _audit_gateway(world: World, trail: Trail) -> Iterator[Finding]:
    """Each bucket has what the source said of its symbols and to all, in that order, once."""
    feeds = {feed.name: feed for feed in world.plan.feeds}
    expected, refused, rubbish = _source_said(world, feeds)
    told = Counter[str]()
    for bucket_key, entries in trail.prices.items():
        said = [said for entry in entries if (said := _said(entry)) is not None]
        wanted = expected.pop(bucket_key, [])
        if world.plan.live:
            said, wanted = _as_live(said, feeds[bucket_key[0]]), _as_live(wanted, feeds[bucket_key[0]])
        if said != wanted:
            at = next((k for k, pair in enumerate(zip(said, wanted, strict=False)) if pair[0] != pair[1]), len(wanted))
            yield Finding(
                "gateway", f"{bucket_key}: entry {at} of {len(said)} is not what the source said ({len(wanted)})"
            )
        told[bucket_key[0]] += sum(entry for entry in entries if isinstance(entry, int))
    for bucket_key in expected:
        yield Finding("gateway", f"{bucket_key}: nothing of it in prices.v1")
    if told != refused:
        yield Finding("gateway", f"refused without a row: {dict(told)}, not {dict(refused)}")
    letters = (orjson.loads(record.value) for record in world.log.memory.records(DEAD_LETTERS.name))
    unburied = rubbish - {letter["position"] for letter in letters}
    if unburied:
        yield Finding("gateway", f"no dead letter for {sorted(unburied)}")


def _source_said(
    world: World, feeds: dict[str, Feed]
) -> tuple[dict[tuple[str, int], list[Said]], Counter[str], set[int]]:
    """What each bucket must hold; how much of each feed is refused without a row; positions of what is refused."""
    expected: dict[tuple[str, int], list[Said]] = {}
    refused = Counter[str]()
    rubbish = set()
    for record in world.log.memory.records(TICKS.name):
        body = orjson.loads(record.value)
        feed = feeds[body["feed"]]
        if body.get("type") == "marker":
            continue
        if "type" in body:
            for bucket in range(feed.buckets):
                expected.setdefault((feed.name, bucket), []).append(body.get("ts", FLUSH))
            continue
        row = _row(body, feed)
        if row is None or not row.price_scaled:
            rubbish.add(record.offset)
        if row is None:
            refused[feed.name] += 1
        else:
            expected.setdefault((feed.name, bucket_of(row.symbol, feed.buckets)), []).append(row)
    return expected, refused, rubbish


def _as_live(said: list[Said], feed: Feed) -> list[Said]:
    """The frontier is the gateway's own promise, and so are sequences where the source has none."""
    rows = [entry for entry in said if isinstance(entry, Row)]
    return list(rows) if feed.sequenced else [row._replace(sequence=0, session=0) for row in rows if row.price_scaled]


def _said(entry: PriceEntry) -> Said | None:
    """What of an entry is the source's."""
    if isinstance(entry, Row):
        return entry
    if isinstance(entry, int):
        return None
    kind = entry.WhichOneof("kind")
    if kind == "heartbeat":
        return int(entry.heartbeat.frontier_ms)
    return FLUSH if kind == "flush" else None


def _row(body: dict[str, Any], feed: Feed) -> Row | None:
    """None: refused, and nothing waits for its sequence."""
    if body["symbol"] not in feed.symbols:
        return None
    price = _scaled(body["price"], feed.symbols[body["symbol"]])
    sequence = body.get("seq", 0)
    if not price and not sequence:
        return None
    at_ms = body["ts"] if price else 0
    return Row(body["symbol"], at_ms, price, sequence, body.get("session", 0))


def _scaled(text: str, decimals: int) -> int:
    """0: no price."""
    whole, _, part = text.partition(".")
    if not whole.isdecimal() or (part and not part.isdecimal()) or text.endswith(".") or len(part) > decimals:
        return 0
    scale: int = 10**decimals
    return int(whole) * scale + int(part.ljust(decimals, "0") or "0")


def _audit_counts(world: World, trail: Trail) -> Iterator[Finding]:
    """The last marker of each bucket has come through, with the totals of the bucket's ticks."""
    progress = {row["shard"]: row for row in world.database.rows("shard_progress")}
    marked = {message.body["feed"] for message in world.plan.messages if message.body.get("type") == "marker"}
    for (feed, bucket), judge in trail.judges.items():
        if feed not in marked:  # only a shortened plan has none
            continue
        row = progress.get(bucket_shard(feed, bucket))
        if row is None:
            yield Finding("counts", f"{feed}/{bucket}: nothing of it is finalized")
            continue
        told = {name: row[name] for name in ("rejected", "duplicate", "late")}
        if told != judge.counts:
            yield Finding("counts", f"{row['shard']}: {told}, the oracle says {judge.counts}")
        if row["frontier_ms"] != judge.frontier_ms:
            yield Finding("frontier", f"{row['shard']}: {row['frontier_ms']}, the source said {judge.frontier_ms}")
        if row["marker_id"] != 1 or row["gap"] is not None:
            yield Finding("frontier", f"{row['shard']}: marker {row['marker_id']}, gap {row['gap']}")


def _audit_controls(world: World, trail: Trail) -> Iterator[Finding]:
    """Each bucket has the operator's words for it, in the order of their numbers."""
    wanted: dict[tuple[str, int], list[int]] = {}
    buckets = {feed.name: feed.buckets for feed in world.plan.feeds}
    for row in world.database.rows("feed_controls"):
        for bucket in range(buckets[row["feed"]]) if row["bucket"] is None else (row["bucket"],):
            wanted.setdefault((row["feed"], bucket), []).append(row["control_number"])
    for bucket_key, entries in trail.prices.items():
        numbers: list[int] = []
        for entry in entries:
            if isinstance(entry, pb.Control) and entry.control_number > (numbers[-1] if numbers else 0):
                numbers.append(entry.control_number)
        if numbers != sorted(wanted.get(bucket_key, [])):
            yield Finding("controls", f"{bucket_key}: {numbers}, declared were {sorted(wanted.get(bucket_key, []))}")


def _audit_index(world: World, trail: Trail) -> Iterator[Finding]:
    """I5: what the matcher holds is what is ACTIVE. A rule that was crossed after its end may be gone before its
    alert has EXPIRED."""
    newest_ms = {
        symbol: rows[-1][0] for judge in trail.judges.values() for symbol, rows in judge.emitted.items() if rows
    }
    active, over = Counter[str](), Counter[str]()
    for row in world.database.rows("alerts"):
        if row["status"] == "ACTIVE":
            active[row["shard"]] += 1
            over[row["shard"]] += row["expires_at_ms"] <= newest_ms.get(row["symbol"], 0)
    states = world.jobs[Role.MATCHER].checkpoints[-1].states
    for shard in sorted(active.keys() | states.keys()):
        held = MatcherCore(states[shard].copy(), shard, 1).metrics()["rules"] if shard in states else 0
        if not active[shard] - over[shard] <= held <= active[shard]:
            yield Finding("I5", f"{shard}: {held} rules in the index, {active[shard]} alerts ACTIVE")


def _audit_deliveries(world: World) -> Iterator[Finding]:
    """I4."""
    receivers = world.receivers
    rows = {(row["trigger_id"], row["channel_id"]): row for row in world.database.rows("deliveries")}
    channels = {row["channel_id"]: row for row in world.database.rows("channels")}
    known = set()
    for trigger in world.database.rows("triggers"):
        for channel_id in trigger["payload"]["channel_ids"]:
            known.add((trigger["trigger_id"], channel_id))
            if (trigger["trigger_id"], channel_id) not in rows:
                yield Finding("I4", f"{trigger['trigger_id']}: no ledger row for channel {channel_id}")
    for key, row in rows.items():
        name = f"{key[0]}_{key[1]}"
        if key not in known or channels[key[1]]["owner_id"] != row["owner_id"]:
            yield Finding("I6", f"{name}: a ledger row that no trigger asks for")
        count = receivers.received[name]
        if row["status"] == "DELIVERED" and count == 0:
            yield Finding("I4", f"{name} is DELIVERED and reached nobody")
        if row["status"] not in ("DELIVERED", "DEAD"):
            yield Finding("I4", f"{name} is {row['status']}")
        if count > row["attempts"]:
            yield Finding("I4", f"{name}: {count} times received in {row['attempts']} attempts")
        if len(receivers.bodies.get(name, ())) > 1:
            yield Finding("I4", f"{name}: different bodies under one id")
    for what in world.history.illegal:
        yield Finding("history", what)
    ambiguous = [fault for fault in world.faults.struck if fault.role in MAY_DOUBLE or fault.kind in MAKES_DOUBT]
    doubled = [name for name, count in receivers.received.items() if count > 1]
    if doubled and not ambiguous:
        yield Finding("I4", f"{doubled[0]}: sent twice, and nothing was in doubt")
    for name in receivers.foreign:
        yield Finding("I6", f"{name} went to another owner")


def _audit_owners(world: World) -> Iterator[Finding]:
    """I6, quotas, and one alert for each idempotency key."""
    clients = world.clients
    for what in clients.foreign:
        yield Finding("I6", what)
    alerts = {row["alert_id"]: row for row in world.database.rows("alerts")}
    of_key: dict[tuple[int, str], set[int]] = {}
    for row in world.database.rows("idempotency_keys"):
        of_key.setdefault((row["owner_id"], row["key"]), set()).add(row["alert_id"])
    for made in clients.made:
        of_this = of_key.get((made.owner + 1, made.key), set())
        if made.alert_id is not None and (of_this != {made.alert_id} or made.alert_id not in alerts):
            yield Finding("api", f"{made.key}: told alert {made.alert_id}, the table has {sorted(of_this)}")
    with_key = {alert_id for ids in of_key.values() for alert_id in ids}
    for alert_id in sorted(alerts.keys() - with_key):
        yield Finding("api", f"alert {alert_id}: nobody asked for it")
    for owner in world.database.rows("owners"):
        live = sum(
            row["owner_id"] == owner["owner_id"] and row["status"] in ("PENDING", "ACTIVE", "PAUSED")
            for row in alerts.values()
        )
        if owner["live_alerts"] != live:
            yield Finding("quota", f"{owner['name']}: {owner['live_alerts']} counted, {live} alerts live")
