"""Directory: where every entry of a ledger lies, and of which term it is, in memory.

Sixteen bytes an entry, so that the core may ask for terms without waiting, and messages are found.
Terms never fall along a log, so they are kept as runs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from shalott.broker.rocket.dledger.entry import HEADER_BYTES


class Directory:
    """Indexes are Raft's, from 1 on."""

    def __init__(self) -> None:
        self.end = 0  # the position after the last entry
        self._positions = array("q")
        self._sizes = array("q")
        self._term_firsts: list[int] = []
        self._terms: list[int] = []

    @property
    def last_index(self) -> int:
        return len(self._positions)

    def add(self, position: int, size: int, term: int) -> None:
        assert position >= self.end
        if not self._terms or self._terms[-1] != term:
            assert not self._terms or term > self._terms[-1], "terms fall"
            self._term_firsts.append(self.last_index + 1)
            self._terms.append(term)
        self._positions.append(position)
        self._sizes.append(size)
        self.end = position + size

    def cut(self, from_index: int) -> None:
        """Forget the entries from this one on, and the filler before it if there is one."""
        self.end = self.end_of(from_index - 1)
        del self._positions[from_index - 1 :]
        del self._sizes[from_index - 1 :]
        while self._term_firsts and self._term_firsts[-1] >= from_index:
            self._term_firsts.pop()
            self._terms.pop()

    def term_at(self, index: int) -> int:
        if index == 0:
            return 0
        assert index <= self.last_index, index
        return self._terms[bisect_right(self._term_firsts, index) - 1]

    def position_of(self, index: int) -> int:
        return self._positions[index - 1]

    def size_of(self, index: int) -> int:
        """Of the whole entry."""
        return self._sizes[index - 1]

    def body_bytes_of(self, index: int) -> int:
        return self._sizes[index - 1] - HEADER_BYTES

    def end_of(self, index: int) -> int:
        """The position after an entry; 0 before the first."""
        return 0 if index == 0 else self._positions[index - 1] + self._sizes[index - 1]
