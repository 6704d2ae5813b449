"""The jobs' cores: plain objects that take records and return records. No pyflink, Kafka, Postgres, clock or random."""
