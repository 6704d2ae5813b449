"""A tiny keyed job for the recovery test: counts per key in RocksDB, and remembers what made the state."""

import argparse
import uuid

from pyflink.common import SimpleStringSchema, Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from pyflink.datastream.state import MapStateDescriptor


class Count(KeyedProcessFunction):
    """Emits `key count birth`: `birth` is drawn once, when the key's state is made."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_map_state(MapStateDescriptor("counts", Types.STRING(), Types.STRING()))

    def process_element(self, value, ctx):  # type: ignore[no-untyped-def]
        birth = self._state.get("birth") or uuid.uuid4().hex
        count = int(self._state.get("count") or 0) + 1
        self._state.put("birth", birth)
        self._state.put("count", str(count))
        yield f"{value} {count} {birth}"


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("kafka", "source", "sink", "epoch"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(options.kafka)
        .set_topics(options.source)
        .set_group_id(f"{options.source}-reader")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(options.kafka)
        .set_record_serializer(
            KafkaRecordSerializationSchema.builder()
            .set_topic(options.sink)
            .set_value_serialization_schema(SimpleStringSchema())
            .build()
        )
        .set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        .build()
    )
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("source")
    counts = stream.key_by(lambda value: value, key_type=Types.STRING()).process(Count(), Types.STRING())
    counts.uid("count").sink_to(sink).uid("sink")
    env.execute("counting")


if __name__ == "__main__":
    main()
