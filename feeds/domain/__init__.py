"""The gateway's core: entries of a source in, frames and dead letters out. No clock, broker or database."""
