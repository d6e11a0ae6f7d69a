"""Log: a member's log as the core sees it: what its storage shows, and on top what was handed over
to be written and is not persisted yet.

Also which part of it is durable: a mark is a number of a write, writes are durable in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from shalott.broker.raft.api import Entry, Snapshot
from shalott.broker.raft.storage import LogView


class Log:
    """One member's. Everything stored when it is made is durable."""

    def __init__(self, view: LogView) -> None:
        self._view = view
        self._tail: list[Entry] = []  # not persisted, or on top of what is not
        self._tail_first = view.last_index + 1
        self._base: tuple[int, int, int] | None = None  # a snapshot in writing: index, term, mark
        self._writes: deque[tuple[int, int]] = deque()  # (mark, end of the log after it)
        self.durable_index = view.last_index

    @property
    def first_index(self) -> int:
        return self._view.first_index if self._base is None else self._base[0] + 1

    @property
    def last_index(self) -> int:
        return self._tail_first + len(self._tail) - 1

    @property
    def last_term(self) -> int:
        return self.term_at(self.last_index)

    def term_at(self, index: int) -> int:
        """From ``first_index - 1`` to ``last_index``."""
        if index >= self._tail_first:
            return self._tail[index - self._tail_first].term
        assert self.first_index - 1 <= index, index
        if self._base is not None:
            return self._base[1]
        return self._view.term_at(index)

    def has(self, index: int, term: int) -> bool:
        """Whether the entry is here; one in the snapshot is not."""
        in_log = self.first_index - 1 <= index <= self.last_index
        return in_log and self.term_at(index) == term

    def entries(self, first: int, max_bytes: int) -> Sequence[Entry] | None:
        """As LogView has it."""
        if first < self._tail_first:
            found = self._view.entries(first, max_bytes)
            return found if found is None else found[: self._tail_first - first]
        size = 0
        position = first - self._tail_first
        for end in range(position, len(self._tail)):
            size += len(self._tail[end].data)
            if size > max_bytes and end > position:
                return self._tail[position:end]
        return self._tail[position:]

    def first_of_term(self, index: int) -> int:
        """Where the term of the entry ``index`` begins, as far as the log goes."""
        term = self.term_at(index)
        return self._bisect(lambda at: self.term_at(at) >= term, index)

    def last_up_to_term(self, term: int, index: int) -> int:
        """The last entry of ``term`` or an older one, up to ``index``; ``first_index - 1`` if all
        are younger."""
        return self._bisect(lambda at: self.term_at(at) > term, index + 1) - 1

    def _bisect(self, is_behind: Callable[[int], bool], end: int) -> int:
        """The first index from ``first_index`` on that is behind; ``end`` if none before it is."""
        low, high = self.first_index, max(self.first_index, end)
        while low < high:
            middle = (low + high) // 2
            if is_behind(middle):
                high = middle
            else:
                low = middle + 1
        return low

    # -- writing -----------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry], mark: int) -> None:
        assert entries[0].index == self.last_index + 1
        self._tail.extend(entries)
        self._writes.append((mark, self.last_index))

    def truncate(self, from_index: int, mark: int) -> None:
        assert self.first_index <= from_index <= self.last_index
        if from_index < self._tail_first:
            self._tail.clear()
            self._tail_first = from_index
        else:
            del self._tail[from_index - self._tail_first :]
        self.durable_index = min(self.durable_index, from_index - 1)
        capped = [(written, min(end, from_index - 1)) for written, end in self._writes]
        self._writes = deque([*capped, (mark, from_index - 1)])

    def install(self, snapshot: Snapshot, mark: int) -> None:
        self._tail.clear()
        self._tail_first = snapshot.index + 1
        self._base = (snapshot.index, snapshot.term, mark)
        self.durable_index = 0
        self._writes = deque([(mark, snapshot.index)])

    def persisted(self, mark: int) -> None:
        while self._writes and self._writes[0][0] <= mark:
            self.durable_index = self._writes.popleft()[1]
        if self._base is not None and self._base[2] <= mark:
            self._base = None
        done = self.durable_index - self._tail_first + 1
        if done > 0:
            del self._tail[:done]
            self._tail_first += done
