"""Tables: the rows themselves. Pure: no clock, no network, no disk.

Every change carries the version that the writer had read; a change whose row has moved on is
refused (RabbitMQ's internal_declare writes blindly, and that made two masters). Versions come
from one counter for all tables, so a row's version also orders it against every other change. A
deleted row stays as a tombstone with its version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from shalott.broker.rabbit.metadata.api import Row
from shalott.broker.rabbit.metadata.records import TABLES, BindingRow, ExchangeRow, Record


class Change(msgspec.Struct, frozen=True, array_like=True):
    """Set a row to ``record`` (None deletes it), or only require its version (``check_only``)."""

    table: str
    key: str
    expected: int  # the version that was read; 0 for a row that never existed
    record: Record | None = None
    check_only: bool = False


class StoredRow(msgspec.Struct, frozen=True, array_like=True):
    """A row with its address: what snapshots and the journal hold."""

    table: str
    key: str
    version: int
    record: Record | None


def durable_part(rows: Iterable[StoredRow]) -> list[StoredRow]:
    """What of these is kept on disk.

    A transient exchange or binding leaves its tombstone there: a durable one that had the same key
    before it must not come back either.
    """
    return [
        msgspec.structs.replace(row, record=None) if _is_transient(row.record) else row
        for row in rows
        if TABLES[row.table]
    ]


def _is_transient(record: Record | None) -> bool:
    return isinstance(record, ExchangeRow | BindingRow) and not record.durable


class Tables:
    """All rows of one node, and the highest version seen."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, Row]] = {table: {} for table in TABLES}
        self.version = 0

    def row(self, table: str, key: str) -> Row | None:
        """With its tombstone, if it was deleted."""
        return self._tables[table].get(key)

    def read(self, table: str, key: str) -> Record | None:
        row = self._tables[table].get(key)
        return None if row is None else row.record

    def row_version(self, table: str, key: str) -> int:
        row = self._tables[table].get(key)
        return 0 if row is None else row.version

    def rows(self, table: str) -> list[tuple[str, Record]]:
        found = [
            (key, row.record) for key, row in self._tables[table].items() if row.record is not None
        ]
        return sorted(found, key=lambda item: item[0])

    def conflicts(self, changes: Iterable[Change]) -> list[Change]:
        """The changes whose row is not at the version that they expect."""
        return [c for c in changes if self.row_version(c.table, c.key) != c.expected]

    def apply(self, version: int, changes: Sequence[Change]) -> list[StoredRow]:
        """Put the changes in force at ``version``. Returns the rows that were written."""
        written = [
            StoredRow(change.table, change.key, version, change.record)
            for change in changes
            if not change.check_only
        ]
        self.store(written)
        return written

    def store(self, rows: Iterable[StoredRow]) -> list[StoredRow]:
        """Take rows as they are, where they are newer than ours. Returns those that were taken."""
        taken = []
        for stored in rows:
            if stored.version > self.row_version(stored.table, stored.key):
                self._tables[stored.table][stored.key] = Row(stored.version, stored.record)
                taken.append(stored)
            self.version = max(self.version, stored.version)
        return taken

    def snapshot(self, *, durable_only: bool = False) -> list[StoredRow]:
        """Every row and tombstone, in a stable order; or what of them is kept on disk."""
        every = [
            StoredRow(table, key, row.version, row.record)
            for table, rows in self._tables.items()
            for key, row in sorted(rows.items())
        ]
        return durable_part(every) if durable_only else every

    def counts(self) -> dict[str, object]:
        return {table: len(self.rows(table)) for table in TABLES}


class LocalTransaction:
    """Collects what a body reads and writes (broker.rabbit.metadata.api.Transaction)."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._read: dict[tuple[str, str], int] = {}
        self._written: dict[tuple[str, str], Record | None] = {}

    def read(self, table: str, key: str) -> Record | None:
        if (table, key) in self._written:
            return self._written[table, key]
        self._note(table, key)
        return self._tables.read(table, key)

    def version(self, table: str, key: str) -> int:
        self._note(table, key)
        return self._tables.row_version(table, key)

    def rows(self, table: str) -> list[tuple[str, Record]]:
        merged = dict(self._tables.rows(table))
        for key in merged:
            self._note(table, key)
        for (written_table, key), record in self._written.items():
            if written_table == table:
                if record is None:
                    merged.pop(key, None)
                else:
                    merged[key] = record
        return sorted(merged.items(), key=lambda item: item[0])

    def write(self, table: str, key: str, record: Record) -> None:
        self._note(table, key)
        self._written[table, key] = record

    def delete(self, table: str, key: str) -> None:
        self._note(table, key)
        self._written[table, key] = None

    def _note(self, table: str, key: str) -> None:
        self._read.setdefault((table, key), self._tables.row_version(table, key))

    @property
    def writes(self) -> bool:
        return bool(self._written)

    def changes(self) -> tuple[Change, ...]:
        """Everything to commit: writes, and the versions of what was only read."""
        return tuple(
            Change(table, key, version, self._written[table, key])
            if (table, key) in self._written
            else Change(table, key, version, check_only=True)
            for (table, key), version in self._read.items()
        )
