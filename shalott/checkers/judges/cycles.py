"""Orders that contradict each other: circles in a graph of operations, and a shortest one of them.

Edges say why one operation comes before another. Where each of a group comes before each of another
one, or an end before all later beginnings, the graph has a node in between instead of all pairs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class Graph:
    """``count`` operations, numbered from 0; nodes in between have the numbers behind them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.after: list[list[int]] = [[] for _ in range(count)]
        self._why: list[list[str]] = [[] for _ in range(count)]

    def _between(self) -> int:
        self.after.append([])
        self._why.append([])
        return len(self.after) - 1

    def add(self, one: int, other: int, why: str) -> None:
        self.after[one].append(other)
        self._why[one].append(why)

    def why(self, one: int, other: int) -> str:
        """Why it comes before the other: the first reason that was given."""
        return self._why[one][self.after[one].index(other)]

    def add_all(self, ones: Sequence[int], others: Sequence[int], why: str) -> None:
        """Each of the ones comes before each of the others."""
        if len(ones) * len(others) <= len(ones) + len(others):
            for one in ones:
                for other in others:
                    self.add(one, other, why)
            return
        middle = self._between()
        for one in ones:
            self.add(one, middle, why)
        for other in others:
            self.add(middle, other, why)

    def add_processes(self, ops: Sequence[tuple[int, int]]) -> None:
        """``ops``: process and call of each: those of one process come one after the other."""
        last: dict[int, int] = {}
        for at in sorted(range(len(ops)), key=lambda at: ops[at][1]):
            process = ops[at][0]
            if process in last:
                self.add(last[process], at, f"in process {process}")
            last[process] = at

    def add_realtime(self, ops: Sequence[tuple[int, int | None]]) -> None:
        """``ops``: call and end of each: what ended before another was invoked comes before it.

        A chain of nodes in between has one for each stretch without an end: an operation leads to
        the stretch behind its end, and the stretch of its call leads to it.
        """
        events = sorted(
            [(call, 0, at) for at, (call, _) in enumerate(ops)]
            + [(ret, 1, at) for at, (_, ret) in enumerate(ops) if ret is not None]
        )
        now: int | None = None
        is_fresh = False
        for _, is_end, at in events:
            if is_end:
                if now is None or not is_fresh:
                    later = self._between()
                    if now is not None:
                        self.add(now, later, "in real time")
                    now, is_fresh = later, True
                self.add(at, now, "in real time")
            elif now is not None:
                self.add(now, at, "in real time")
                is_fresh = False

    def components(self) -> list[list[int]]:
        """Strongly connected components of more than one node (Tarjan 1972, without recursion)."""
        size = len(self.after)
        index, low = [0] * size, [0] * size
        on_stack = bytearray(size)
        stack: list[int] = []
        found: list[list[int]] = []
        counter = 0
        for root in range(size):
            if index[root]:
                continue
            work = [(root, 0)]
            while work:
                node, child = work.pop()
                if not child:
                    counter += 1
                    index[node] = low[node] = counter
                    stack.append(node)
                    on_stack[node] = 1
                after = self.after[node]
                while child < len(after):
                    other = after[child]
                    child += 1
                    if not index[other]:
                        work += [(node, child), (other, 0)]
                        break
                    if on_stack[other]:
                        low[node] = min(low[node], index[other])
                else:
                    if low[node] == index[node]:
                        component = []
                        while True:
                            member = stack.pop()
                            on_stack[member] = 0
                            component.append(member)
                            if member == node:
                                break
                        if len(component) > 1:
                            found.append(component)
                    if work:
                        parent = work[-1][0]
                        low[parent] = min(low[parent], low[node])
        return found


def shortest_cycle(graph: Graph, component: Sequence[int]) -> list[tuple[int, str]]:
    """Operations on a circle with few steps, each with why it comes before the next one.

    The shortest through one of the first operations of the component.
    """
    members = set(component)
    best: list[int] = []
    for start in sorted(node for node in component if node < graph.count)[:64]:
        found = _cycle_through(graph, start, members)
        if found and (not best or len(found) < len(best)):
            best = found
    told: list[tuple[int, str]] = []
    for at, node in enumerate(best):
        if node < graph.count:
            told.append((node, graph.why(node, best[(at + 1) % len(best)])))
    return told


def _cycle_through(graph: Graph, start: int, members: set[int]) -> list[int]:
    came: dict[int, int] = {start: start}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for other in graph.after[node]:
            if other == start:
                path = [node]
                while path[-1] != start:
                    path.append(came[path[-1]])
                return path[::-1]
            if other in members and other not in came:
                came[other] = node
                queue.append(other)
    return []
