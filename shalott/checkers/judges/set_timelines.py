"""Sets that only grow, by all of their reads (jepsen.checker/set-full).

Of each element: when it was first known, when it was last seen and last missed, by the order in
which the reads were invoked. Memory grows with the elements, not with the reads.

It is one pass, without a look at each element for each read: reads come in the order of their
ends, and an element keeps the number of the last read that showed it. If that is not the read just
before, the reads between missed it; of these the one that was invoked last counts. Their latest
invocation is found in a stack of the reads after which none was invoked later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.checker import Result
from shalott.checkers.judge import JudgeRecord, Limits
from shalott.checkers.judges.passes import (
    NO_TIME,
    Case,
    Operation,
    conclude,
    elements_of,
    judge_objects,
)
from shalott.checkers.judges.sets import SET_FS, SET_WORDS, Element, note_add, wants_sets
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.shape import Shape

Ids = npt.NDArray[np.int64]
_NO: Final = -1


@dataclass(frozen=True, slots=True)
class SetFull:
    """add(v), read -> all elements, often: none is ever lost.

    ``linearizable``: an element that is known must be in every read that begins later, too; without
    it such a read is only counted as stale.
    """

    name: ClassVar[str] = "set-full"

    linearizable: bool = False

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=SET_FULL.fs, asks=("read",),
            begin=lambda case: _Timelines(case, self.linearizable), conclude=self._conclude,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        stable = case.counts["stable-count"]
        if not stable:
            case.doubts.append("No element was found by the last reads: there is nothing to judge.")
        stale = ("stale",) if self.linearizable else ()
        for name in _LATENCIES:
            found = case.detail.pop(name, None)
            if isinstance(found, list) and found:
                case.detail[name] = quantiles(found)
        return conclude(
            self.name,
            case,
            headline=f"none of {stable:,} elements was lost",
            words=SET_WORDS,
            broken=("lost", "duplicated", "unexpected", *stale),
        )


_LATENCIES: Final = ("stable-latencies-ms", "lost-latencies-ms")
_POINTS: Final = (0, 0.5, 0.95, 0.99, 1)
_WORST_MAX: Final = 8


def quantiles(latencies: list[int]) -> dict[str, int]:
    """In milliseconds, at the points that jepsen.checker has, by their texts."""
    ordered = sorted(latencies)
    last = len(ordered) - 1
    return {
        str(point): ordered[min(last, int(len(ordered) * point))] // 1_000_000 for point in _POINTS
    }


@dataclass(slots=True)
class _Reads:
    """All reads in the order of their ends: where each was invoked and ended."""

    call: list[int] = field(default_factory=list)
    ret: list[int] = field(default_factory=list)
    call_ns: list[int] = field(default_factory=list)
    ret_ns: list[int] = field(default_factory=list)
    place: list[int] = field(default_factory=list)
    # The reads after which none was invoked later: their numbers rise, their calls fall.
    peaks: list[int] = field(default_factory=list)

    def add(self, op: Operation, ret: int) -> int:
        number = len(self.call)
        self.call.append(op.call)
        self.ret.append(ret)
        self.call_ns.append(op.call_ns)
        self.ret_ns.append(op.ret_ns)
        self.place.append(op.place)
        while self.peaks and self.call[self.peaks[-1]] <= op.call:
            self.peaks.pop()
        self.peaks.append(number)
        return number

    def latest_calls(self, since: Ids) -> Ids:
        """The latest call of the reads from each number on."""
        peaks = np.array(self.peaks, dtype=np.int64)
        calls = np.array([self.call[peak] for peak in self.peaks], dtype=np.int64)
        return np.asarray(calls[np.searchsorted(peaks, since)])


class _Seen:
    """By the number of an element; -1 where there is none."""

    def __init__(self) -> None:
        self.first = np.empty(0, dtype=np.int64)  # read that showed it, by the order of their ends
        self.last = np.empty(0, dtype=np.int64)
        self.present = np.empty(0, dtype=np.int64)  # the latest call of the reads that showed it
        self.absent = np.empty(0, dtype=np.int64)  # the latest call of those that missed it

    def grow(self, count: int) -> None:
        more = max(count, 2 * len(self.first)) - len(self.first)
        if count > len(self.first):
            new = np.full(more, _NO, dtype=np.int64)
            self.first, self.last = np.append(self.first, new), np.append(self.last, new)
            self.present, self.absent = np.append(self.present, new), np.append(self.absent, new)


@dataclass(slots=True)
class _Timelines:
    case: Case
    linearizable: bool
    ids: dict[Hashable, int] = field(default_factory=dict)
    added: dict[Hashable, Element] = field(default_factory=dict)
    reads: _Reads = field(default_factory=_Reads)
    seen: _Seen = field(default_factory=_Seen)
    again: dict[Hashable, tuple[int, int]] = field(default_factory=dict)  # times, place
    unreadable: int = 0

    def take(self, op: Operation) -> None:
        if op.f != "read":
            note_add(self.added, op)
            return
        if op.type != "ok" or op.ret is None:
            return
        elements = elements_of(op.result)
        if elements is None:
            self.unreadable += 1
        else:
            self._read(op, op.ret, elements)

    def _read(self, op: Operation, ret: int, elements: list[Hashable]) -> None:
        ids, seen, reads = self.ids, self.seen, self.reads
        for value in elements:
            if value not in ids:
                ids[value] = len(ids)
        shown = np.fromiter(map(ids.__getitem__, elements), dtype=np.int64, count=len(elements))
        if isinstance(op.result, tuple) and len(set(elements)) < len(elements):
            self._note_repeated(op, elements)
            shown = np.unique(shown)
        seen.grow(len(ids))
        last = seen.last[shown]
        if reads.call:
            missed = shown[last < len(reads.call) - 1]
            self._note_missed(missed)
        number = reads.add(op, ret)
        seen.first[shown[last == _NO]] = number
        seen.last[shown] = number
        seen.present[shown] = np.maximum(seen.present[shown], op.call)

    def _note_missed(self, ids: Ids) -> None:
        """By all reads between the last that showed it and now."""
        if len(ids):
            latest = self.reads.latest_calls(self.seen.last[ids] + 1)
            self.seen.absent[ids] = np.maximum(self.seen.absent[ids], latest)

    def _note_repeated(self, op: Operation, elements: list[Hashable]) -> None:
        for value, times in Counter(elements).items():
            if times > 1 and times > self.again.get(value, (0, 0))[0]:
                self.again[value] = (times, op.place)

    # -- in the end --

    def end(self) -> None:
        case, seen = self.case, self.seen
        for value in self.added:
            self.ids.setdefault(value, len(self.ids))
        seen.grow(len(self.ids))
        if self.reads.call:
            self._note_missed(np.flatnonzero(seen.last[: len(self.ids)] < len(self.reads.call) - 1))
        case.counts["attempt-count"] += len(self.added)
        case.counts["read-count"] += len(self.reads.call)
        number_of = {call: number for number, call in enumerate(self.reads.call)}
        for value, id_ in self.ids.items():
            element = self.added.get(value)
            first = int(seen.first[id_])
            if element is None or (first != _NO and self.reads.ret[first] < element.call):
                self._tell_unexpected(value, first, element)
            else:
                self._judge(_Timeline(self, value, element, id_, number_of))
        for value, (times, place) in self.again.items():
            if case.found("duplicated"):
                case.tell(
                    "duplicated",
                    f"the read at {case.at(place)} shows {case.shown(value)} {times} times",
                    place,
                )
        if self.unreadable:
            case.notes.append(f"{self.unreadable:,} reads returned no elements and were left out.")

    def _tell_unexpected(self, value: Hashable, first: int, element: Element | None) -> None:
        case, place = self.case, self.reads.place[first]
        if case.found("unexpected"):
            why = "which was never added"
            if element is not None:
                why = f"before it was added ({case.at(element.place)})"
            case.tell(
                "unexpected",
                f"the read at {case.at(place)} shows {case.shown(value)}, {why}",
                place,
            )

    def _judge(self, line: _Timeline) -> None:
        case = self.case
        if line.is_stable:
            case.counts["stable-count"] += 1
            self._keep("stable-latencies-ms", line.latency_ns)
            if line.is_stale:
                self._note_stale(line)
            return
        if not line.is_lost:
            case.counts["never-read-count"] += 1
            return
        self._keep("lost-latencies-ms", line.latency_ns)
        if case.found("lost"):
            case.tell("lost", line.told_lost(), line.known_place, line.missed_place)

    def _note_stale(self, line: _Timeline) -> None:
        case = self.case
        if case.found("stale") and self.linearizable:
            case.tell("stale", line.told_stale(), line.known_place, line.missed_place)
        worst = case.detail.setdefault("worst-stale", [])
        assert isinstance(worst, list)
        latency = line.latency_ns or 0
        if len(worst) < _WORST_MAX or latency > worst[-1]["latency-ns"]:
            worst.append({"latency-ns": latency, **line.as_detail()})
            worst.sort(key=lambda each: -int(each["latency-ns"]))
            del worst[_WORST_MAX:]

    def _keep(self, name: str, latency_ns: int | None) -> None:
        if latency_ns is not None:
            kept = self.case.detail.setdefault(name, [])
            assert isinstance(kept, list)
            kept.append(latency_ns)


class _Timeline:
    """When one element was known, last seen and last missed."""

    def __init__(
        self,
        of: _Timelines,
        value: Hashable,
        element: Element,
        id_: int,
        number_of: Mapping[int, int],
    ) -> None:
        reads = of.reads
        self.case, self.value, self.reads, self.number_of = of.case, value, reads, number_of
        self.known, self.known_ns, self.known_place = element.ok_ret, element.ok_ns, element.place
        self.by = "added"
        first = int(of.seen.first[id_])
        if first != _NO and reads.ret[first] < self.known:
            self.known, self.known_ns = reads.ret[first], reads.ret_ns[first]
            self.known_place, self.by = reads.place[first], "read"
        self.present = int(of.seen.present[id_])
        absent = int(of.seen.absent[id_])
        # One that was invoked before the add may have been before it.
        self.absent = absent if absent > element.call else _NO

    @property
    def is_stable(self) -> bool:
        return self.present != _NO and self.absent < self.present

    @property
    def is_lost(self) -> bool:
        return self.known < self.absent and self.present < self.absent

    @property
    def is_stale(self) -> bool:
        return self.known < self.absent

    @property
    def latency_ns(self) -> int | None:
        """From when it was known until it was there for good, or gone; None: there are no times."""
        at = self.absent if self.is_stable else self.present
        if at == _NO:
            return 0
        since_ns = self.reads.call_ns[self.number_of[at]]
        if NO_TIME in (since_ns, self.known_ns):
            return None
        return max(0, since_ns + 1 - self.known_ns)

    @property
    def missed_place(self) -> int:
        return self.reads.place[self.number_of[self.absent]]

    def told_lost(self) -> str:
        case = self.case
        seen, later = "no read showed it", ""
        if self.present != _NO:
            place = self.reads.place[self.number_of[self.present]]
            seen, later = f"the read at {case.at(place)} was the last to show it", ", begun later,"
        return (
            f"{case.shown(self.value)} was {self.by} ({case.at(self.known_place)}), but was missing"
            f" in the end: {seen}, and that at {case.at(self.missed_place)}{later} did not"
        )

    def told_stale(self) -> str:
        case = self.case
        return (
            f"{case.shown(self.value)} was {self.by} ({case.at(self.known_place)}), but the read at"
            f" {case.at(self.missed_place)}, which began later, did not show it"
        )

    def as_detail(self) -> dict[str, object]:
        latency = self.latency_ns
        return {
            "element": self.case.shown(self.value),
            "known": self.known_place,
            "last-absent": self.missed_place,
            "stable-latency-ms": None if latency is None else latency // 1_000_000,
        }


def _wants_full(shape: Shape) -> bool:
    return wants_sets(shape) and shape.fs["read"] > 1


SET_FULL = JudgeRecord(
    name="set-full",
    summary="what was added to a set stays in it, by all of its reads",
    make=SetFull,
    promise="An element that is known is never missing for good; no read shows an element twice.",
    source="jepsen.checker/set-full",
    fs=SET_FS,
    wants=_wants_full,
)
