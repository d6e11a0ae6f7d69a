"""Where on a run's clock lies what others wrote down by clocks of their own.

The run's clock is the harness's monotonic one (CLOCK_MONOTONIC), counted from the run's start. A
wall clock may be stepped while a run lasts: what is placed by the wall time of its start alone then
lies as many seconds off. So

- what carries a monotonic time is placed by that: at once where the node has the harness's own
  kernel, else by readings of the host's clocks, taken again and again during the run;
- what carries a wall time only is placed by the offset that was in force at that moment. After a
  step backwards one wall time has two moments: the order of a log's lines tells them apart, and
  where it does not, the doubt is kept (``RunStart.doubts``), and the run is unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# A wall clock that moved as far against a monotonic one from one look to the next was stepped.
STEP_NS = 20_000_000
SLACK_NS = 250_000_000  # when a step was made is known as well as that
DOUBT_NS = 1_000_000_000  # moments closer than that are one
OUTSIDE_NS = 10_000_000_000  # what lies as far outside of the run was placed wrongly


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A wall clock was stepped between two looks; ``node``: "" is the harness's own machine."""

    node: str
    by_ns: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A host's clocks at a moment of the run. ``monotonic_ns``: None if it can't be read there."""

    run_ns: int
    wall_ns: int
    monotonic_ns: int | None = None


@dataclass(slots=True)
class WallClock:
    """How far a wall clock was ahead of the run's, and since when: points in order of time."""

    points: list[tuple[int, int]] = field(default_factory=list)

    def set(self, since_ns: int, ahead_ns: int) -> None:
        self.points.append((since_ns, ahead_ns))

    def ahead_at(self, run_ns: int) -> int:
        at = bisect_right(self.points, run_ns, key=lambda point: point[0])
        return self.points[max(0, at - 1)][1]

    def moments(self, wall_ns: int) -> list[int]:
        """Every moment at which it showed that; of a time that it never showed, the step that left
        it out."""
        found: list[int] = []
        for number, (since_ns, ahead_ns) in enumerate(self.points):
            at_ns = wall_ns - ahead_ns
            is_first, is_last = number == 0, number + 1 == len(self.points)
            begins = is_first or at_ns >= since_ns - SLACK_NS
            ends = is_last or at_ns < self.points[number + 1][0] + SLACK_NS
            if begins and ends and all(abs(at_ns - one) > DOUBT_NS for one in found):
                found.append(at_ns)
        if not found:
            found = [min((t for t, _ in self.points), key=lambda t: self._distance(t, wall_ns))]
        return sorted(found)

    def _distance(self, at_ns: int, wall_ns: int) -> int:
        return abs(wall_ns - self.ahead_at(at_ns) - at_ns)

    def moments_in_order(self, walls: Sequence[int]) -> tuple[list[int], int]:
        """A moment for each line of a log, and for how many another one is as possible."""
        possible = [self.moments(wall_ns) for wall_ns in walls]
        if all(len(each) == 1 for each in possible):
            return [each[0] for each in possible], 0
        first: list[int] = []
        for each in possible:  # the earliest that come no earlier than what stands before
            after_ns = first[-1] - SLACK_NS if first else each[0]
            first.append(next((at_ns for at_ns in each if at_ns >= after_ns), each[-1]))
        last: list[int] = []
        for each in reversed(possible):  # the latest that come no later than what stands behind
            until_ns = last[-1] + SLACK_NS if last else each[-1]
            last.append(next((at_ns for at_ns in reversed(each) if at_ns <= until_ns), each[0]))
        last.reverse()
        doubtful = sum(abs(a - b) > DOUBT_NS for a, b in zip(first, last, strict=True))
        return first, doubtful


@dataclass(slots=True)
class NodeClock:
    """``wall``: its wall clock. ``origin_ns``: the run's start by its monotonic clock, where that
    is the harness's; else ``readings`` tell."""

    wall: WallClock
    origin_ns: int | None = None
    readings: list[Reading] = field(default_factory=list)

    def read(self, reading: Reading) -> ClockStep | None:
        """Take note; the step of its wall clock since the last reading, if there was one."""
        before = self.readings[-1] if self.readings else None
        self.readings.append(reading)
        ahead_ns = reading.wall_ns - reading.run_ns
        if before is None:
            self.wall.points[:] = [(reading.run_ns, ahead_ns)]
            return None
        moved_ns = ahead_ns - (before.wall_ns - before.run_ns)
        if abs(ahead_ns - self.wall.points[-1][1]) > STEP_NS:
            self.wall.set((before.run_ns + reading.run_ns) // 2, ahead_ns)
        if abs(moved_ns) <= STEP_NS:
            return None  # at most slewed, as NTP does
        return ClockStep("", moved_ns, before.run_ns, reading.run_ns)

    def place(self, at_ns: int) -> int | None:
        """By its monotonic clock; None if that can't be told."""
        if self.origin_ns is not None:
            return at_ns - self.origin_ns
        pairs = [(r.monotonic_ns, r.run_ns) for r in self.readings if r.monotonic_ns is not None]
        if not pairs:
            return None
        right = min(max(1, bisect_right(pairs, (at_ns, 0))), len(pairs) - 1)
        if len(pairs) == 1:
            return at_ns - pairs[0][0] + pairs[0][1]
        (mono_a, run_a), (mono_b, run_b) = pairs[right - 1], pairs[right]
        if at_ns <= mono_a or at_ns >= mono_b:  # before the first or after the last
            mono, run = (mono_a, run_a) if at_ns <= mono_a else (mono_b, run_b)
            return at_ns - mono + run
        return run_a + (at_ns - mono_a) * (run_b - run_a) // (mono_b - mono_a)


class RunStart(int):
    """When a run began by the harness's wall clock, in ns, and how to place what nodes wrote down.

    It is that number wherever a number is wanted, and ``wall_ns - start`` is a time of the run by
    the offset that was in force. ``end_ns``: when the run was over.
    """

    own: WallClock
    nodes: dict[str, NodeClock]
    end_ns: int | None
    doubts: dict[str, int]  # by node ("": not told), how many could as well lie elsewhere
    unplaced: dict[str, int]

    @classmethod
    def make(
        cls,
        wall_ns: int,
        own: WallClock | None = None,
        nodes: dict[str, NodeClock] | None = None,
        end_ns: int | None = None,
    ) -> RunStart:
        start = cls(wall_ns)
        start.own = own or WallClock([(0, wall_ns)])
        start.nodes, start.end_ns = nodes or {}, end_ns
        start.doubts, start.unplaced = {}, {}
        return start

    def __rsub__(self, wall_ns: int) -> int:
        found = self.own.moments(wall_ns)
        if len(found) > 1:
            self._count(self.doubts, "", 1)
        return found[0]

    def place(self, node: str, at_ns: int, wall_ns: int) -> int | None:
        """An event with a monotonic and a wall time of its node; None: it can't be placed."""
        clock = self.nodes.get(node)
        run_ns = None if clock is None else clock.place(at_ns)
        if run_ns is None:
            return self.place_log(node, [wall_ns])[0]
        if self.is_outside(run_ns):
            self._count(self.unplaced, node, 1)
            return None
        return run_ns

    def is_outside(self, run_ns: int) -> bool:
        late = self.end_ns is not None and run_ns > self.end_ns + OUTSIDE_NS
        return late or run_ns < -OUTSIDE_NS

    def place_log(self, node: str, walls: Sequence[int]) -> list[int]:
        """Lines of one log in its order, each with a wall time only."""
        clock = self.nodes.get(node)
        wall = self.own if clock is None or not clock.wall.points else clock.wall
        moments, doubtful = wall.moments_in_order(walls)
        self._count(self.doubts, node, doubtful)
        return moments

    def reasons(self) -> list[str]:
        """Why the run can't be judged by what nodes wrote down."""
        told = [
            f"{count} events of {node} lie outside of the run by their node's monotonic clock"
            for node, count in sorted(self.unplaced.items())
        ]
        told += [
            f"{count} lines{f' of {node}' if node else ''} have a wall time that its clock showed"
            " twice, since it was stepped backwards: when they were written can't be told"
            for node, count in sorted(self.doubts.items())
        ]
        return told

    @staticmethod
    def _count(counts: dict[str, int], node: str, more: int) -> None:
        if more:
            counts[node] = counts.get(node, 0) + more


def place_log(start: int, node: str, walls: Iterable[int]) -> list[int]:
    """As ``RunStart.place_log``; by a plain wall time of the start too."""
    told = list(walls)
    if isinstance(start, RunStart):
        return start.place_log(node, told)
    return [wall_ns - start for wall_ns in told]
