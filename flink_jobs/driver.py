"""The PyFlink around a core: source of frames, key_by, one keyed function with one MapState, keyed sinks.

    prices.v1 ─► key ─► core (MapState) ─► main topic
                              ├─► side output: other topic
                              └─► side output: dead-letters.v1

Everything here is written against PyFlink 2.3.0 in process mode; docs/flink.md says why each line is as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pyflink.common import Configuration, Duration, Row, WatermarkStrategy
from pyflink.common.serialization import ByteArraySchema, RowFieldExtractorSchema
from pyflink.common.typeinfo import Types
from pyflink.datastream import DataStream, KeyedProcessFunction, OutputTag, StreamExecutionEnvironment
from pyflink.datastream.connectors import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
)
from pyflink.datastream.state import MapStateDescriptor
from pyflink.util.java_utils import get_j_env_configuration

from contracts.keys import MAX_PARALLELISM
from contracts.topics import DEAD_LETTERS, MAX_RECORD_BYTES, Topic
from flink_jobs.arguments import JobArguments
from flink_jobs.domain.state import Output, StateMap
from flink_jobs.frame_keys import UNREADABLE
from flink_jobs.keyed_state import KeyedState
from flink_jobs.refusals import refused_record
from flink_jobs.start_offsets import resolve_start

EXECUTION_MODE: Final = "process"
# Name and uid of the state. The mode is part of both: a savepoint of process mode read in thread mode is empty there
# without a word, so under another name it must be refused instead.
STATE_NAME: Final = f"core-{EXECUTION_MODE}"
IDLE_PARTITION_SECONDS: Final = 5

# Used where neither the cluster's configuration nor -D says anything.
DEFAULTS: Final = {
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "state.backend.type": "rocksdb",
    # between source and core; the default of 100 ms would be most of the path's latency
    "execution.buffer-timeout.interval": "3 ms",
    "python.fn-execution.bundle.size": "1000",
    "python.fn-execution.bundle.time": "3",
    # several writes of a key go to the JVM in one call; a bundle's end walks at most this many keys
    "python.state.cache-size": "64",
    "python.map-state.write-cache-size": "256",
    # cores keep their working set themselves
    "python.map-state.read-cache-size": "1",
}
_SINK_PROPERTIES: Final = {
    "acks": "all",
    "enable.idempotence": "true",
    # a broker that is away for minutes delays outputs; giving up would only restart the job into the same wait
    "delivery.timeout.ms": "600000",
    "request.timeout.ms": "30000",
    "linger.ms": "1",
    "batch.size": "131072",
    "compression.type": "lz4",
    "max.request.size": str(MAX_RECORD_BYTES),
}
_SOURCE_PROPERTIES: Final = {
    "max.partition.fetch.bytes": str(MAX_RECORD_BYTES),
    "fetch.max.wait.ms": "100",
}

_BYTES: Final = Types.PRIMITIVE_ARRAY(Types.BYTE())
_RECORD: Final = Types.ROW([_BYTES, _BYTES])


class RefusedRecordError(ValueError):
    """A core refuses a whole record, nothing of it was applied: it is dead-lettered and the job goes on."""


class ModeError(RuntimeError):
    """The job would run in another mode than its state was made for; `mode` is the one found."""

    def __init__(self, mode: str) -> None:
        super().__init__(
            f"python.execution-mode is {mode!r}, and this job's state belongs to {EXECUTION_MODE!r} mode: a savepoint"
            f" would silently restore empty; remove the setting or set it to {EXECUTION_MODE}"
        )
        self.mode = mode


class CheckpointModeError(RuntimeError):
    """Checkpoints that may count a record twice would give one number to two things."""

    def __init__(self, mode: str) -> None:
        super().__init__(f"execution.checkpointing.mode is {mode!r}; this job needs EXACTLY_ONCE, change or remove it")
        self.mode = mode


class Core(Protocol):
    """One key's core as the driver sees it."""

    def process(self, record: bytes) -> Iterable[tuple[str, Output]]:
        """(topic name, record to write), in order. Raises RefusedRecordError, with nothing applied."""
        ...

    def totals(self) -> dict[str, int]:
        """Counters that only rise, by metric name; read after the outputs of a record have been taken."""
        ...


@dataclass(frozen=True)
class CoreJob:
    """What distinguishes one job from the other. Everything in it is pickled by name."""

    name: str
    source: Topic
    main_output: Topic
    side_outputs: tuple[Topic, ...]
    key_of: Callable[[bytes], str]
    open_core: Callable[[StateMap, int, str], Core]  # state, epoch, key


class CoreFunction(KeyedProcessFunction):  # type: ignore[misc] # pyflink has no types
    """Holds one core a key in memory, made from the key's state when first needed."""

    def __init__(self, job: CoreJob, epoch: int) -> None:
        self._job = job
        self._epoch = epoch

    def open(self, runtime_context: Any) -> None:
        if ".embedded." in type(runtime_context).__module__:
            raise ModeError("thread")
        self._state = KeyedState(runtime_context.get_map_state(MapStateDescriptor(STATE_NAME, Types.STRING(), _BYTES)))
        self._cores: dict[str, Core] = {}
        self._tags = {topic.name: _side_output(topic) for topic in (*self._job.side_outputs, DEAD_LETTERS)}
        self._metrics = runtime_context.get_metrics_group()
        self._counters: dict[str, Any] = {}
        self._counted: dict[str, dict[str, int]] = {}

    def process_element(self, value: bytes, ctx: Any) -> Iterator[Row | tuple[OutputTag, Row]]:
        """Any error but a refusal is a fault of ours: it fails the job, whose restart repeats from the checkpoint."""
        key = ctx.get_current_key()
        self._count("records", 1)
        try:
            core, outputs = self._process(key, value)
        except RefusedRecordError as refused:
            self._count("dead_letters", 1)
            letter = refused_record(self._job.source.name, str(refused), value).model_dump_json()
            yield self._tags[DEAD_LETTERS.name], Row(key.encode(), letter.encode())
            return
        for topic, output in outputs:
            row = Row(output.key.encode(), output.value)
            yield row if topic == self._job.main_output.name else (self._tags[topic], row)
        self._count_totals(key, core)

    def _process(self, key: str, record: bytes) -> tuple[Core, Iterable[tuple[str, Output]]]:
        if key == UNREADABLE:
            raise RefusedRecordError(f"{len(record)} bytes without a readable key")
        core = self._cores.get(key)
        if core is not None:
            return core, core.process(record)
        core = self._job.open_core(self._state, self._epoch, key)
        totals = core.totals()
        outputs = core.process(record)
        # kept only now: rubbish that names a new key each time must not fill the memory
        self._cores[key], self._counted[key] = core, totals
        return core, outputs

    def _count(self, name: str, by: int) -> None:
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters[name] = self._metrics.counter(name)
        counter.inc(by)

    def _count_totals(self, key: str, core: Core) -> None:
        totals = core.totals()
        counted = self._counted[key]
        if totals == counted:
            return
        self._counted[key] = totals
        for name, total in totals.items():
            if total != counted[name]:
                self._count(name, total - counted[name])


def settings_beside(found: Mapping[str, str], arguments: JobArguments) -> dict[str, str]:
    """What the job adds to a configuration. Raises ModeError, CheckpointModeError."""
    mode = found.get("python.execution-mode", EXECUTION_MODE)
    if mode != EXECUTION_MODE:
        raise ModeError(mode)
    checkpointing = found.get("execution.checkpointing.mode", DEFAULTS["execution.checkpointing.mode"])
    if checkpointing.upper() != DEFAULTS["execution.checkpointing.mode"]:
        raise CheckpointModeError(checkpointing)
    wanted = {**DEFAULTS, "execution.checkpointing.interval": f"{arguments.checkpoint_interval_ms} ms"}
    missing = {name: value for name, value in wanted.items() if name not in found}
    return {**missing, "python.execution-mode": EXECUTION_MODE}


def build_environment(arguments: JobArguments) -> StreamExecutionEnvironment:
    """The environment with what the configuration leaves open. Raises ModeError, CheckpointModeError."""
    env = StreamExecutionEnvironment.get_execution_environment()
    configuration = Configuration()
    for name, value in settings_beside(_configured(env), arguments).items():
        configuration.set_string(name, value)
    env.configure(configuration)
    env.set_max_parallelism(MAX_PARALLELISM)
    if arguments.parallelism is not None:
        env.set_parallelism(arguments.parallelism)
    return env


def _configured(env: StreamExecutionEnvironment) -> dict[str, str]:
    return dict(get_j_env_configuration(env._j_stream_execution_environment).toMap())


def build_source(env: StreamExecutionEnvironment, job: CoreJob, arguments: JobArguments) -> DataStream:
    """Raw record values, watermarks per partition from the record timestamps."""
    topic = job.source.named(arguments.topic_prefix)
    offsets = resolve_start(arguments.bootstrap, topic, arguments.start)
    starting = KafkaOffsetsInitializer.offsets(
        {KafkaTopicPartition(topic, partition): offset for partition, offset in offsets.items()},
        KafkaOffsetResetStrategy.NONE,
    )
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(arguments.bootstrap)
        .set_topics(topic)
        .set_group_id(f"{arguments.topic_prefix}{job.name}")
        .set_client_id_prefix(f"{arguments.topic_prefix}{job.name}")
        .set_starting_offsets(starting)
        .set_value_only_deserializer(ByteArraySchema())
    )
    for name, value in _SOURCE_PROPERTIES.items():
        source = source.set_property(name, value)
    # no timestamp assigner: from_source ignores a Python one, and after it idleness would be lost
    watermarks = WatermarkStrategy.for_monotonous_timestamps().with_idleness(
        Duration.of_seconds(IDLE_PARTITION_SECONDS)
    )
    return env.from_source(source.build(), watermarks, topic, _BYTES).name(topic).uid(f"{job.name}-source")


def build_job(env: StreamExecutionEnvironment, job: CoreJob, arguments: JobArguments) -> None:
    """Wire source, key, core and sinks, each under a uid that never changes."""
    keyed = build_source(env, job, arguments).key_by(job.key_of, key_type=Types.STRING())
    adds_key = keyed._j_data_stream.getTransformation().getInputs().get(0)
    adds_key.setUid(f"{job.name}-key")
    main = keyed.process(CoreFunction(job, arguments.epoch), output_type=_RECORD)
    main = main.name(job.name).uid(f"{job.name}-{STATE_NAME}")
    _write(main, job.main_output, job, arguments)
    for topic in (*job.side_outputs, DEAD_LETTERS):
        # straight from Java: get_side_output would put an identity function in Python between
        side = DataStream(main._j_data_stream.getSideOutput(_side_output(topic).get_java_output_tag()))
        _write(side, topic, job, arguments)


def _side_output(topic: Topic) -> OutputTag:
    return OutputTag(topic.name, _RECORD)


def _write(records: DataStream, topic: Topic, job: CoreJob, arguments: JobArguments) -> None:
    """Keyed sink in the operator's own chain and parallelism: all records of a key go through one producer.

    A record's timestamp is that of the element that was processed.
    """
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic.named(arguments.topic_prefix))
        .set_key_serialization_schema(RowFieldExtractorSchema(0))
        .set_value_serialization_schema(RowFieldExtractorSchema(1))
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(arguments.bootstrap)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
    )
    for name, value in _SINK_PROPERTIES.items():
        sink = sink.set_property(name, value)
    records.sink_to(sink.build()).name(topic.named(arguments.topic_prefix)).uid(f"{job.name}-{topic.name}-sink")


def submit(job: CoreJob, arguments: JobArguments) -> None:
    """Build the job and hand it to the cluster that `flink run` names."""
    env = build_environment(arguments)
    build_job(env, job, arguments)
    env.execute(arguments.job_name or _configured(env).get("pipeline.name") or f"{arguments.topic_prefix}{job.name}")
