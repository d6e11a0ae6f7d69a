"""Oracles of Raft groups: a member keeps its votes, says only what is on its disk, and applies what
the others apply.

A member is a node and its log, by the path of its files. One that its operator resets, or whose
disk a fault has emptied, begins anew as another member, perhaps of another group.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Protocol

from shalott.cluster.sim.oracles.watch import Watch
from shalott.core.oracles import (
    DISK_COPIES,
    EQUAL_LOGS,
    LEADERS_COMPLETE,
    LEADERS_HEARD,
    READS_LED,
    SYNC_FIRST,
    VOTES_KEPT,
)


class Entry(Protocol):
    """As broker.raft.api has it."""

    @property
    def index(self) -> int: ...

    @property
    def term(self) -> int: ...

    @property
    def data(self) -> bytes: ...


class Raft:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._terms: dict[tuple[str, str], int] = {}  # the highest told, by node and log
        self._own_terms: dict[tuple[str, str], int] = {}  # that the node is in, told or not
        self._votes: dict[tuple[str, str, int], str] = {}
        self._held: dict[tuple[str, str], int] = {}  # the last entry that was acknowledged
        # The same, in each term: by node, log and term.
        self._acked: dict[tuple[str, str, int], int] = {}
        self._anew: dict[tuple[str, str], None] = {}  # it may be another group's by now
        self._applied: dict[tuple[str, int], tuple[int, int]] = {}  # (log, index): term and CRC
        self._committed: dict[str, tuple[int, int]] = {}  # of each log the last: index and term
        # Of candidates, by node, log and term: term and index of the last entry.
        self._ends: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._answers = 0  # to heartbeats
        # The last of each member, by log: its number and term.
        self._followed: dict[str, dict[str, tuple[int, int]]] = {}
        # Of reads under way, by node, life, log and number: what was committed when they began, how
        # many heartbeats had been answered by then, and how many members must answer.
        self._reads: dict[tuple[str, int, str, int], tuple[int, int, int]] = {}

    def began(self, node: str, life: int, log: str, term: int, voted_for: str, last: int) -> None:
        """A life begins with what the disk says. ``last``: the index of its last entry."""
        watch, told = self._watch, self._terms.get((node, log), 0)
        self._own_terms[node, log] = term
        if watch.disk(node).emptied or watch.disk(node).rotted:
            self.left(node, life)
            return
        watch.asked(VOTES_KEPT, node)
        vote = self._votes.get((node, log, term), "")
        if term < told:
            summary = f"{node} starts {log} in term {term}, and was in term {told} before"
            watch.broken(VOTES_KEPT, node, summary, offset=told)
        elif vote not in ("", voted_for):
            who = voted_for or "nobody"
            summary = f"{node} voted for {vote} in term {term} of {log}, and remembers {who}"
            watch.broken(VOTES_KEPT, node, summary, offset=term)
        elif last < (held := self._held.get((node, log), 0)):
            summary = f"{node} starts {log} with {last} entries, and acknowledged {held} before"
            watch.broken(VOTES_KEPT, node, summary, offset=held)

    def left(self, node: str, life: int) -> None:
        """Its operator has the node begin again with nothing: what was its is another member's."""
        for key in [key for key in self._terms if key[0] == node]:
            del self._terms[key]
            self._own_terms.pop(key, None)
            self._held.pop(key, None)
            self._anew[key] = None
        for vote in [vote for vote in self._votes if vote[0] == node]:
            del self._votes[vote]

    def term(self, node: str, life: int, log: str, term: int) -> None:
        """A member is in this term from now on, and may not have told anybody."""
        known = self._own_terms.get((node, log), 0)
        self._own_terms[node, log] = term
        if term < known:
            summary = f"{node} goes back from term {known} of {log} to term {term}"
            self._watch.broken(VOTES_KEPT, node, summary, offset=term)

    def voted(
        self, node: str, life: int, log: str, term: int, candidate: str, end: tuple[int, int],
        path: str, text: bytes,
    ) -> None:  # fmt: skip
        """A vote leaves the node, whose log has ``end``: term and index of its last entry. ``text``
        must be in its file ``path``."""
        watch = self._watch
        watch.asked(VOTES_KEPT, node)
        self._tell_term(node, log, term)
        known = self._votes.setdefault((node, log, term), candidate)
        if known != candidate:
            summary = f"{node} votes for {candidate} in term {term} of {log}, and had for {known}"
            watch.broken(VOTES_KEPT, node, summary, offset=term)
        if node == candidate:
            self._ends[node, log, term] = end
        elif end[0] < term:  # what is of this term came from the candidate, who has won
            theirs = self._ends.get((candidate, log, term), end)
            watch.asked(LEADERS_COMPLETE, node)
            if end > theirs and (node, log) not in self._anew:
                summary = (
                    f"{node} has {log} up to {end}, and votes for one that has it up to {theirs}"
                )
                watch.broken(LEADERS_COMPLETE, node, summary, offset=end[1])
        if text:
            watch.asked(SYNC_FIRST, node)
            if not watch.disk(node).keeps_text(path, text):
                summary = f"{node} votes for {candidate} in term {term}, and its disk knows nothing"
                watch.broken(SYNC_FIRST, node, summary, offset=term)

    def holds(
        self, node: str, life: int, log: str, term: int, index: int, path: str, text: bytes
    ) -> None:
        """A follower says that it has all up to ``index``. ``text`` is the last entry's."""
        watch, key = self._watch, (node, log, term)
        self._tell_term(node, log, term)
        if term < (own := self._own_terms.get((node, log), 0)):
            summary = f"{node} acknowledges {log} up to {index} in term {term}, and is in {own}"
            watch.broken(VOTES_KEPT, node, summary, offset=index)
        self._acked[key] = max(index, self._acked.get(key, 0))
        if text:
            self._held[node, log] = max(index, self._held.get((node, log), 0))
            watch.asked(SYNC_FIRST, node)
            if not watch.disk(node).keeps_text(path, text):
                summary = f"{node} acknowledged {log} up to {index}, which its disk does not have"
                watch.broken(SYNC_FIRST, node, summary, offset=index)

    def counts(self, node: str, life: int, log: str, term: int, member: str, index: int) -> None:
        """A leader takes a follower to have its log up to ``index``."""
        watch, acked = self._watch, self._acked.get((member, log, term), 0)
        watch.asked(LEADERS_COMPLETE, node)
        if index > acked:
            summary = (
                f"{node} counts {member} for {log} up to {index}, which acknowledged {acked} in"
                f" term {term}"
            )
            watch.broken(LEADERS_COMPLETE, node, summary, offset=index)

    def cut(self, node: str, life: int, log: str, from_index: int) -> None:
        """A member gives up its entries from there on."""
        held = self._held.get((node, log), 0)
        self._held[node, log] = min(held, from_index - 1)

    def led(
        self, node: str, life: int, log: str, term: int, last: int, term_at: Callable[[int], int]
    ) -> None:
        """A member begins to lead. ``term_at``: of the entries of its log."""
        watch, (index, entry_term) = self._watch, self._known_committed(log)
        if not index:
            return
        watch.asked(LEADERS_COMPLETE, node)
        if last < index or term_at(index) != entry_term:
            summary = f"{node} leads {log} in term {term} and lacks entry {index}, a committed one"
            watch.broken(LEADERS_COMPLETE, node, summary, offset=index)

    def committed(
        self, node: str, life: int, log: str, term: int, members: int,
        entry: tuple[int, int, str, bytes],
    ) -> None:  # fmt: skip
        """A leader lets entries up to ``entry`` count: its index and term, and what must be in
        which file."""
        index, entry_term, path, text = entry
        watch = self._watch
        if text:
            watch.asked(DISK_COPIES, node)
            having = [m for m in watch.machines if watch.disk(m).keeps_text(path, text)]
            if len(having) <= members // 2:
                where = " and ".join(having) or "none"
                summary = f"{node} commits {log} up to {index}: of the disks {where} has it"
                watch.broken(DISK_COPIES, node, summary, offset=index, disks=having)
        watch.asked(LEADERS_COMPLETE, node)
        if entry_term == term:
            self._committed[log] = max(self._committed.get(log, (0, 0)), (index, term))
        else:
            summary = f"{node} commits {log} up to {index} of term {entry_term} in term {term}"
            watch.broken(LEADERS_COMPLETE, node, summary, offset=index)

    def follows(self, node: str, life: int, log: str, term: int) -> None:
        """A member answers a heartbeat of the leader of ``term``."""
        self._tell_term(node, log, term)
        self._answers += 1
        self._followed.setdefault(log, {})[node] = (self._answers, term)

    def leads(self, node: str, life: int, log: str, term: int, members: int, heard: int) -> None:
        """A leader goes on, which has heard so many of the members lately, itself included."""
        self._watch.asked(LEADERS_HEARD, node)
        if heard <= members // 2:
            summary = f"{node} leads {log} in term {term} on, and hears {heard} of {members}"
            self._watch.broken(LEADERS_HEARD, node, summary, offset=term)

    def asked(self, node: str, life: int, log: str, number: int, members: int) -> None:
        """A member is asked for a read."""
        begun = (self._known_committed(log)[0], self._answers, members // 2)
        self._reads[node, life, log, number] = begun

    def read(self, node: str, life: int, log: str, number: int, term: int, index: int) -> None:
        """It lets the read go as its leader."""
        watch = self._watch
        watch.asked(READS_LED, node)
        least, since, needed = self._reads.pop((node, life, log, number), (0, 0, 0))
        answered = [one for one in self._followed.get(log, {}).values() if one[0] > since]
        answers = sum(one[1] == term for one in answered)
        if index < least:
            summary = f"{node} reads {log} up to {index}, and {least} was committed before"
            watch.broken(READS_LED, node, summary, offset=index)
        elif answers < needed:
            summary = f"{node} answers a read of {log} in term {term}, with {answers} answers since"
            watch.broken(READS_LED, node, summary, offset=term)

    def applied(self, node: str, life: int, log: str, entries: Sequence[Entry]) -> None:
        watch = self._watch
        if (node, log) in self._anew:
            return
        watch.asked(EQUAL_LOGS, node)
        for entry in entries:
            content = (entry.term, zlib.crc32(entry.data))
            known = self._applied.setdefault((log, entry.index), content)
            if known != content:
                summary = f"{node} applied another entry {entry.index} of {log} than others did"
                watch.broken(EQUAL_LOGS, node, summary, offset=entry.index)

    def _known_committed(self, log: str) -> tuple[int, int]:
        """(index, term) of the last entry; (0, 0) once a member is another group's, perhaps."""
        if any(one == log for _, one in self._anew):
            return 0, 0
        return self._committed.get(log, (0, 0))

    def _tell_term(self, node: str, log: str, term: int) -> None:
        known = self._terms.get((node, log), 0)
        if term > known:
            self._terms[node, log] = term
        elif term < known:
            summary = f"{node} speaks in term {term} of {log}, and was in term {known} before"
            self._watch.broken(VOTES_KEPT, node, summary, offset=term)
