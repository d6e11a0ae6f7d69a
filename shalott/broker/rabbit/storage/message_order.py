"""The order in which a backing queue hands its ready messages out.

Order is by serial: a ``Line``, as every queue has it. A queue with priorities (x-max-priority) has
one line for each of them, and its head is that of the highest that is not empty (as
rabbit/rabbit_priority_queue.erl: one backing queue a priority, asked from the highest down). So
all that takes from the head, a length limit too, takes what is of the highest priority.

A line is cut into the five queues of rabbit_variable_queue, from the head to the tail::

    head (q4: alphas)  near (q3)  delta  far (q2)  tail (q1: alphas)

Near and far are on pages, or on their way there. While nothing is paged, all is in the head.
Messages that were requeued are in a heap of their own beside it, and never in the delta.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Protocol

from shalott.broker.rabbit.storage.entries import Entry, Segment, segment_of


class Order(Protocol):
    """The ready messages."""

    add: Callable[[Entry], None]

    def put_back(self, entry: Entry) -> None:
        """It is ready again: in its place among those of its priority."""
        ...

    def head(self) -> Entry | None:
        """The next to be handed out. None if there is none, or if it is in a delta."""
        ...

    def take(self, head: Entry) -> None:
        """Take out what ``head`` returned."""
        ...

    def away(self) -> Line | None:
        """The line that has the head in its delta."""
        ...

    def lines(self) -> list[Line]:
        """The first is the last to be served."""
        ...

    def line_of(self, entry: Entry) -> Line:
        """Where it belongs."""
        ...


class Line:
    """Never fetched messages as they came, and requeued ones by serial."""

    def __init__(self) -> None:
        self._head: deque[Entry] = deque()
        self._near: deque[Entry] = deque()
        self._far: deque[Entry] = deque()
        self._tail: deque[Entry] = deque()
        self.delta: deque[Segment] = deque()
        self._requeued: list[tuple[int, Entry]] = []
        self.add: Callable[[Entry], None] = self._head.append

    def lines(self) -> list[Line]:
        return [self]

    def line_of(self, entry: Entry) -> Line:
        return self

    # -- the head ----------------------------------------------------------------------------------

    def put_back(self, entry: Entry) -> None:
        heapq.heappush(self._requeued, (entry.serial, entry))

    def _front(self) -> deque[Entry] | None:
        """What begins with the first of the never fetched ones, if that is in memory."""
        if self._head:
            return self._head
        if self._near:
            return self._near
        if self.delta:
            return None
        return self._far or self._tail or None

    def head(self) -> Entry | None:
        front = self._front()
        requeued = self._requeued[0][1] if self._requeued else None
        if front is not None:
            fresh = front[0]
            return fresh if requeued is None or fresh.serial < requeued.serial else requeued
        if requeued is not None and self.delta and self.delta[0].first_serial < requeued.serial:
            return None
        return requeued

    def away(self) -> Line | None:
        return self if self.delta and self.head() is None else None

    def take(self, head: Entry) -> None:
        front = self._front()
        if front is not None and front[0] is head:
            front.popleft()
            if not front:
                self._close_ranks()
        else:
            heapq.heappop(self._requeued)

    def _close_ranks(self) -> None:
        """What no delta parts belongs together; and a line with nothing paged is all head."""
        if self.delta:
            return
        self._near.extend(self._far)
        self._far.clear()
        if not self._near:
            self._head.extend(self._tail)
            self._tail.clear()
            self.add = self._head.append

    # -- paging ------------------------------------------------------------------------------------

    def page_out(self, count: int, size: int) -> list[Entry]:
        """Up to ``count`` alphas, of ``size`` bytes or one more, those that are wanted last. They
        are near or far from now on, in their place; the caller writes them."""
        chosen: list[Entry] = []
        is_cut = bool(self._near or self.delta or self._far)
        while self._tail and is_cut and len(chosen) < count and size > 0:
            chosen.append(self._tail.popleft())
            size -= chosen[-1].weight
        self._far.extend(chosen)
        if not self._tail:
            taken: list[Entry] = []
            while self._head and len(chosen) + len(taken) < count and size > 0:
                taken.append(self._head.pop())
                size -= taken[-1].weight
            self._near.extendleft(taken)
            chosen += reversed(taken)
        if chosen:
            self.add = self._tail.append
            self._close_ranks()
        return chosen

    @property
    def gammas(self) -> int:
        return len(self._near) + len(self._far)

    def cut(self, count: int, size: int) -> list[Entry]:
        """Take ``count`` entries out of memory for a segment, or as many as have ``size`` bytes.
        Those of the far side first; fewer if they are not on their pages yet."""
        taken: list[Entry] = []
        while self.delta and self._far and self._far[0].page is not None:
            if len(taken) == count or size <= 0:
                break
            taken.append(self._far.popleft())
            size -= taken[-1].weight
        if taken:
            self.delta.append(segment_of(taken))
            return taken
        while self._near and self._near[-1].page is not None and len(taken) < count and size > 0:
            taken.append(self._near.pop())
            size -= taken[-1].weight
        if taken:
            taken.reverse()
            self.delta.appendleft(segment_of(taken))
        return taken

    def recovered(self, segments: Iterable[Segment]) -> None:
        """The line was empty; what comes now comes behind them."""
        self.delta.extend(segments)
        self.add = self._tail.append

    def bring(self, entries: list[Entry]) -> Segment:
        """The first segment is in memory again, as ``entries``: nothing is before it but what was
        requeued. Those that are on no page are alphas."""
        segment = self.delta.popleft()
        (self._near if segment.source is None else self._head).extend(entries)
        self._close_ranks()
        return segment

    def ahead(self, count: int) -> list[Entry]:
        """The next ones to be handed out, roughly, of those in memory: the head among them."""
        requeued = [entry for _, entry in islice(self._requeued, count)]
        return [*requeued, *islice(chain(self._head, self._near), count)]

    # -- all of it ---------------------------------------------------------------------------------

    def parts(self) -> dict[str, int]:
        """How many are in each of the five; what was requeued is with the head."""
        return {
            "q1": len(self._tail),
            "q2": len(self._far),
            "delta": sum(segment.count for segment in self.delta),
            "q3": len(self._near),
            "q4": len(self._head) + len(self._requeued),
        }

    def has_id(self, message_id: int) -> bool:
        """Whether a segment has a message with this id whose channel may bring it again."""
        for segment in self.delta:
            at = bisect_left(segment.ids, message_id)
            if at < len(segment.ids) and segment.ids[at] == message_id:
                return True
        return False

    def clear(self) -> list[Segment]:
        """Forget all. What was in the delta."""
        segments = list(self.delta)
        for part in (self._head, self._near, self._far, self._tail, self.delta, self._requeued):
            part.clear()
        self._close_ranks()
        return segments


class Lines:
    """One line a priority, from 0 to ``max_priority``; what is above it counts as the highest."""

    def __init__(self, max_priority: int) -> None:
        self._lines = [Line() for _ in range(max_priority + 1)]
        self._max = max_priority
        self.add: Callable[[Entry], None] = self._add

    def lines(self) -> list[Line]:
        return self._lines

    def _add(self, entry: Entry) -> None:
        self.line_of(entry).add(entry)

    def put_back(self, entry: Entry) -> None:
        self.line_of(entry).put_back(entry)

    def head(self) -> Entry | None:
        for line in reversed(self._lines):
            head = line.head()
            if head is not None or line.delta:
                return head
        return None

    def away(self) -> Line | None:
        for line in reversed(self._lines):
            if line.head() is not None:
                return None
            if line.delta:
                return line
        return None

    def take(self, head: Entry) -> None:
        self.line_of(head).take(head)

    def line_of(self, entry: Entry) -> Line:
        return self._lines[min(entry.priority, self._max)]
