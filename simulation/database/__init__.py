"""Postgres in memory: the tables, transactions and queries of `sql/`, isolated as READ COMMITTED isolates them."""
