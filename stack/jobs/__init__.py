"""Flink jobs that are kept running: what should run, what was ever submitted, and from which state to go on."""
