"""Create, list, read, cancel, pause and resume alerts."""
