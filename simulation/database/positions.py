"""Where the reading of a topic goes on: the statements that finalizer and notifier share."""

from __future__ import annotations

from finalizer.ports import Moves, PartitionCountError, PositionsMovedError
from simulation.database.engine import MemoryDatabase
from simulation.database.table import Row
from simulation.database.transaction import UPDATE, Transaction


def read_positions(database: MemoryDatabase, topic: str, partitions: int) -> dict[int, int]:
    """Partition -> next offset; written as 0 when the topic was never read. Raises PartitionCountError."""
    with database.transaction() as tx:
        open_positions(database, tx, topic, partitions)
        tx.statement("read_positions")
        rows = [row for row in tx.rows(database.consumer_positions) if row["topic"] == topic]
    if len(rows) != partitions:
        raise PartitionCountError(topic, len(rows), partitions)
    return {row["partition"]: row["next_offset"] for row in sorted(rows, key=lambda row: row["partition"])}


def open_positions(database: MemoryDatabase, tx: Transaction, topic: str, partitions: int) -> None:
    tx.statement("open_positions")
    table = database.consumer_positions
    if any(row["topic"] == topic for row in tx.rows(table)):
        return
    for partition in range(partitions):
        tx.insert_new(table, {"topic": topic, "partition": partition, "next_offset": 0})


def lock_positions(database: MemoryDatabase, tx: Transaction, topic: str, partitions: list[int]) -> list[Row]:
    """In order of partition, FOR UPDATE."""
    tx.statement("lock_positions")
    records = database.consumer_positions.primary.records
    found = [record for partition in partitions if (record := records.get((topic, partition))) is not None]
    return [tx.lock(record, UPDATE) for record in found if tx.see(record) is not None]


def move_positions(database: MemoryDatabase, tx: Transaction, moves: Moves) -> None:
    """Inside a transaction: as sql.finalizer_store.move_positions. Raises PositionsMovedError."""
    partitions = sorted(moves.offsets)
    rows = lock_positions(database, tx, moves.topic, partitions)
    found = {row["partition"]: row["next_offset"] for row in rows}
    if found != {partition: read_from for partition, (read_from, _) in moves.offsets.items()}:
        raise PositionsMovedError(moves.topic)
    write_positions(database, tx, moves)


def write_positions(database: MemoryDatabase, tx: Transaction, moves: Moves) -> None:
    tx.statement("move_positions")
    for partition in sorted(moves.offsets):
        record = database.consumer_positions.primary.records.get((moves.topic, partition))
        if record is not None and tx.see(record) is not None:
            tx.lock(record, UPDATE)
            tx.update(record, {"next_offset": moves.offsets[partition][1]})
