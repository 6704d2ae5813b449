"""Fixtures for every test; each file of `tests/fixtures` is a plugin with one concern."""

pytest_plugins = ["tests.fixtures.embedded", "tests.fixtures.migrated"]
