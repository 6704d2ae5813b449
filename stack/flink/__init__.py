"""The embedded Flink cluster: configuration, processes, REST API."""
