"""Applier: hands committed entries to the state machine, in order, each once a life, and lets those
wait who want to hear that something is applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from shalott.broker.base.env import Witness, unseen
from shalott.broker.raft.api import Entry, Snapshot
from shalott.broker.raft.group import ProposalLost, ProposalTimeout, StateMachine, Submitted
from shalott.broker.raft.storage import RaftStorage

BATCH_BYTES = 1 << 20


class Applier:
    """``machine`` may be None: then what is committed counts as applied. ``load`` is called with
    the index of an entry that must be read from the disk; ``loaded`` is its answer."""

    def __init__(
        self,
        storage: RaftStorage,
        machine: StateMachine | None,
        load: Callable[[int], None],
        witness: Witness = unseen,
    ) -> None:
        self._storage = storage
        self._machine = machine
        self._load = load
        self._witness = witness
        self._loading = False
        self._submitted: dict[int, list[Submitted]] = {}
        self._readers: list[tuple[int, asyncio.Future[int]]] = []
        self.applied_index = 0
        self.snapshot_index = 0

    def begin(self) -> None:
        """Take the state that the disk has."""
        snapshot = self._storage.snapshot
        if snapshot is not None:
            self.restore(snapshot)

    def restore(self, snapshot: Snapshot) -> None:
        if self._machine is not None:
            self._machine.restore(snapshot)
        self.applied_index = self.snapshot_index = snapshot.index
        for index in [index for index in self._submitted if index <= snapshot.index]:
            for submitted in self._submitted.pop(index):
                fail(submitted.committed, ProposalTimeout("a snapshot has come instead"))
        self._wake_readers()

    def take_snapshot(self) -> Snapshot | None:
        """Of what is applied now; None if there is no state machine."""
        if self._machine is None:
            return None
        index = self.applied_index
        return Snapshot(index, self._storage.term_at(index), self._machine.take_snapshot())

    @property
    def waiting(self) -> int:
        """For what is not applied yet: proposers and readers."""
        return sum(map(len, self._submitted.values())) + len(self._readers)

    # -- waiting -----------------------------------------------------------------------------------

    def await_commit(self, submitted: Submitted) -> None:
        self._submitted.setdefault(submitted.index, []).append(submitted)

    def await_applied(self, index: int, done: asyncio.Future[int]) -> None:
        self._readers.append((index, done))
        self._wake_readers()

    def end(self, error: Exception) -> None:
        """Nothing will be applied any more."""
        submitted, self._submitted = self._submitted, {}
        for waiting in submitted.values():
            for one in waiting:
                fail(one.committed, error)
        readers, self._readers = self._readers, []
        for _, done in readers:
            fail(done, error)

    def _wake_readers(self) -> None:
        ready = [done for index, done in self._readers if index <= self.applied_index]
        self._readers = [one for one in self._readers if one[0] > self.applied_index]
        for done in ready:
            if not done.done():
                done.set_result(self.applied_index)

    # -- applying ----------------------------------------------------------------------------------

    def apply_to(self, commit_index: int) -> None:
        """As far as the entries are in memory."""
        while self.applied_index < commit_index and not self._loading:
            if self._machine is None:
                self._applied(commit_index)
                return
            entries = self._storage.entries(self.applied_index + 1, BATCH_BYTES)
            if entries is None:
                self._loading = True
                self._load(self.applied_index + 1)
                return
            self._apply(entries, commit_index)

    def loaded(self, entries: Sequence[Entry], commit_index: int) -> None:
        self._loading = False
        if entries and entries[0].index == self.applied_index + 1:
            self._apply(entries, commit_index)
        self.apply_to(commit_index)

    def _apply(self, entries: Sequence[Entry], commit_index: int) -> None:
        committed = [entry for entry in entries if entry.index <= commit_index]
        assert committed, "a committed entry is not in the log"
        assert self._machine is not None
        assert committed[0].index == self.applied_index + 1
        self._witness("raft.applied", self._storage.path, committed)
        self._machine.apply([entry for entry in committed if entry.data])
        self._applied(committed[-1].index)

    def _applied(self, index: int) -> None:
        first, self.applied_index = self.applied_index + 1, index
        if self._submitted:
            for at in range(first, index + 1):
                for submitted in self._submitted.pop(at, ()):
                    self._settle(submitted)
        self._wake_readers()

    def _settle(self, submitted: Submitted) -> None:
        if submitted.committed.done():
            return
        if self._storage.term_at(submitted.index) == submitted.term:
            submitted.committed.set_result(submitted.index)
        else:
            fail(submitted.committed, ProposalLost(f"entry {submitted.index} is another leader's"))


def fail(future: asyncio.Future[int], error: Exception) -> None:
    """The future's reader may be gone."""
    if not future.done():
        future.set_exception(error)
        future.exception()
