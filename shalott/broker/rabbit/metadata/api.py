"""What the rest of the broker sees of the metadata: dirty reads here, writes through a transaction.

Reads are local and may be stale ("dirty" in Mnesia's words). ``transact`` runs its body against the
local tables, then commits what it wrote if every row that it read or wrote is still at the version
that it saw; otherwise the body runs again on fresher rows. So every write is compare-and-set on the
row's version: no node can overwrite a row with a stale snapshot. What only reads is not committed,
and may be stale, unless it is to be ``confirmed``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from shalott.broker.rabbit.metadata.records import Record
from shalott.broker.rabbit.processes.messages import Message, Pid

T = TypeVar("T")


class Row(msgspec.Struct, frozen=True):
    """A record at a version. A deleted row keeps its version, with no record, so that it can't come
    back.
    """

    version: int
    record: Record | None


class TableChanged(Message):
    """Sent to subscribers after a row changed on this node."""

    table: str
    key: str


class Transaction(Protocol):
    """Handed to a body: sees its own writes."""

    def read(self, table: str, key: str) -> Record | None: ...

    def version(self, table: str, key: str) -> int:
        """The version of the row as this transaction found it; 0 if it never existed."""
        ...

    def rows(self, table: str) -> list[tuple[str, Record]]:
        """All rows, sorted by key. Rows that appear later don't conflict; those listed do if they
        change.
        """
        ...

    def write(self, table: str, key: str, record: Record) -> None: ...

    def delete(self, table: str, key: str) -> None: ...


class Metadata(Protocol):
    """This node's view of the replicated tables."""

    def read(self, table: str, key: str) -> Record | None: ...

    def version(self, table: str, key: str) -> int: ...

    def rows(self, table: str) -> list[tuple[str, Record]]: ...

    async def transact(
        self,
        body: Callable[[Transaction], T],
        *,
        confirmed: bool = False,
        once: bool = False,
        timeout_ms: float = 30000,
    ) -> T:
        """Commit what ``body`` writes on every running node. The body may run more than once: no
        side effects.

        ``confirmed``: also if it writes nothing. What it read then was so at a moment between call
        and return, as far as a majority is needed for a write (else: as this side of a partition
        has it).

        ``once``: never write twice. A leader that dies may have done a write without saying so, and
        the body, run again, would do it once more, over what others wrote in between.

        Raises MetadataUnavailable when no leader took the write in time, or with ``once`` when it
        can't be known whether one did: the outcome is then unknown.
        """
        ...

    def running_nodes(self) -> list[str]:
        """Nodes that share these tables with us now, sorted, this one among them."""
        ...

    @property
    def needs_majority(self) -> bool:
        """Whether a write needs a majority of the listed nodes (raft_server.py)."""
        ...

    def is_in_majority(self) -> bool:
        """Whether this node may write, as far as it knows (always, where tables need no
        majority)."""
        ...

    def is_settled(self, table: str, key: str) -> bool:
        """Whether the row as this node sees it can't be undone any more (always, where tables need
        no majority)."""
        ...

    def subscribe(self, pid: Pid) -> None:
        """From now on ``pid`` gets TableChanged for every row that changes here, and
        ``broker.rabbit.metadata.messages.Membership`` when the running nodes change."""
        ...
