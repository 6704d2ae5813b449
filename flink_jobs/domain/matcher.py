"""The threshold matcher of one shard: its log becomes activations, candidates, frontiers and markers.

A pure function of the log. State: a header and what it names (runs of rules, symbols, tombstones), written when the
journal is folded, and a ring of journal entries, one put a record that changed anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from contracts import frames_pb2 as pb
from contracts.numbering import LastNumber, Reading
from flink_jobs.domain.candidate_writer import CandidateWriter
from flink_jobs.domain.frame_error import UnfinishedRecordError
from flink_jobs.domain.frame_queries import Queries, candidate_of, queries_of
from flink_jobs.domain.index_rows import Hits, Part
from flink_jobs.domain.matcher_journal import (
    HEADER_KEY,
    JOURNAL_BYTES,
    JOURNAL_RECORDS,
    SEEN_COLUMNS,
    Changes,
    Counters,
    decode_header,
    encode_entry,
    encode_header,
    entries_after,
    journal_key,
)
from flink_jobs.domain.price_basis import Split
from flink_jobs.domain.rule_commands import RuleBook, is_sound
from flink_jobs.domain.rule_pages import ALERT_ID
from flink_jobs.domain.shard_log_frames import MetricRows, parse_shard_log
from flink_jobs.domain.shard_protocols import REBUILD_COMMANDS, ShardProtocols
from flink_jobs.domain.state import Output, StateMap
from flink_jobs.domain.symbol_table import SymbolTable
from flink_jobs.domain.threshold_index import ThresholdIndex
from flink_jobs.domain.threshold_keys import Int64s
from flink_jobs.domain.tombstones import Tombstones

DELTA_ROWS: Final = 8_192


@dataclass(slots=True)
class MatcherActivity:
    """What one core has done since it was made; process-local, decides nothing."""

    candidates: int = 0
    activations: int = 0
    intervals: int = 0
    hits: int = 0
    refused_commands: int = 0
    ignored_known: int = 0
    ignored_gap: int = 0
    ignored_old_epoch: int = 0
    folds: int = 0


class MatcherCore:
    """One shard. Made on a non-empty state it goes on where that state's writer stood after its last whole record."""

    def __init__(self, state: StateMap, shard: str, epoch: int, delta_rows: int = DELTA_ROWS) -> None:
        """`epoch` numbers the candidates of a core without state; with state, the state's epoch stands."""
        self._state, self._shard, self._delta_rows = state, shard, delta_rows
        self.activity = MatcherActivity()
        self._journal_bytes = 0
        self._journaled = 0
        self._busy = False
        self._seen: list[Int64s] = []  # symbol numbers of the record's ticks
        header = state.get(HEADER_KEY)
        self._counters, symbols, directory = decode_header(header) if header else (Counters(epoch=epoch), 0, b"")
        tombstones = Tombstones.read(state, self._counters.first_tombstone, self._counters.next_tombstone)
        index = ThresholdIndex(state, directory)
        self._rules = RuleBook(SymbolTable.read(state, symbols), index, tombstones, [], index.highest_id)
        self._protocols = ShardProtocols.read(state, self._rules)
        for counters, changes in entries_after(state, self._counters.record):
            self._replay(counters, changes)

    def _replay(self, counters: Counters, changes: Changes) -> None:
        if counters.metrics_epoch > self._counters.metrics_epoch:
            self._rules.symbols.begin_epoch()
        for learnt in changes.learnt:
            if isinstance(learnt, str):
                self._rules.symbols.add(learnt)
            else:
                self._rules.symbols.add_split(*learnt)
        if changes.seen.shape[1]:
            self._rules.symbols.see_again(changes.seen)
        self._rules.index.replay(changes.installed, changes.removed[0], changes.removed[1])
        if changes.installed.shape[1]:
            self._rules.highest_id = max(self._rules.highest_id, int(changes.installed[ALERT_ID].max()))
        self._rules.tombstones.replay(changes.buried)
        self._counters = counters
        self._journaled += 1

    # ------------------------------------------------------------------------------ records
    def process(self, record: bytes) -> Iterator[Output]:
        """Apply one shard-log record; yields candidate frames of at most MAX_FRAME_ENTRIES as they fill.

        Take all of them before the next record (UnfinishedRecordError): the state is written behind the last one.
        Raises FrameError at the call, with the state untouched, when the record is no shard-log record of this shard.
        """
        if self._busy:
            raise UnfinishedRecordError
        frame = parse_shard_log(record, self._shard)
        counters = self._counters
        if isinstance(frame, MetricRows):
            last, count = LastNumber(counters.metrics_epoch, counters.metrics_number), frame.entries
        else:
            last, count = LastNumber(counters.commands_epoch, counters.commands_number), len(frame.commands)
        judged = last.judge(frame.epoch, frame.first_number, count)
        if not judged.applies:
            self.activity.ignored_known += judged.reading is Reading.KNOWN
            self.activity.ignored_gap += judged.reading is Reading.GAP
            self.activity.ignored_old_epoch += judged.reading is Reading.OLD_EPOCH
            return iter(())
        self._busy = True
        if isinstance(frame, MetricRows):
            if judged.reading is Reading.NEW_EPOCH:
                self._rules.symbols.begin_epoch()
            counters.metrics_epoch, counters.metrics_number = judged.last.epoch, judged.last.number
            return self._finish(self._metric_entries(frame, judged.skip))
        counters.commands_epoch, counters.commands_number = judged.last.epoch, judged.last.number
        return self._finish(self._command_entries(frame, judged.skip))

    def _finish(self, entries: Iterator[tuple[pb.CandidateEntry, int]]) -> Iterator[Output]:
        writer = CandidateWriter(self._shard, self._counters.epoch, self._counters.number)
        for entry, time_ms in entries:
            output = writer.add(entry, time_ms)
            if output is not None:
                yield output
        output = writer.flush()
        if output is not None:
            yield output
        self._counters.number = writer.last_number
        self._write()
        self._busy = False

    def _command_entries(self, frame: pb.CommandFrame, skip: int) -> Iterator[tuple[pb.CandidateEntry, int]]:
        counters = self._counters
        for command in list(frame.commands)[skip:]:
            counters.position += 1
            kind = command.WhichOneof("kind")
            rule = command.remove.rule if kind == "remove" else command.create.rule
            if kind in REBUILD_COMMANDS:
                for entry, time_ms in self._protocols.answer(command, counters.newest_ms):
                    entry.position = counters.position
                    self.activity.activations += entry.HasField("activation")
                    yield entry, time_ms
            elif not is_sound(rule):
                self.activity.refused_commands += 1
            elif kind == "remove":
                self._rules.remove(rule, counters.newest_ms)
            else:
                active_from_ms = self._rules.create(rule)
                if active_from_ms is not None:
                    self.activity.activations += 1
                    said = pb.Activation(alert_id=rule.alert_id, version=rule.version)
                    said.active_from_event_time_ms = active_from_ms
                    yield pb.CandidateEntry(position=counters.position, activation=said), active_from_ms

    # ------------------------------------------------------------------------------ metrics
    def _metric_entries(self, frame: MetricRows, skip: int) -> Iterator[tuple[pb.CandidateEntry, int]]:
        counters = self._counters
        places = [control.before_row for control in frame.controls]
        control = sum(place + before < skip for before, place in enumerate(places))
        row = skip - control
        position, number = counters.position - skip, frame.first_number
        of_symbol = np.array(self._rules.symbol_numbers(frame.symbols), np.int64)
        numbers = of_symbol[frame.symbol_index] if len(frame) else np.zeros(0, np.int64)
        for at in range(control, len(places) + 1):
            until = places[at] if at < len(places) else len(frame)
            if row < until:
                yield from self._match(frame, numbers, (row, until), position + at + 1)
                row = until
            if at < len(places):
                entry = pb.CandidateEntry(position=position + until + at + 1)
                yield from self._control(frame.controls[at], entry, frame.epoch, number + until + at)
        counters.position = position + frame.entries

    def _control(
        self, control: pb.Control, entry: pb.CandidateEntry, epoch: int, number: int
    ) -> Iterator[tuple[pb.CandidateEntry, int]]:
        """Apply a control that is entry `number` of the metrics. Those that a matcher has no part in only count."""
        counters = self._counters
        kind = control.WhichOneof("kind")
        if kind == "heartbeat":
            counters.newest_ms = max(counters.newest_ms, control.heartbeat.frontier_ms)
            entry.frontier.frontier_ms = control.heartbeat.frontier_ms
            entry.frontier.metrics_epoch, entry.frontier.metrics_number = epoch, number
            entry.frontier.counts.CopyFrom(control.heartbeat.counts)
            yield entry, control.heartbeat.frontier_ms
        elif kind == "marker":
            entry.marker.CopyFrom(control.marker)
            yield entry, counters.newest_ms
        elif kind == "split":
            split = control.split
            if split.symbol and split.new_shares and split.old_shares:
                self._rules.split(split.symbol, Split(split.effective_from_ms, split.new_shares, split.old_shares))
        elif kind == "routing":
            mark = self._protocols.routing(control.routing)
            if mark is not None:
                entry.routing.CopyFrom(mark)
                yield entry, counters.newest_ms

    def _match(
        self, frame: MetricRows, numbers: Int64s, ticks: tuple[int, int], first_position: int
    ) -> Iterator[tuple[pb.CandidateEntry, int]]:
        """Ticks [ticks[0], ticks[1]), tick k at position first_position + k; no control lies between them."""
        rows = slice(*ticks)
        seen, times = numbers[rows], frame.ticks["event_time_ms"][rows]
        fed_again = self._rules.symbols.see(seen, times)
        self._seen.append(seen)
        self._counters.newest_ms = max(self._counters.newest_ms, int(times.max()))
        queries = queries_of(frame, numbers, self._rules.symbols, ticks, self._rules.index.has_either)
        if fed_again is not None:
            queries = queries.where(~fed_again[queries.tick - ticks[0]])
        self.activity.intervals += len(queries.tick)
        hits = self._rules.index.search(*queries.key_intervals())
        if len(hits.query):
            yield from self._candidates(frame, queries, hits, first_position)

    def _candidates(
        self, frame: MetricRows, queries: Queries, hits: Hits, first_position: int
    ) -> Iterator[tuple[pb.CandidateEntry, int]]:
        """Hits move by move, in order; a rule that fires is out of the index before the next one is looked at."""
        self.activity.hits += len(hits.query)
        tick, rank = queries.tick[hits.query], queries.rank[hits.query]
        order = np.lexsort((rank, tick))
        tick, rank = tick[order], rank[order]
        begins = np.flatnonzero((np.diff(tick, prepend=-1) != 0) | (np.diff(rank, prepend=-1) != 0)).tolist()
        bounds = (queries.lowest[hits.query], queries.highest[hits.query])
        columns = [column[order].tolist() for column in (hits.place, hits.start, hits.end, *bounds)]
        parts = [Part(*part) for part in zip(*columns, strict=True)]
        for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
            claim, time_ms = candidate_of(frame, queries, int(hits.query[order[begin]]))
            for rule in self._rules.index.crossed(parts[begin:end], time_ms):
                self._rules.index.kill(rule.place, rule.row)
                self._protocols.fired(rule.alert_id, rule.version, self._counters.newest_ms)
                self.activity.candidates += 1
                entry = pb.CandidateEntry(position=first_position + int(tick[begin]), candidate=claim)
                entry.candidate.alert_id, entry.candidate.version = rule.alert_id, rule.version
                yield entry, time_ms

    # ------------------------------------------------------------------------------ state
    def _write(self) -> None:
        """One journal entry, or the fold that makes all of them superfluous."""
        counters, rules = self._counters, self._rules
        counters.record += 1
        counters.first_tombstone, counters.next_tombstone = rules.tombstones.first_number, rules.tombstones.next_number
        full = self._journaled + 1 >= JOURNAL_RECORDS or self._journal_bytes >= JOURNAL_BYTES
        if full or rules.index.delta_rows >= self._delta_rows or self._protocols.must_fold:
            self._fold()
        else:
            installed, places, rows = rules.index.changes()
            changes = Changes(
                rules.learnt, self._newest_seen(), installed, np.array([places, rows]), rules.tombstones.changes()
            )
            entry = encode_entry(counters, changes)
            self._state.put(journal_key(counters.record), entry)
            self._journaled += 1
            self._journal_bytes += len(entry)
        rules.learnt.clear()
        self._seen.clear()

    def _newest_seen(self) -> Int64s:
        if not self._seen:
            return np.zeros((SEEN_COLUMNS, 0), np.int64)
        return self._rules.symbols.times.columns(np.unique(np.concatenate(self._seen)))

    def _fold(self) -> None:
        rules = self._rules
        directory = rules.index.fold()
        rules.symbols.write(self._state)
        rules.tombstones.write(self._state)
        self._protocols.write(self._state)
        self._protocols.must_fold = False
        self._state.put(HEADER_KEY, encode_header(self._counters, len(rules.symbols.names), directory))
        self._journaled, self._journal_bytes = 0, 0
        self.activity.folds += 1

    def metrics(self) -> dict[str, int]:
        """Figures for monitoring: gauges of the shard, and counts since this core was made."""
        rules, activity = self._rules, self.activity
        return {
            "rules": rules.index.live_rules,
            "delta_rows": rules.index.delta_rows,
            "runs": rules.index.run_count,
            "symbols": len(rules.symbols.names),
            "tombstones": len(rules.tombstones),
            "position": self._counters.position,
            "rows_read": rules.index.reads.rows,
            "stale_rows": rules.index.reads.stale_rows,
            "pages_read": rules.index.pages.pages_read,
            "page_bytes_read": rules.index.pages.bytes_read,
            **{name: getattr(activity, name) for name in MatcherActivity.__slots__},
        }
