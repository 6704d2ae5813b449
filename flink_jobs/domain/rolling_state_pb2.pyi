from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Base(_message.Message):
    __slots__ = ("frame_count", "epoch", "lease", "control_number", "rejected", "duplicate", "late", "audit_number", "shard_number", "routes", "order", "changes", "history", "frame_number")
    class ShardNumberEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    FRAME_COUNT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    CONTROL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    AUDIT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SHARD_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    FRAME_NUMBER_FIELD_NUMBER: _ClassVar[int]
    frame_count: int
    epoch: int
    lease: int
    control_number: int
    rejected: int
    duplicate: int
    late: int
    audit_number: int
    shard_number: _containers.ScalarMap[str, int]
    routes: _containers.RepeatedCompositeFieldContainer[Route]
    order: Order
    changes: Changes
    history: History
    frame_number: int
    def __init__(self, frame_count: _Optional[int] = ..., epoch: _Optional[int] = ..., lease: _Optional[int] = ..., control_number: _Optional[int] = ..., rejected: _Optional[int] = ..., duplicate: _Optional[int] = ..., late: _Optional[int] = ..., audit_number: _Optional[int] = ..., shard_number: _Optional[_Mapping[str, int]] = ..., routes: _Optional[_Iterable[_Union[Route, _Mapping]]] = ..., order: _Optional[_Union[Order, _Mapping]] = ..., changes: _Optional[_Union[Changes, _Mapping]] = ..., history: _Optional[_Union[History, _Mapping]] = ..., frame_number: _Optional[int] = ...) -> None: ...

class Route(_message.Message):
    __slots__ = ("symbol", "shards", "version", "previous_shards")
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SHARDS_FIELD_NUMBER: _ClassVar[int]
    symbol: str
    shards: int
    version: int
    previous_shards: int
    def __init__(self, symbol: _Optional[str] = ..., shards: _Optional[int] = ..., version: _Optional[int] = ..., previous_shards: _Optional[int] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("frontier_ms", "reorder_ms", "max_ahead_ms", "symbols", "live", "session", "last_sequence", "newest_time_ms", "last_time_ms", "waiting")
    FRONTIER_MS_FIELD_NUMBER: _ClassVar[int]
    REORDER_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_AHEAD_MS_FIELD_NUMBER: _ClassVar[int]
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NEWEST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    frontier_ms: int
    reorder_ms: int
    max_ahead_ms: int
    symbols: _containers.RepeatedScalarFieldContainer[str]
    live: bytes
    session: bytes
    last_sequence: bytes
    newest_time_ms: bytes
    last_time_ms: bytes
    waiting: _containers.RepeatedCompositeFieldContainer[Waiting]
    def __init__(self, frontier_ms: _Optional[int] = ..., reorder_ms: _Optional[int] = ..., max_ahead_ms: _Optional[int] = ..., symbols: _Optional[_Iterable[str]] = ..., live: _Optional[bytes] = ..., session: _Optional[bytes] = ..., last_sequence: _Optional[bytes] = ..., newest_time_ms: _Optional[bytes] = ..., last_time_ms: _Optional[bytes] = ..., waiting: _Optional[_Iterable[_Union[Waiting, _Mapping]]] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("slot", "held_time_ms", "held_price_scaled", "held_sequence", "void_runs", "gap_runs", "has_gaps")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    HELD_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    HELD_PRICE_SCALED_FIELD_NUMBER: _ClassVar[int]
    HELD_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    VOID_RUNS_FIELD_NUMBER: _ClassVar[int]
    GAP_RUNS_FIELD_NUMBER: _ClassVar[int]
    HAS_GAPS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    held_time_ms: bytes
    held_price_scaled: bytes
    held_sequence: bytes
    void_runs: bytes
    gap_runs: bytes
    has_gaps: bool
    def __init__(self, slot: _Optional[int] = ..., held_time_ms: _Optional[bytes] = ..., held_price_scaled: _Optional[bytes] = ..., held_sequence: _Optional[bytes] = ..., void_runs: _Optional[bytes] = ..., gap_runs: _Optional[bytes] = ..., has_gaps: bool = ...) -> None: ...

class Changes(_message.Message):
    __slots__ = ("reference_age_ms", "previous_floor_bps", "previous_negated_floor_bps", "last_price_scaled", "suppressed", "baseline", "splits")
    REFERENCE_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FLOOR_BPS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_NEGATED_FLOOR_BPS_FIELD_NUMBER: _ClassVar[int]
    LAST_PRICE_SCALED_FIELD_NUMBER: _ClassVar[int]
    SUPPRESSED_FIELD_NUMBER: _ClassVar[int]
    BASELINE_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    reference_age_ms: _containers.RepeatedScalarFieldContainer[int]
    previous_floor_bps: bytes
    previous_negated_floor_bps: bytes
    last_price_scaled: bytes
    suppressed: bytes
    baseline: bytes
    splits: _containers.RepeatedCompositeFieldContainer[SlotSplit]
    def __init__(self, reference_age_ms: _Optional[_Iterable[int]] = ..., previous_floor_bps: _Optional[bytes] = ..., previous_negated_floor_bps: _Optional[bytes] = ..., last_price_scaled: _Optional[bytes] = ..., suppressed: _Optional[bytes] = ..., baseline: _Optional[bytes] = ..., splits: _Optional[_Iterable[_Union[SlotSplit, _Mapping]]] = ...) -> None: ...

class SlotSplit(_message.Message):
    __slots__ = ("slot", "effective_from_ms", "new_shares", "old_shares")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    NEW_SHARES_FIELD_NUMBER: _ClassVar[int]
    OLD_SHARES_FIELD_NUMBER: _ClassVar[int]
    slot: int
    effective_from_ms: int
    new_shares: int
    old_shares: int
    def __init__(self, slot: _Optional[int] = ..., effective_from_ms: _Optional[int] = ..., new_shares: _Optional[int] = ..., old_shares: _Optional[int] = ...) -> None: ...

class History(_message.Message):
    __slots__ = ("first_block", "block_min_time_ms", "block_max_time_ms", "block_members", "member_bytes", "recent_slot", "recent_time_ms", "recent_price_scaled", "reference_time_ms", "reference_price_scaled", "next_block", "next_time_ms")
    FIRST_BLOCK_FIELD_NUMBER: _ClassVar[int]
    BLOCK_MIN_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_MAX_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECENT_SLOT_FIELD_NUMBER: _ClassVar[int]
    RECENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    RECENT_PRICE_SCALED_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_PRICE_SCALED_FIELD_NUMBER: _ClassVar[int]
    NEXT_BLOCK_FIELD_NUMBER: _ClassVar[int]
    NEXT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    first_block: int
    block_min_time_ms: bytes
    block_max_time_ms: bytes
    block_members: bytes
    member_bytes: int
    recent_slot: bytes
    recent_time_ms: bytes
    recent_price_scaled: bytes
    reference_time_ms: bytes
    reference_price_scaled: bytes
    next_block: bytes
    next_time_ms: bytes
    def __init__(self, first_block: _Optional[int] = ..., block_min_time_ms: _Optional[bytes] = ..., block_max_time_ms: _Optional[bytes] = ..., block_members: _Optional[bytes] = ..., member_bytes: _Optional[int] = ..., recent_slot: _Optional[bytes] = ..., recent_time_ms: _Optional[bytes] = ..., recent_price_scaled: _Optional[bytes] = ..., reference_time_ms: _Optional[bytes] = ..., reference_price_scaled: _Optional[bytes] = ..., next_block: _Optional[bytes] = ..., next_time_ms: _Optional[bytes] = ...) -> None: ...
