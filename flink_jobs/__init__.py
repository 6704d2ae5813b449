"""The two Flink jobs. Only the driving files import pyflink; `domain/` is their plain core."""
