"""The production classes in one process under a simulated clock, log, database and network; one seed, one history."""
