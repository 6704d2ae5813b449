"""The matcher's rules word for word: every entry looks at every rule, in exact fractions. Shares no code with it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from contracts import frames_pb2 as pb
from tests.flink_jobs.domain.shard_log import (
    COMMANDS,
    DIRECTIONS,
    Assert,
    Begin,
    Create,
    End,
    Entry,
    Heartbeat,
    Marker,
    Reborn,
    Remove,
    Routed,
    Rule,
    Split,
    Tick,
)


class ReferenceMatcher:
    def __init__(self) -> None:
        self.installed: dict[int, tuple[Rule, int]] = {}  # alert -> rule, active_from
        self.removed: dict[int, int] = {}  # alert -> version
        self.newest: dict[str, int] = {}
        self.splits: dict[str, dict[int, Fraction]] = {}
        self.position = 0
        self.metrics_epoch, self.metrics_number = 1, 0
        self.applied: dict[str, int] = {}  # ticks of each symbol, those that are fed again left out
        self.fed: dict[str, int] = {}  # in this epoch
        self.routed: dict[str, tuple[int, int]] = {}  # newest (version, phase)
        self.rebuild: Begin | None = None
        self.old: set[int] = set()  # installed before the rebuild's begin, not asserted since
        self.out: list[pb.CandidateEntry] = []

    def run(self, log: Sequence[Entry]) -> list[pb.CandidateEntry]:
        for entry in log:
            if isinstance(entry, Reborn):
                self.metrics_epoch, self.metrics_number, self.fed = self.metrics_epoch + 1, 0, dict(entry.skipped)
                continue
            self.position += 1
            self.metrics_number += not isinstance(entry, COMMANDS)
            self.apply(entry)
        return self.out

    def apply(self, entry: Entry) -> None:
        if isinstance(entry, Create):
            self.create(entry.rule)
        elif isinstance(entry, Remove):
            rule = entry.rule
            if rule.alert_id in self.installed and self.installed[rule.alert_id][0].version <= rule.version:
                del self.installed[rule.alert_id]
            self.removed[rule.alert_id] = max(rule.version, self.removed.get(rule.alert_id, 0))
        elif isinstance(entry, Tick):
            self.tick(entry)
        elif isinstance(entry, Split):
            self.split(entry)
        elif isinstance(entry, Routed):
            self.route(entry)
        elif isinstance(entry, Begin):
            self.rebuild, self.old = entry, set(self.installed)
            self.mark(pb.RebuildMark(rebuild_id=entry.rebuild_id, step=pb.RebuildMark.BEGUN))
        elif isinstance(entry, Assert):
            self.assert_rules(entry)
        elif isinstance(entry, End):
            self.end(entry)
        elif isinstance(entry, Heartbeat):
            frontier = pb.Frontier(
                frontier_ms=entry.frontier_ms, metrics_epoch=self.metrics_epoch, metrics_number=self.metrics_number,
                counts=pb.Counts(late=4),
            )  # fmt: skip
            self.out.append(pb.CandidateEntry(position=self.position, frontier=frontier))
        elif isinstance(entry, Marker):
            self.out.append(pb.CandidateEntry(position=self.position, marker=pb.Marker(marker_id=entry.marker_id)))

    def split(self, split: Split) -> None:
        known = self.splits.setdefault(split.symbol, {})
        if split.effective_from_ms in known:
            return
        until = min((at_ms for at_ms in known if at_ms > split.effective_from_ms), default=1 << 62)
        known[split.effective_from_ms] = Fraction(split.new_shares, split.old_shares)
        for alert_id in [alert_id for alert_id in self.old if alert_id in self.installed]:
            rule = self.installed[alert_id][0]
            divided = rule.symbol == split.symbol and rule.window is None
            if divided and split.effective_from_ms <= rule.created_at_ms < until:
                self.old.discard(alert_id)  # a list that is divided is written anew

    def route(self, routed: Routed) -> None:
        phase = pb.Routing.Phase.Value(routed.phase)
        if (routed.version, phase) <= self.routed.get(routed.symbol, (0, 0)):
            return
        self.routed[routed.symbol] = routed.version, phase
        self.newest[routed.symbol] = max(self.newest.get(routed.symbol, 0), routed.newest_ms)
        if routed.phase == "END":
            self.installed = {a: (r, at) for a, (r, at) in self.installed.items() if r.symbol != routed.symbol}
        mark = pb.RoutingMark(symbol=routed.symbol, version=routed.version, phase=phase)
        self.out.append(pb.CandidateEntry(position=self.position, routing=mark))

    def mark(self, mark: pb.RebuildMark) -> None:
        self.out.append(pb.CandidateEntry(position=self.position, rebuild=mark))

    def assert_rules(self, page: Assert) -> None:
        if self.rebuild is None or self.rebuild.rebuild_id != page.rebuild_id:
            return
        mark = pb.RebuildMark(rebuild_id=page.rebuild_id, step=pb.RebuildMark.ASSERTED)
        for rule in page.rules:
            if self.rebuild.symbol not in ("", rule.symbol):
                continue
            there = self.installed.get(rule.alert_id)
            found = there[0].version if there else 0
            over = self.newest.get(rule.symbol, 0) >= rule.expires_at_ms
            if self.removed.get(rule.alert_id, 0) >= rule.version or (not found and over) or found == rule.version:
                mark.known += 1
                if self.removed.get(rule.alert_id, 0) < rule.version:
                    self.old.discard(rule.alert_id)
                continue
            kind = pb.Difference.OTHER_VERSION if found else pb.Difference.MISSING
            mark.missing += not found
            mark.other_version += bool(found)
            mark.differences.add(kind=kind, alert_id=rule.alert_id, version=rule.version, found_version=found)
            self.old.discard(rule.alert_id)
            if self.rebuild.repair:
                self.create(rule)
        self.mark(mark)

    def end(self, end: End) -> None:
        if self.rebuild is None or self.rebuild.rebuild_id != end.rebuild_id:
            return
        surplus = [
            self.installed[alert_id][0]
            for alert_id in sorted(self.old & set(self.installed))
            if self.rebuild.symbol in ("", self.installed[alert_id][0].symbol)
        ]
        mark = pb.RebuildMark(rebuild_id=end.rebuild_id, step=pb.RebuildMark.ENDED, surplus=len(surplus))
        for rule in surplus:
            mark.differences.add(kind=pb.Difference.SURPLUS, alert_id=rule.alert_id, version=rule.version)
            if self.rebuild.repair:
                del self.installed[rule.alert_id]
        self.mark(mark)
        self.rebuild, self.old = None, set()

    def create(self, rule: Rule) -> None:
        if self.removed.get(rule.alert_id, 0) >= rule.version:
            return
        if rule.alert_id in self.installed and self.installed[rule.alert_id][0].version > rule.version:
            return
        active_from = max(rule.created_at_ms, self.newest.get(rule.symbol, 0))
        self.installed[rule.alert_id] = (rule, active_from)
        self.old.discard(rule.alert_id)
        activation = pb.Activation(alert_id=rule.alert_id, version=rule.version, active_from_event_time_ms=active_from)
        self.out.append(pb.CandidateEntry(position=self.position, activation=activation))

    def tick(self, tick: Tick) -> None:
        fed = self.fed[tick.symbol] = self.fed.get(tick.symbol, 0) + 1
        if fed <= self.applied.get(tick.symbol, 0):
            return
        self.applied[tick.symbol] = fed
        self.newest[tick.symbol] = max(self.newest.get(tick.symbol, 0), tick.time_ms)
        claims = []
        for rule, active_from in list(self.installed.values()):
            if rule.symbol == tick.symbol and tick.time_ms >= rule.expires_at_ms and self.crosses(rule, tick):
                del self.installed[rule.alert_id]
            if rule.symbol != tick.symbol or not active_from <= tick.time_ms < rule.expires_at_ms:
                continue
            crossing = self.crosses(rule, tick)
            if crossing:
                place, claim = crossing
                claims.append((place, rule.threshold, rule.alert_id, claim))
        for _, _, alert_id, claim in sorted(claims, key=lambda claim: claim[:3]):
            claim.alert_id, claim.version = alert_id, self.installed.pop(alert_id)[0].version
            if self.rebuild is not None:
                self.removed[alert_id] = max(claim.version, self.removed.get(alert_id, 0))
            self.out.append(pb.CandidateEntry(position=self.position, candidate=claim))

    def crosses(self, rule: Rule, tick: Tick) -> tuple[tuple[int, int], pb.Candidate] | None:
        claim = pb.Candidate(
            event_time_ms=tick.time_ms, sequence=tick.sequence, session=tick.session, price_scaled=tick.price
        )
        if rule.window is None:
            side = self.price_side(rule, tick)
            if side is None or side != rule.direction:
                return None
            claim.fired = DIRECTIONS[side]
            claim.previous_price_scaled, claim.previous_event_time_ms = tick.previous_price, tick.previous_time_ms
            return (6, side == "BELOW"), claim
        for change in tick.changes:
            previous, current = Fraction(change.previous_half_bps, 2), Fraction(change.current_half_bps, 2)
            if change.window != rule.window:
                continue
            up, down = previous < rule.threshold <= current, -previous < rule.threshold <= -current
            if (up and rule.direction in ("UP", "EITHER")) or (down and rule.direction in ("DOWN", "EITHER")):
                claim.fired = pb.UP if up else pb.DOWN
                claim.window = rule.window
                claim.reference_time_ms, claim.reference_price_scaled = tick.time_ms - 60, tick.price + 5
                claim.previous_bps, claim.current_bps = previous.__floor__(), current.__floor__()
                return (rule.window, int(down)), claim
        return None

    def price_side(self, rule: Rule, tick: Tick) -> str | None:
        if not tick.previous_price:
            return None
        last, target = Fraction(tick.previous_price), Fraction(rule.threshold)
        for effective_from, ratio in self.splits.get(tick.symbol, {}).items():
            if tick.previous_time_ms < effective_from <= tick.time_ms:
                last /= ratio
            if rule.created_at_ms < effective_from <= tick.time_ms:
                target /= ratio
        if last < target <= tick.price:
            return "ABOVE"
        return "BELOW" if last > target >= tick.price else None
