"""TableJournal: what a node's metadata leave on its own disk.

Durable rows, the high-water mark of versions (so that no version is ever given twice by this node,
though most rows are in memory only), and which nodes it saw go down (see booting.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from shalott.broker.base.disk import Disk
from shalott.broker.base.journal import Journal
from shalott.broker.rabbit.metadata.tables import StoredRow, Tables, durable_part

PATH = "metadata/tables.journal"
MARK_STEP = 1000
REWRITE_AFTER = 5000


class Rows(msgspec.Struct, frozen=True, array_like=True, tag="rows"):
    rows: tuple[StoredRow, ...]


class Mark(msgspec.Struct, frozen=True, array_like=True, tag="mark"):
    """No version above this one was given out yet."""

    version: int


class SawDown(msgspec.Struct, frozen=True, array_like=True, tag="saw_down"):
    nodes: tuple[str, ...]


Entry = Rows | Mark | SawDown

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Entry] = msgspec.msgpack.Decoder(Entry)


class TableJournal:
    """Made by ``open``. Everything is durable when the call that wrote it returns."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._appended = 0
        self._tables = Tables()  # durable rows only
        self.mark = 0
        self.saw_down: dict[str, None] = {}

    @classmethod
    async def open(cls, disk: Disk) -> TableJournal:
        journal = await Journal.open(disk, PATH)
        self = cls(journal)
        for record in journal.replay():
            match _decoder.decode(record):
                case Rows(rows):
                    self._tables.store(rows)
                case Mark(version):
                    self.mark = version
                case SawDown(nodes):
                    self.saw_down = dict.fromkeys(nodes)
        return self

    @property
    def rows(self) -> list[StoredRow]:
        return self._tables.snapshot()

    async def write(self, version: int, rows: Sequence[StoredRow]) -> None:
        """Keep the durable ones among ``rows``, and the fact that ``version`` was given out."""
        entries: list[Entry] = []
        durable = tuple(durable_part(rows))
        if durable:
            self._tables.store(durable)
            entries.append(Rows(durable))
        if version > self.mark:
            self.mark = version + MARK_STEP
            entries.append(Mark(self.mark))
        await self._append(entries)

    async def note_down(self, node: str) -> None:
        self.saw_down[node] = None
        await self._append([SawDown(tuple(self.saw_down))])

    async def note_up(self, node: str) -> None:
        if node in self.saw_down:
            del self.saw_down[node]
            await self._append([SawDown(tuple(self.saw_down))])

    async def replace(self, tables: Tables, *, saw_down: Iterable[str] = ()) -> None:
        """Forget everything; keep the durable rows of ``tables`` instead."""
        self._tables = Tables()
        self._tables.store(tables.snapshot(durable_only=True))
        self.mark = max(self.mark, tables.version + MARK_STEP)
        self.saw_down = dict.fromkeys(saw_down)
        await self._rewrite()

    async def close(self) -> None:
        await self._journal.close()

    async def _append(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        for entry in entries:
            self._journal.append(_encoder.encode(entry))
        self._appended += len(entries)
        await self._journal.flush()
        if self._appended > REWRITE_AFTER:
            await self._rewrite()

    async def _rewrite(self) -> None:
        entries: list[Entry] = [
            Rows(tuple(self._tables.snapshot())),
            Mark(self.mark),
            SawDown(tuple(self.saw_down)),
        ]
        await self._journal.rewrite([_encoder.encode(entry) for entry in entries])
        self._appended = 0
