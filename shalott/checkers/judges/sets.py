"""A set that is read in the end: what was added is there (jepsen.checker/set).

What every read shows of a set that grows is judged in judges/set_timelines.py.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from shalott.checkers.checker import Result
from shalott.checkers.judge import JudgeRecord, Limits
from shalott.checkers.judges.passes import (
    NO_TIME,
    Case,
    Operation,
    conclude,
    elements_of,
    judge_objects,
    same,
)
from shalott.checkers.models.model import one_of
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.shape import EMPTY, KEYED, LIST, NIL, PAIR, SET, Shape

NEVER: Final = 2**62  # no entry has this number
_ADDS: Final = ("add", "broadcast")  # Maelstrom's broadcast is a set that grows
SET_FS: Final = (*_ADDS, "read")


@dataclass(slots=True)
class Element:
    """One element of a set, by what was told of its adds."""

    call: int  # of the first add
    ok_ret: int = NEVER  # of the first that was acknowledged
    ok_ns: int = NO_TIME
    place: int = -1  # of the acknowledgement, or else of the add
    failed: bool = True  # certainly never added


@dataclass(frozen=True, slots=True)
class FinalSet:
    """add(v), and a read in the end that returns all that was added.

    ``revived``: what is there although its add failed for certain is "allowed", as Jepsen has it,
    or "refused".
    """

    name: ClassVar[str] = "final-set"

    revived: str = "allowed"

    def __post_init__(self) -> None:
        one_of("revived", self.revived, "allowed", "refused")

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=FINAL_SET.fs, asks=("read",),
            begin=_AtTheEnd, conclude=self._conclude,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        refused = ("revived",) if self.revived == "refused" else ()
        return conclude(
            self.name,
            case,
            headline=f"all {case.counts['acknowledged-count']:,} elements were there in the end",
            words=SET_WORDS,
            broken=("lost", "unexpected", *refused),
        )


SET_WORDS: Final = {
    "lost": ("1 added element was lost", "{n} added elements were lost"),
    "unexpected": ("1 element came from nowhere", "{n} elements came from nowhere"),
    "revived": (
        "1 element is there whose add certainly failed",
        "{n} elements are there whose adds certainly failed",
    ),
    "duplicated": ("1 element was read twice at once", "{n} elements were read twice at once"),
    "stale": ("1 element was missed by a read", "{n} elements were missed by reads"),
}


@dataclass(slots=True)
class _AtTheEnd:
    case: Case
    added: dict[Hashable, Element] = field(default_factory=dict)
    last: Operation | None = None

    def take(self, op: Operation) -> None:
        if op.f != "read":
            note_add(self.added, op)
        elif op.type == "ok" and elements_of(op.result) is not None:
            self.last = op

    def end(self) -> None:
        case, last = self.case, self.last
        acknowledged = sum(each.ok_ret != NEVER for each in self.added.values())
        case.counts["attempt-count"] += len(self.added)
        case.counts["acknowledged-count"] += acknowledged
        if last is None:
            case.doubts.append(f"{case.of_key}The set was never read.")
            return
        listed = elements_of(last.result) or []
        found = set(listed)
        case.counts["ok-count"] += sum(value in self.added for value in found)
        if len(found) < len(listed):
            case.notes.append(f"{len(listed) - len(found):,} elements were read more than once.")
        read = f"the last read ({case.at(last.place)})"
        late = 0
        for value, element in self.added.items():
            if value in found:
                self._count_found(value, element)
            elif element.ok_ret < last.call:
                if case.found("lost"):
                    case.tell(
                        "lost",
                        f"{case.shown(value)} was added ({case.at(element.place)}), but {read} did"
                        " not show it",
                        element.place,
                        last.place,
                    )
            elif element.ok_ret != NEVER:
                late += 1
        for value in sorted(found - self.added.keys(), key=listed.index):
            if case.found("unexpected"):
                case.tell(
                    "unexpected",
                    f"{read} shows {case.shown(value)}, which was never added",
                    last.place,
                )
        if late:
            case.notes.append(f"{late:,} elements were added after the last read had begun.")

    def _count_found(self, value: Hashable, element: Element) -> None:
        case = self.case
        if element.ok_ret == NEVER:
            case.counts["recovered-count"] += 1
        if element.failed and case.found("revived"):
            case.tell(
                "revived",
                f"{case.shown(value)} is there in the end although its add certainly failed"
                f" ({case.at(element.place)})",
                element.place,
            )


def note_add(added: dict[Hashable, Element], op: Operation) -> Element:
    """What an add that ended tells of its element."""
    value = same(op.argument if op.argument is not None else op.result)
    element = added.get(value)
    if element is None:
        element = added[value] = Element(op.call, place=op.place)
    element.call = min(element.call, op.call)
    element.failed &= op.type == "fail"
    if op.type == "ok" and element.ok_ret == NEVER:
        element.ok_ret = op.call if op.ret is None else op.ret
        element.ok_ns, element.place = op.ret_ns, op.place
    return element


def wants_sets(shape: Shape) -> bool:
    """Each add brings an element; adds of rows that are counted are others' (judges/orders.py)."""
    reads = shape.result("read")
    return (
        shape.within(*SET_FS)
        and shape.has("read")
        and shape.has_any(*_ADDS)
        and bool(reads)
        and reads <= {LIST, PAIR, KEYED, SET, EMPTY}
        and NIL not in shape.argument("add") | shape.argument("broadcast")
        and "val" not in shape.map_keys.get("add", ())
    )


def _wants_final(shape: Shape) -> bool:
    return wants_sets(shape) and shape.fs["read"] == 1


FINAL_SET = JudgeRecord(
    name="final-set",
    summary="what was added is in the set that is read in the end",
    make=FinalSet,
    promise="The last read shows every element whose add was acknowledged before it, and none that"
    " was never added.",
    source="jepsen.checker/set",
    fs=SET_FS,
    wants=_wants_final,
)
