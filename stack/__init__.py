"""The `alerts` command line and the embedded stack: real Kafka, Postgres and Flink from packages, no Docker."""
