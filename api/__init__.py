"""REST API and web page: alerts of an owner, their channels, administration. `python -m api` serves it."""
