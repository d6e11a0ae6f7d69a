"""What a node's metadata leave on its disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shalott.broker.base.disk import OsDisk
from shalott.broker.rabbit.metadata.journal import TableJournal
from shalott.broker.rabbit.metadata.records import ExchangeRow, PolicyRow, QueueRow
from shalott.broker.rabbit.metadata.tables import StoredRow, Tables

pytestmark = pytest.mark.unit


def policy(name: str) -> StoredRow:
    row = PolicyRow(vhost="/", name=name, pattern="^", definition={"ha-mode": "all"})
    return StoredRow("policy", name, 7, row)


def live_queue() -> StoredRow:
    return StoredRow(
        "queue", "q@/", 8, QueueRow(vhost="/", name="q", durable=True, auto_delete=False)
    )


def test_durable_rows_the_mark_and_the_nodes_seen_down_survive_a_kill(tmp_path: Path) -> None:
    async def body() -> None:
        disk = OsDisk(tmp_path)
        journal = await TableJournal.open(disk)
        await journal.write(8, [policy("a"), live_queue()])
        await journal.write(9, [StoredRow("policy", "b", 9, None)])
        await journal.note_down("n2")
        await journal.note_down("n3")
        await journal.note_up("n2")
        mark = journal.mark
        await disk.close()  # nothing was closed in order
        disk = OsDisk(tmp_path)
        again = await TableJournal.open(disk)
        assert again.rows == [policy("a"), StoredRow("policy", "b", 9, None)]
        assert list(again.saw_down) == ["n3"]
        assert again.mark == mark >= 9
        await again.close()
        await disk.close()

    asyncio.run(body())


def exchange(version: int, *, durable: bool) -> StoredRow:
    row = ExchangeRow(vhost="/", name="x", type="direct", durable=durable)
    return StoredRow("exchange", "x@/", version, row)


def test_transient_exchanges_do_not_survive_nor_bring_back_a_durable_one(tmp_path: Path) -> None:
    async def body() -> None:
        disk = OsDisk(tmp_path)
        journal = await TableJournal.open(disk)
        await journal.write(7, [exchange(7, durable=True)])
        await journal.write(8, [exchange(8, durable=False)])  # replaced in one transaction
        await journal.close()
        journal = await TableJournal.open(disk)
        assert journal.rows == [StoredRow("exchange", "x@/", 8, None)]
        tables = Tables()
        tables.store([exchange(9, durable=False)])
        await journal.replace(tables, saw_down=[])
        await journal.close()
        journal = await TableJournal.open(disk)
        assert journal.rows == [StoredRow("exchange", "x@/", 9, None)]
        await journal.close()
        await disk.close()

    asyncio.run(body())


def test_a_copy_of_anothers_tables_replaces_everything(tmp_path: Path) -> None:
    async def body() -> None:
        disk = OsDisk(tmp_path)
        journal = await TableJournal.open(disk)
        await journal.write(8, [policy("a")])
        await journal.note_down("n2")
        tables = Tables()
        tables.store([policy("c"), live_queue()])
        await journal.replace(tables, saw_down=[])
        await journal.close()
        again = await TableJournal.open(disk)
        assert again.rows == [policy("c")]
        assert not again.saw_down
        await again.close()
        await disk.close()

    asyncio.run(body())
