"""LogView and RaftStorage: what the core needs of a member's log, and the runner of its disk.

Two implementations: the controllers' log (journal_log.py) and DLedger's ledger
(broker/rocket/dledger).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shalott.broker.raft.api import Entry, HardState, Snapshot


class LogView(Protocol):
    """A member's own log as its storage has it. It must show all that was reported persisted, as of
    the last ``Truncate``, ``Install`` and ``Compact`` carried out; what it shows beyond that is not
    looked at: the core remembers itself what is not persisted yet.
    """

    @property
    def first_index(self) -> int:
        """Of the first entry that is still there; ``last_index + 1`` if there is none."""
        ...

    @property
    def last_index(self) -> int:
        """Of the last entry; of the snapshot if there is no entry after it; 0 if nothing is."""
        ...

    def term_at(self, index: int) -> int:
        """Asked for ``first_index - 1`` (the snapshot's term; 0 at 0) up to ``last_index``."""
        ...

    def entries(self, first: int, max_bytes: int) -> Sequence[Entry] | None:
        """Entries from ``first`` on, at least one if there is one, and no more than ``max_bytes``
        of data beyond that. None if they must be read from the disk: the core asks with ``Load``.
        """
        ...


class Proofs(Protocol):
    """What stands on the disk once it is durable: in which file, which bytes of it."""

    def vote(self, term: int, voted_for: str) -> tuple[str, bytes]: ...

    def entry(self, index: int) -> tuple[str, bytes]:
        """No bytes where an entry can't be told by any."""
        ...


class RaftStorage(LogView, Protocol):
    """Opened on what the last life left. Writes are taken at once and in order, and are durable
    after a ``flush`` that was begun later; LogView shows them at once.

    Errors are final (StorageError), but for DiskFull, after which a later ``flush`` tries again.
    """

    path: str  # which log this is: that of all members of the group

    @property
    def proofs(self) -> Proofs: ...

    @property
    def hard_state(self) -> HardState: ...

    @property
    def committed_index(self) -> int:
        """What is known to be committed: at least the snapshot's index, 0 without one."""
        ...

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest that is durable."""
        ...

    def set_hard_state(self, hard: HardState) -> None: ...

    def append(self, entries: Sequence[Entry]) -> None:
        """Entries whose first is ``last_index + 1``."""
        ...

    def truncate(self, from_index: int) -> None:
        """Remove the entries from this one on; never one that is committed."""
        ...

    def install(self, snapshot: Snapshot) -> None:
        """Replace the whole log; a crash leaves the old one or the new one."""
        ...

    def compact(self, snapshot: Snapshot) -> None:
        """Remember the snapshot and drop the entries that are in it."""
        ...

    async def flush(self) -> None:
        """Return when all that was written before this call is durable."""
        ...

    async def load(self, first: int, max_bytes: int) -> Sequence[Entry]:
        """As ``entries``, from the disk if need be. Empty if ``first`` is not there (any more)."""
        ...

    async def close(self) -> None: ...
