"""Ids and counters: no id is given out twice, and a counter shows no less than was added to it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar

from shalott.checkers.checker import Result
from shalott.checkers.judge import JudgeRecord, Limits
from shalott.checkers.judges.passes import Case, Operation, conclude, judge_objects, same
from shalott.checkers.reading.entries import EntrySource


@dataclass(frozen=True, slots=True)
class UniqueIds:
    """generate -> an id that no other generate ever returned."""

    name: ClassVar[str] = "unique-ids"

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=UNIQUE_IDS.fs, asks=UNIQUE_IDS.fs,
            begin=_Ids, conclude=self._conclude,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        if not case.counts["acknowledged-count"]:
            case.doubts.append("No id was generated.")
        return conclude(
            self.name,
            case,
            headline=f"{case.counts['acknowledged-count']:,} ids were all different",
            words={
                "duplicated": ("1 id was given out twice", "{n} ids were given out more than once")
            },
            broken=("duplicated",),
        )


@dataclass(slots=True)
class _Ids:
    case: Case
    first: dict[Hashable, int] = field(default_factory=dict)  # by id: where it was given out
    again: dict[Hashable, list[int]] = field(default_factory=dict)

    def take(self, op: Operation) -> None:
        self.case.counts["attempt-count"] += 1
        if op.type != "ok":
            return
        self.case.counts["acknowledged-count"] += 1
        given = same(op.result)
        if given in self.first:
            self.again.setdefault(given, [self.first[given]]).append(op.place)
        else:
            self.first[given] = op.place

    def end(self) -> None:
        case = self.case
        for given, places in self.again.items():
            if case.found("duplicated"):
                case.tell(
                    "duplicated",
                    f"the id {case.shown(given)} was given out {len(places)} times: first at"
                    f" {case.at(places[0])}, again at {case.at(places[1])}",
                    *places,
                    times=len(places),
                )


UNIQUE_IDS = JudgeRecord(
    name="unique-ids",
    summary="no id is given out twice",
    make=UniqueIds,
    promise="Every generate that is acknowledged returns an id that no other one returned.",
    source="jepsen.checker/unique-ids",
    fs=("generate",),
)
