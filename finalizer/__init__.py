"""Claims become facts: candidates to transitions, outboxes to the log, triggers to delivered messages."""
