"""Is the process up, can it work, how far are the feeds."""
