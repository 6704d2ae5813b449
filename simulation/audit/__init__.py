"""Judges a simulated world that has come to rest: from its logs and its database's history, by the oracle.

Nothing here calls the product's own logic: logs are read by rules written down here once more.
"""
