"""Stretches of time as two sorted columns, and which of many instants lies in which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from shalott.checkers.history.columns import NEVER, Bools, Ints

Stretch = tuple[int, int]  # both ends belong to it
NOWHERE = -1
MS = 1_000_000  # in ns
S = 1_000_000_000


def union(stretches: Iterable[Stretch]) -> list[Stretch]:
    """The same time in as few stretches as possible, in order."""
    merged: list[Stretch] = []
    for begin, end in sorted(stretches):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def without(stretches: Sequence[Stretch], taken: Iterable[Stretch]) -> list[Stretch]:
    """What is left of disjoint stretches if some time is taken out; instants are not kept."""
    holes = union(taken)
    left: list[Stretch] = []
    for begin, end in stretches:
        for hole_begin, hole_end in holes:
            if hole_end < begin or hole_begin > end:
                continue
            if hole_begin > begin:
                left.append((begin, hole_begin - 1))
            begin = hole_end + 1
            if begin > end:
                break
        if begin <= end:
            left.append((begin, end))
    return left


@dataclass(frozen=True, slots=True)
class Timetable:
    """Disjoint stretches of several places, each with a number of its own over all places."""

    place: Ints
    begin: Ints
    end: Ints
    first: Ints  # of each place the number of its first stretch; one more at the end

    @classmethod
    def of(cls, by_place: Sequence[Sequence[Stretch]]) -> Timetable:
        rows = [
            (place, begin, end)
            for place, stretches in enumerate(by_place)
            for begin, end in sorted(stretches)
        ]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
        counts = np.array([0, *(len(stretches) for stretches in by_place)], dtype=np.int64)
        return cls(columns[:, 0], columns[:, 1], columns[:, 2], np.cumsum(counts))

    def at(self, place: Ints, at_ns: Ints) -> Ints:
        """The number of the stretch of ``place`` that holds each instant, or NOWHERE."""
        found = np.full(len(at_ns), NOWHERE, dtype=np.int64)
        if not len(self.begin):
            return found
        for each in range(len(self.first) - 1):
            low, high = int(self.first[each]), int(self.first[each + 1])
            if low == high:
                continue
            own = np.flatnonzero(place == each)
            at = np.searchsorted(self.begin[low:high], at_ns[own], side="right") - 1 + low
            inside = (at >= low) & (self.end[np.maximum(at, low)] >= at_ns[own])
            found[own] = np.where(inside, at, NOWHERE)
        return found

    def end_of(self, stretch: Ints) -> Ints:
        """When the stretches end; before everything where there is none."""
        return np.append(self.end, -1)[stretch]

    def begin_of(self, stretch: Ints) -> Ints:
        """When they begin; -1 where there is none."""
        return np.append(self.begin, -1)[stretch]

    def touched(self, begin_ns: Ints, end_ns: Ints) -> Bools:
        """Whether a stretch of the first place lies over the time between each pair of instants."""
        low, high = int(self.first[0]), int(self.first[1])
        if low == high:
            return np.zeros(len(begin_ns), dtype=np.bool_)
        at = np.searchsorted(self.end[low:high], begin_ns, side="left")
        return np.asarray(np.append(self.begin[low:high], NEVER)[at] <= end_ns)
