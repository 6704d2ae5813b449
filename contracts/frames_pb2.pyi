from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    CHANGE: _ClassVar[Kind]
    PRICE: _ClassVar[Kind]

class Direction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIRECTION_UNSPECIFIED: _ClassVar[Direction]
    UP: _ClassVar[Direction]
    DOWN: _ClassVar[Direction]
    EITHER: _ClassVar[Direction]
    ABOVE: _ClassVar[Direction]
    BELOW: _ClassVar[Direction]
KIND_UNSPECIFIED: Kind
CHANGE: Kind
PRICE: Kind
DIRECTION_UNSPECIFIED: Direction
UP: Direction
DOWN: Direction
EITHER: Direction
ABOVE: Direction
BELOW: Direction

class Control(_message.Message):
    __slots__ = ("before_row", "control_number", "heartbeat", "flush", "marker", "settings", "instrument", "split", "resume", "routing")
    BEFORE_ROW_FIELD_NUMBER: _ClassVar[int]
    CONTROL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    INSTRUMENT_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    ROUTING_FIELD_NUMBER: _ClassVar[int]
    before_row: int
    control_number: int
    heartbeat: Heartbeat
    flush: Flush
    marker: Marker
    settings: Settings
    instrument: Instrument
    split: Split
    resume: Resume
    routing: Routing
    def __init__(self, before_row: _Optional[int] = ..., control_number: _Optional[int] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., flush: _Optional[_Union[Flush, _Mapping]] = ..., marker: _Optional[_Union[Marker, _Mapping]] = ..., settings: _Optional[_Union[Settings, _Mapping]] = ..., instrument: _Optional[_Union[Instrument, _Mapping]] = ..., split: _Optional[_Union[Split, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., routing: _Optional[_Union[Routing, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("frontier_ms", "counts")
    FRONTIER_MS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    frontier_ms: int
    counts: Counts
    def __init__(self, frontier_ms: _Optional[int] = ..., counts: _Optional[_Union[Counts, _Mapping]] = ...) -> None: ...

class Flush(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Marker(_message.Message):
    __slots__ = ("marker_id", "counts")
    MARKER_ID_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    marker_id: int
    counts: Counts
    def __init__(self, marker_id: _Optional[int] = ..., counts: _Optional[_Union[Counts, _Mapping]] = ...) -> None: ...

class Counts(_message.Message):
    __slots__ = ("rejected", "duplicate", "late")
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    rejected: int
    duplicate: int
    late: int
    def __init__(self, rejected: _Optional[int] = ..., duplicate: _Optional[int] = ..., late: _Optional[int] = ...) -> None: ...

class Settings(_message.Message):
    __slots__ = ("reorder_ms", "reference_age_ms", "max_ahead_ms")
    class ReferenceAgeMsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    REORDER_MS_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_AHEAD_MS_FIELD_NUMBER: _ClassVar[int]
    reorder_ms: int
    reference_age_ms: _containers.ScalarMap[str, int]
    max_ahead_ms: int
    def __init__(self, reorder_ms: _Optional[int] = ..., reference_age_ms: _Optional[_Mapping[str, int]] = ..., max_ahead_ms: _Optional[int] = ...) -> None: ...

class Instrument(_message.Message):
    __slots__ = ("symbol", "decimals")
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    DECIMALS_FIELD_NUMBER: _ClassVar[int]
    symbol: str
    decimals: int
    def __init__(self, symbol: _Optional[str] = ..., decimals: _Optional[int] = ...) -> None: ...

class Split(_message.Message):
    __slots__ = ("symbol", "effective_from_ms", "new_shares", "old_shares")
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    NEW_SHARES_FIELD_NUMBER: _ClassVar[int]
    OLD_SHARES_FIELD_NUMBER: _ClassVar[int]
    symbol: str
    effective_from_ms: int
    new_shares: int
    old_shares: int
    def __init__(self, symbol: _Optional[str] = ..., effective_from_ms: _Optional[int] = ..., new_shares: _Optional[int] = ..., old_shares: _Optional[int] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("symbol",)
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    symbol: str
    def __init__(self, symbol: _Optional[str] = ...) -> None: ...

class Routing(_message.Message):
    __slots__ = ("symbol", "shards", "version", "previous_shards", "phase", "newest_event_time_ms")
    class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        AT_ONCE: _ClassVar[Routing.Phase]
        OPEN: _ClassVar[Routing.Phase]
        COPY: _ClassVar[Routing.Phase]
        END: _ClassVar[Routing.Phase]
    AT_ONCE: Routing.Phase
    OPEN: Routing.Phase
    COPY: Routing.Phase
    END: Routing.Phase
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SHARDS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    NEWEST_EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    symbol: str
    shards: int
    version: int
    previous_shards: int
    phase: Routing.Phase
    newest_event_time_ms: int
    def __init__(self, symbol: _Optional[str] = ..., shards: _Optional[int] = ..., version: _Optional[int] = ..., previous_shards: _Optional[int] = ..., phase: _Optional[_Union[Routing.Phase, str]] = ..., newest_event_time_ms: _Optional[int] = ...) -> None: ...

class PriceFrame(_message.Message):
    __slots__ = ("feed", "bucket", "lease", "symbols", "symbol_index", "event_time_ms", "price_scaled", "sequence", "session", "controls", "source_position", "rejected", "frame_number")
    class SourcePositionEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    FEED_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_INDEX_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PRICE_SCALED_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CONTROLS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_POSITION_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    FRAME_NUMBER_FIELD_NUMBER: _ClassVar[int]
    feed: str
    bucket: int
    lease: int
    symbols: _containers.RepeatedScalarFieldContainer[str]
    symbol_index: bytes
    event_time_ms: bytes
    price_scaled: bytes
    sequence: bytes
    session: bytes
    controls: _containers.RepeatedCompositeFieldContainer[Control]
    source_position: _containers.ScalarMap[str, int]
    rejected: int
    frame_number: int
    def __init__(self, feed: _Optional[str] = ..., bucket: _Optional[int] = ..., lease: _Optional[int] = ..., symbols: _Optional[_Iterable[str]] = ..., symbol_index: _Optional[bytes] = ..., event_time_ms: _Optional[bytes] = ..., price_scaled: _Optional[bytes] = ..., sequence: _Optional[bytes] = ..., session: _Optional[bytes] = ..., controls: _Optional[_Iterable[_Union[Control, _Mapping]]] = ..., source_position: _Optional[_Mapping[str, int]] = ..., rejected: _Optional[int] = ..., frame_number: _Optional[int] = ...) -> None: ...

class ShardLogRecord(_message.Message):
    __slots__ = ("metrics", "commands")
    METRICS_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    metrics: MetricFrame
    commands: CommandFrame
    def __init__(self, metrics: _Optional[_Union[MetricFrame, _Mapping]] = ..., commands: _Optional[_Union[CommandFrame, _Mapping]] = ...) -> None: ...

class MetricFrame(_message.Message):
    __slots__ = ("shard", "epoch", "first_number", "count", "symbols", "symbol_index", "event_time_ms", "price_scaled", "sequence", "session", "previous_price_scaled", "previous_event_time_ms", "change_row", "change_window", "previous_floor_bps", "previous_negated_floor_bps", "current_floor_bps", "current_negated_floor_bps", "reference_time_ms", "reference_price_scaled", "controls")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_INDEX_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PRICE_SCALED_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_PRICE_SCALED_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_ROW_FIELD_NUMBER: _ClassVar[int]
    CHANGE_WINDOW_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FLOOR_BPS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_NEGATED_FLOOR_BPS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FLOOR_BPS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_NEGATED_FLOOR_BPS_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_PRICE_SCALED_FIELD_NUMBER: _ClassVar[int]
    CONTROLS_FIELD_NUMBER: _ClassVar[int]
    shard: str
    epoch: int
    first_number: int
    count: int
    symbols: _containers.RepeatedScalarFieldContainer[str]
    symbol_index: bytes
    event_time_ms: bytes
    price_scaled: bytes
    sequence: bytes
    session: bytes
    previous_price_scaled: bytes
    previous_event_time_ms: bytes
    change_row: bytes
    change_window: bytes
    previous_floor_bps: bytes
    previous_negated_floor_bps: bytes
    current_floor_bps: bytes
    current_negated_floor_bps: bytes
    reference_time_ms: bytes
    reference_price_scaled: bytes
    controls: _containers.RepeatedCompositeFieldContainer[Control]
    def __init__(self, shard: _Optional[str] = ..., epoch: _Optional[int] = ..., first_number: _Optional[int] = ..., count: _Optional[int] = ..., symbols: _Optional[_Iterable[str]] = ..., symbol_index: _Optional[bytes] = ..., event_time_ms: _Optional[bytes] = ..., price_scaled: _Optional[bytes] = ..., sequence: _Optional[bytes] = ..., session: _Optional[bytes] = ..., previous_price_scaled: _Optional[bytes] = ..., previous_event_time_ms: _Optional[bytes] = ..., change_row: _Optional[bytes] = ..., change_window: _Optional[bytes] = ..., previous_floor_bps: _Optional[bytes] = ..., previous_negated_floor_bps: _Optional[bytes] = ..., current_floor_bps: _Optional[bytes] = ..., current_negated_floor_bps: _Optional[bytes] = ..., reference_time_ms: _Optional[bytes] = ..., reference_price_scaled: _Optional[bytes] = ..., controls: _Optional[_Iterable[_Union[Control, _Mapping]]] = ...) -> None: ...

class CommandFrame(_message.Message):
    __slots__ = ("shard", "epoch", "first_number", "commands")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    shard: str
    epoch: int
    first_number: int
    commands: _containers.RepeatedCompositeFieldContainer[Command]
    def __init__(self, shard: _Optional[str] = ..., epoch: _Optional[int] = ..., first_number: _Optional[int] = ..., commands: _Optional[_Iterable[_Union[Command, _Mapping]]] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("create", "remove", "begin_rebuild", "assert_rules", "end_rebuild")
    CREATE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_REBUILD_FIELD_NUMBER: _ClassVar[int]
    ASSERT_RULES_FIELD_NUMBER: _ClassVar[int]
    END_REBUILD_FIELD_NUMBER: _ClassVar[int]
    create: CreateRule
    remove: RemoveRule
    begin_rebuild: BeginRebuild
    assert_rules: AssertRules
    end_rebuild: EndRebuild
    def __init__(self, create: _Optional[_Union[CreateRule, _Mapping]] = ..., remove: _Optional[_Union[RemoveRule, _Mapping]] = ..., begin_rebuild: _Optional[_Union[BeginRebuild, _Mapping]] = ..., assert_rules: _Optional[_Union[AssertRules, _Mapping]] = ..., end_rebuild: _Optional[_Union[EndRebuild, _Mapping]] = ...) -> None: ...

class Rule(_message.Message):
    __slots__ = ("alert_id", "version", "symbol", "kind", "window", "direction", "threshold", "created_at_ms", "expires_at_ms")
    ALERT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    alert_id: int
    version: int
    symbol: str
    kind: Kind
    window: int
    direction: Direction
    threshold: int
    created_at_ms: int
    expires_at_ms: int
    def __init__(self, alert_id: _Optional[int] = ..., version: _Optional[int] = ..., symbol: _Optional[str] = ..., kind: _Optional[_Union[Kind, str]] = ..., window: _Optional[int] = ..., direction: _Optional[_Union[Direction, str]] = ..., threshold: _Optional[int] = ..., created_at_ms: _Optional[int] = ..., expires_at_ms: _Optional[int] = ...) -> None: ...

class CreateRule(_message.Message):
    __slots__ = ("rule",)
    RULE_FIELD_NUMBER: _ClassVar[int]
    rule: Rule
    def __init__(self, rule: _Optional[_Union[Rule, _Mapping]] = ...) -> None: ...

class RemoveRule(_message.Message):
    __slots__ = ("rule",)
    RULE_FIELD_NUMBER: _ClassVar[int]
    rule: Rule
    def __init__(self, rule: _Optional[_Union[Rule, _Mapping]] = ...) -> None: ...

class BeginRebuild(_message.Message):
    __slots__ = ("rebuild_id", "symbol", "repair", "event_time_ms")
    REBUILD_ID_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    REPAIR_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    rebuild_id: int
    symbol: str
    repair: bool
    event_time_ms: int
    def __init__(self, rebuild_id: _Optional[int] = ..., symbol: _Optional[str] = ..., repair: bool = ..., event_time_ms: _Optional[int] = ...) -> None: ...

class AssertRules(_message.Message):
    __slots__ = ("rebuild_id", "rules", "active_from_ms")
    REBUILD_ID_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    rebuild_id: int
    rules: _containers.RepeatedCompositeFieldContainer[Rule]
    active_from_ms: bytes
    def __init__(self, rebuild_id: _Optional[int] = ..., rules: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ..., active_from_ms: _Optional[bytes] = ...) -> None: ...

class EndRebuild(_message.Message):
    __slots__ = ("rebuild_id", "event_time_ms")
    REBUILD_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    rebuild_id: int
    event_time_ms: int
    def __init__(self, rebuild_id: _Optional[int] = ..., event_time_ms: _Optional[int] = ...) -> None: ...

class CandidateFrame(_message.Message):
    __slots__ = ("shard", "epoch", "first_number", "entries")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    shard: str
    epoch: int
    first_number: int
    entries: _containers.RepeatedCompositeFieldContainer[CandidateEntry]
    def __init__(self, shard: _Optional[str] = ..., epoch: _Optional[int] = ..., first_number: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[CandidateEntry, _Mapping]]] = ...) -> None: ...

class CandidateEntry(_message.Message):
    __slots__ = ("position", "activation", "candidate", "frontier", "marker", "routing", "rebuild")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    FRONTIER_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    ROUTING_FIELD_NUMBER: _ClassVar[int]
    REBUILD_FIELD_NUMBER: _ClassVar[int]
    position: int
    activation: Activation
    candidate: Candidate
    frontier: Frontier
    marker: Marker
    routing: RoutingMark
    rebuild: RebuildMark
    def __init__(self, position: _Optional[int] = ..., activation: _Optional[_Union[Activation, _Mapping]] = ..., candidate: _Optional[_Union[Candidate, _Mapping]] = ..., frontier: _Optional[_Union[Frontier, _Mapping]] = ..., marker: _Optional[_Union[Marker, _Mapping]] = ..., routing: _Optional[_Union[RoutingMark, _Mapping]] = ..., rebuild: _Optional[_Union[RebuildMark, _Mapping]] = ...) -> None: ...

class RoutingMark(_message.Message):
    __slots__ = ("symbol", "version", "phase")
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    symbol: str
    version: int
    phase: Routing.Phase
    def __init__(self, symbol: _Optional[str] = ..., version: _Optional[int] = ..., phase: _Optional[_Union[Routing.Phase, str]] = ...) -> None: ...

class RebuildMark(_message.Message):
    __slots__ = ("rebuild_id", "step", "known", "missing", "other_version", "surplus", "differences")
    class Step(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BEGUN: _ClassVar[RebuildMark.Step]
        ASSERTED: _ClassVar[RebuildMark.Step]
        ENDED: _ClassVar[RebuildMark.Step]
    BEGUN: RebuildMark.Step
    ASSERTED: RebuildMark.Step
    ENDED: RebuildMark.Step
    REBUILD_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    OTHER_VERSION_FIELD_NUMBER: _ClassVar[int]
    SURPLUS_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    rebuild_id: int
    step: RebuildMark.Step
    known: int
    missing: int
    other_version: int
    surplus: int
    differences: _containers.RepeatedCompositeFieldContainer[Difference]
    def __init__(self, rebuild_id: _Optional[int] = ..., step: _Optional[_Union[RebuildMark.Step, str]] = ..., known: _Optional[int] = ..., missing: _Optional[int] = ..., other_version: _Optional[int] = ..., surplus: _Optional[int] = ..., differences: _Optional[_Iterable[_Union[Difference, _Mapping]]] = ...) -> None: ...

class Difference(_message.Message):
    __slots__ = ("kind", "alert_id", "version", "found_version")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MISSING: _ClassVar[Difference.Kind]
        SURPLUS: _ClassVar[Difference.Kind]
        OTHER_VERSION: _ClassVar[Difference.Kind]
    MISSING: Difference.Kind
    SURPLUS: Difference.Kind
    OTHER_VERSION: Difference.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    ALERT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FOUND_VERSION_FIELD_NUMBER: _ClassVar[int]
    kind: Difference.Kind
    alert_id: int
    version: int
    found_version: int
    def __init__(self, kind: _Optional[_Union[Difference.Kind, str]] = ..., alert_id: _Optional[int] = ..., version: _Optional[int] = ..., found_version: _Optional[int] = ...) -> None: ...

class Activation(_message.Message):
    __slots__ = ("alert_id", "version", "active_from_event_time_ms")
    ALERT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FROM_EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    alert_id: int
    version: int
    active_from_event_time_ms: int
    def __init__(self, alert_id: _Optional[int] = ..., version: _Optional[int] = ..., active_from_event_time_ms: _Optional[int] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("alert_id", "version", "event_time_ms", "sequence", "session", "price_scaled", "fired", "window", "reference_time_ms", "reference_price_scaled", "previous_bps", "current_bps", "previous_price_scaled", "previous_event_time_ms")
    ALERT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PRICE_SCALED_FIELD_NUMBER: _ClassVar[int]
    FIRED_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_PRICE_SCALED_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_BPS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_BPS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_PRICE_SCALED_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    alert_id: int
    version: int
    event_time_ms: int
    sequence: int
    session: int
    price_scaled: int
    fired: Direction
    window: int
    reference_time_ms: int
    reference_price_scaled: int
    previous_bps: int
    current_bps: int
    previous_price_scaled: int
    previous_event_time_ms: int
    def __init__(self, alert_id: _Optional[int] = ..., version: _Optional[int] = ..., event_time_ms: _Optional[int] = ..., sequence: _Optional[int] = ..., session: _Optional[int] = ..., price_scaled: _Optional[int] = ..., fired: _Optional[_Union[Direction, str]] = ..., window: _Optional[int] = ..., reference_time_ms: _Optional[int] = ..., reference_price_scaled: _Optional[int] = ..., previous_bps: _Optional[int] = ..., current_bps: _Optional[int] = ..., previous_price_scaled: _Optional[int] = ..., previous_event_time_ms: _Optional[int] = ...) -> None: ...

class Frontier(_message.Message):
    __slots__ = ("frontier_ms", "metrics_epoch", "metrics_number", "counts")
    FRONTIER_MS_FIELD_NUMBER: _ClassVar[int]
    METRICS_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METRICS_NUMBER_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    frontier_ms: int
    metrics_epoch: int
    metrics_number: int
    counts: Counts
    def __init__(self, frontier_ms: _Optional[int] = ..., metrics_epoch: _Optional[int] = ..., metrics_number: _Optional[int] = ..., counts: _Optional[_Union[Counts, _Mapping]] = ...) -> None: ...

class AuditFrame(_message.Message):
    __slots__ = ("feed", "bucket", "epoch", "first_number", "entries")
    FEED_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    feed: str
    bucket: int
    epoch: int
    first_number: int
    entries: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    def __init__(self, feed: _Optional[str] = ..., bucket: _Optional[int] = ..., epoch: _Optional[int] = ..., first_number: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("symbol", "event_time_ms", "price_scaled", "sequence", "session", "reason")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[AuditEntry.Reason]
        AHEAD_OF_FEED: _ClassVar[AuditEntry.Reason]
        SEQUENCE_JUMP: _ClassVar[AuditEntry.Reason]
        DUPLICATE_SEQUENCE: _ClassVar[AuditEntry.Reason]
        BEHIND_EMITTED: _ClassVar[AuditEntry.Reason]
        BEHIND_FRONTIER: _ClassVar[AuditEntry.Reason]
        SESSION_OVER: _ClassVar[AuditEntry.Reason]
        UNKNOWN_SYMBOL: _ClassVar[AuditEntry.Reason]
        SUPPRESSED_BY_SPLIT: _ClassVar[AuditEntry.Reason]
        FENCED_LEASE: _ClassVar[AuditEntry.Reason]
        INVALID_PRICE: _ClassVar[AuditEntry.Reason]
    REASON_UNSPECIFIED: AuditEntry.Reason
    AHEAD_OF_FEED: AuditEntry.Reason
    SEQUENCE_JUMP: AuditEntry.Reason
    DUPLICATE_SEQUENCE: AuditEntry.Reason
    BEHIND_EMITTED: AuditEntry.Reason
    BEHIND_FRONTIER: AuditEntry.Reason
    SESSION_OVER: AuditEntry.Reason
    UNKNOWN_SYMBOL: AuditEntry.Reason
    SUPPRESSED_BY_SPLIT: AuditEntry.Reason
    FENCED_LEASE: AuditEntry.Reason
    INVALID_PRICE: AuditEntry.Reason
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PRICE_SCALED_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    symbol: str
    event_time_ms: int
    price_scaled: int
    sequence: int
    session: int
    reason: AuditEntry.Reason
    def __init__(self, symbol: _Optional[str] = ..., event_time_ms: _Optional[int] = ..., price_scaled: _Optional[int] = ..., sequence: _Optional[int] = ..., session: _Optional[int] = ..., reason: _Optional[_Union[AuditEntry.Reason, str]] = ...) -> None: ...
