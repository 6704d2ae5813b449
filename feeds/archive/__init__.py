"""The price archive: every tick that the gateway accepted, in Parquet, exactly once; and each symbol's latest price."""
