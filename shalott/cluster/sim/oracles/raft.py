"""Oracles of Raft groups: a member keeps its votes, says only what is on its disk, and applies what
the others apply.

A member is a node and its log, by the path of its files. One whose files are gone, as after a reset
by its operator, begins anew as another member.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Protocol

from shalott.cluster.sim.oracles.watch import Watch
from shalott.core.oracles import EQUAL_LOGS, SYNC_FIRST, VOTES_KEPT


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
        self._votes: dict[tuple[str, str, int], str] = {}
        self._applied: dict[tuple[str, int], tuple[int, int]] = {}  # (log, index): term and CRC

    def began(self, node: str, life: int, log: str, term: int, voted_for: str) -> None:
        """A life begins with what the disk says."""
        watch, told = self._watch, self._terms.get((node, log), 0)
        watch.asked(VOTES_KEPT, node)
        vote = self._votes.get((node, log, term), "")
        if not term and not voted_for:
            self._forget(node, log)
        elif term < told:
            summary = f"{node} starts {log} in term {term}, and was in term {told} before"
            watch.broken(VOTES_KEPT, node, summary, offset=told)
        elif vote not in ("", voted_for):
            who = voted_for or "nobody"
            summary = f"{node} voted for {vote} in term {term} of {log}, and remembers {who}"
            watch.broken(VOTES_KEPT, node, summary, offset=term)

    def voted(
        self, node: str, life: int, log: str, term: int, candidate: str, path: str, text: bytes
    ) -> None:
        """A vote leaves the node. ``text`` must be in its file ``path``."""
        watch = self._watch
        watch.asked(VOTES_KEPT, node)
        self._tell_term(node, log, term)
        known = self._votes.setdefault((node, log, term), candidate)
        if known != candidate:
            summary = f"{node} votes for {candidate} in term {term} of {log}, and had for {known}"
            watch.broken(VOTES_KEPT, node, summary, offset=term)
        if text:
            watch.asked(SYNC_FIRST, node)
            if not watch.disk(node).keeps_text(path, text):
                summary = f"{node} votes for {candidate} in term {term}, and its disk knows nothing"
                watch.broken(SYNC_FIRST, node, summary, offset=term)

    def holds(
        self, node: str, life: int, log: str, term: int, index: int, path: str, text: bytes
    ) -> None:
        """A follower says that it has all up to ``index``. ``text`` is the last entry's."""
        watch = self._watch
        self._tell_term(node, log, term)
        if text:
            watch.asked(SYNC_FIRST, node)
            if not watch.disk(node).keeps_text(path, text):
                summary = f"{node} acknowledged {log} up to {index}, which its disk does not have"
                watch.broken(SYNC_FIRST, node, summary, offset=index)

    def applied(self, node: str, life: int, log: str, entries: Sequence[Entry]) -> None:
        watch = self._watch
        watch.asked(EQUAL_LOGS, node)
        for entry in entries:
            content = (entry.term, zlib.crc32(entry.data))
            known = self._applied.setdefault((log, entry.index), content)
            if known != content:
                summary = f"{node} applied another entry {entry.index} of {log} than others did"
                watch.broken(EQUAL_LOGS, node, summary, offset=entry.index)

    def _tell_term(self, node: str, log: str, term: int) -> None:
        if term > self._terms.get((node, log), 0):
            self._terms[node, log] = term

    def _forget(self, node: str, log: str) -> None:
        self._terms.pop((node, log), None)
        for key in [key for key in self._votes if key[:2] == (node, log)]:
            del self._votes[key]
