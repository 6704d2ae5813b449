"""The world that is handed into every service: clock, message log, settings, the loop that drives a service.

Cores take none of these. Services take the protocols, so that a simulation can hand in its own.
"""
