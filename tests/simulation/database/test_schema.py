"""The tables in memory are those of the migrations: columns, keys, references, identities and what is left out."""

from __future__ import annotations

from typing import Any

from simulation.database.schema import Schema
from sql.connection import Pool

LEFT_OUT = {"api_keys", "latest_prices"}  # no simulated service asks for them
COLUMNS = """
    SELECT table_name, column_name, is_identity = 'YES' AS is_identity, column_default FROM information_schema.columns
     WHERE table_schema = current_schema ORDER BY table_name, ordinal_position"""
CONSTRAINTS = """
    SELECT c.conrelid::regclass::text AS table_name, c.contype::text AS kind, c.confrelid::regclass::text AS parent,
           ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY AS k (number, place)
                   JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number ORDER BY k.place) AS columns
      FROM pg_constraint c WHERE c.connamespace = current_schema::regnamespace AND c.contype IN ('p', 'u', 'f')
     ORDER BY c.contype, c.conname"""
# A unique index that leaves out rows without one of its own columns is a key like any other: NULLs are never equal.
UNIQUE_INDEXES = """
    SELECT i.indrelid::regclass::text AS table_name, columns
      FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid,
           LATERAL (SELECT array_agg(a.attname::text ORDER BY a.attnum) AS columns
                      FROM pg_attribute a WHERE a.attrelid = i.indexrelid) k
     WHERE c.relnamespace = current_schema::regnamespace AND i.indisunique
       AND pg_get_expr(i.indpred, i.indrelid) IN (SELECT format('(%I IS NOT NULL)', name) FROM unnest(columns) n (name))
     ORDER BY c.relname"""


def rows(pool: Pool, statement: str) -> list[dict[str, Any]]:
    with pool.connection() as connection:
        found = connection.execute(statement).fetchall()
    return [
        row
        for row in found
        if not row["table_name"].startswith(("_yoyo", "yoyo")) and row["table_name"] not in LEFT_OUT
    ]


def test_every_table_has_its_columns(suite_pool: Pool) -> None:
    found: dict[str, dict[str, Any]] = {}
    for row in rows(suite_pool, COLUMNS):
        found.setdefault(row["table_name"], {})[row["column_name"]] = row
    tables = Schema().tables()
    assert set(found) == set(tables)
    for name, columns in found.items():
        complete = tables[name].complete({}, 77)
        assert list(complete) == list(columns), name
        identity = [column for column, row in columns.items() if row["is_identity"]]
        assert [column for column in columns if complete[column] == 1 and column in identity] == identity
        for column, row in columns.items():
            if row["column_default"] == "now()":
                assert complete[column] == 77, (name, column)
            elif column not in identity:
                assert shown(complete[column]) == row["column_default"], (name, column)


def shown(value: Any) -> str | None:
    """A default as the catalogue prints it."""
    if value is None or isinstance(value, int):
        return None if value is None else str(value).lower()
    if value in ({}, []):
        return "'{}'::jsonb" if value == {} else "'{}'::bigint[]"
    return f"'{value}'::text"


def test_every_key_and_reference_is_there(suite_pool: Pool) -> None:
    keys: dict[str, list[tuple[str, ...]]] = {}
    references: dict[str, dict[str, str]] = {}
    for row in rows(suite_pool, CONSTRAINTS):
        if row["kind"] == "f":
            references.setdefault(row["table_name"], {})[row["columns"][0]] = row["parent"]
        else:
            keys.setdefault(row["table_name"], []).append(tuple(row["columns"]))
    for row in rows(suite_pool, UNIQUE_INDEXES):
        keys.setdefault(row["table_name"], []).append(tuple(row["columns"]))
    tables = Schema().tables()
    assert {name: [key.columns for key in table.keys] for name, table in tables.items()} == keys
    made = {name: {column: parent.name for column, parent in table.references} for name, table in tables.items()}
    assert {name: parents for name, parents in made.items() if parents} == references
