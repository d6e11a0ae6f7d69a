"""What a read that shows one write must show besides: writes that came before it.

``causal-reverse`` and ``comments`` (jepsen.tests.causal-reverse, cockroachdb's comments): a write
that had been acknowledged before another was invoked is seen wherever the other one is. ``causal``
(jepsen.tests.causal): the operations on a register are causally linked, each to the position of the
last. ``long-fork`` (jepsen.tests.long-fork): two reads never show two writes in opposite orders.
``g2`` (jepsen.tests.adya): of two transactions that each look whether the other is there, one sees
the other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import ClassVar, Final

from shalott.checkers.checker import Result
from shalott.checkers.judge import JudgeRecord, Limits
from shalott.checkers.judges.passes import (
    Case,
    Operation,
    conclude,
    elements_of,
    judge_objects,
    same,
)
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.shape import (
    EMPTY,
    INTEGER,
    KEYED,
    LIST,
    MOPS,
    NIL,
    PAIR,
    SET,
    Shape,
)

# --- what was acknowledged before is seen, too ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class CausalReverse:
    """write(v), each v once, read -> those that are there: with v all that was acknowledged before
    the write of v was invoked."""

    name: ClassVar[str] = "causal-reverse"

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=CAUSAL_REVERSE.fs, asks=("read",),
            begin=_Precedence, conclude=self._conclude, invocations=True,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        reads = case.counts["read-count"]
        if not reads:
            case.doubts.append("Nothing was ever read.")
        return conclude(
            self.name,
            case,
            headline=f"{reads:,} reads saw what had been written before",
            words={
                "missing-write": (
                    "1 read saw a write without an earlier one",
                    "{n} reads saw writes without earlier ones",
                ),
                "unexpected": ("1 value came from nowhere", "{n} values came from nowhere"),
            },
            broken=("missing-write", "unexpected"),
        )


@dataclass(slots=True)
class _Precedence:
    """Writes by value. What had to be seen is a beginning of the writes in the order of their ends,
    so a read is compared with a number, not with a set."""

    case: Case
    call: dict[Hashable, int] = field(default_factory=dict)
    begun: dict[Hashable, int] = field(default_factory=dict)  # the place of the invocation
    acknowledged: dict[Hashable, int] = field(default_factory=dict)  # the place
    in_order: list[Hashable] = field(default_factory=list)  # as they were acknowledged
    ends: list[int] = field(default_factory=list)
    rank: dict[Hashable, int] = field(default_factory=dict)

    def take(self, op: Operation) -> None:
        if op.f == "read":
            elements = elements_of(op.result) if op.type == "ok" else None
            if elements is not None:
                self._look(op.place, elements)
            return
        value = same(op.argument)
        self.call.setdefault(value, op.call)
        self.begun.setdefault(value, op.place)
        if op.type == "ok" and op.ret is not None and value not in self.rank:
            self.acknowledged[value] = op.place
            self.rank[value] = len(self.in_order)
            self.in_order.append(value)
            self.ends.append(op.ret)

    def _look(self, place: int, shown: list[Hashable]) -> None:
        self.case.counts["read-count"] += 1
        seen = set(shown)
        unknown = seen - self.call.keys()
        if unknown:
            self._tell_unexpected(place, [value for value in shown if value in unknown])
            seen -= unknown
        if not seen:
            return
        latest = max(seen, key=self.call.__getitem__)
        needed = bisect_left(self.ends, self.call[latest])
        rank = self.rank
        if sum(rank.get(value, needed) < needed for value in seen) < needed:
            missing = [value for value in self.in_order[:needed] if value not in seen]
            self._tell_missing(place, latest, missing)

    def end(self) -> None:
        self.case.counts["write-count"] += len(self.call)

    def _tell_missing(self, place: int, latest: Hashable, missing: list[Hashable]) -> None:
        case = self.case
        if case.found("missing-write"):
            earlier, written = self.acknowledged[missing[0]], self.begun[latest]
            case.tell(
                "missing-write",
                f"the read at {case.at(place)} shows {case.shown(latest)}, but not"
                f" {case.listed(missing, len(missing))}: {case.shown(missing[0])} had been"
                f" acknowledged ({case.at(earlier)}) before the write of {case.shown(latest)} was"
                f" invoked ({case.at(written)})",
                earlier,
                written,
                place,
                missing=len(missing),
            )

    def _tell_unexpected(self, place: int, values: list[Hashable]) -> None:
        case = self.case
        if case.found("unexpected"):
            case.tell(
                "unexpected",
                f"the read at {case.at(place)} shows {case.listed(values, len(values))}, which no"
                " write brought",
                place,
            )


# --- linked operations ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Causal:
    """read-init -> 0, write(1), read -> 1, write(2), read -> 2: one after the other, each linked to
    the position of the last one (:link and :position of the entries)."""

    name: ClassVar[str] = "causal"

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=CAUSAL.fs, asks=("read-init", "read"),
            begin=_Linked, conclude=self._conclude,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        count = case.counts["ok-count"]
        if not count:
            case.doubts.append("No operation was acknowledged.")
        return conclude(
            self.name,
            case,
            headline=f"{count:,} operations were in causal order",
            words={
                "broken-link": (
                    "1 operation missed its cause",
                    "{n} operations missed their cause",
                ),
                "wrong-value": ("1 operation had another value", "{n} operations had other values"),
            },
            broken=("broken-link", "wrong-value"),
        )


@dataclass(slots=True)
class _Linked:
    case: Case
    value: Hashable = 0
    writes: int = 0
    position: Hashable = None
    place: int = -1
    is_lost: bool = False  # behind the first anomaly nothing more is known

    def take(self, op: Operation) -> None:
        if op.type != "ok" or self.is_lost:
            return
        self.case.counts["ok-count"] += 1
        kind, why = self._problem(op)
        if not kind:
            self.position, self.place = same(op.extra.get("position")), op.place
            return
        self.is_lost = True
        if self.case.found(kind):
            self.case.tell(kind, f"{op.f} at {self.case.at(op.place)} {why}", self.place, op.place)

    def _problem(self, op: Operation) -> tuple[str, str]:
        shown, value = self.case.shown, op.result
        link = same(op.extra.get("link"))
        if link not in ("init", self.position):
            return "broken-link", (
                f"is linked to position {shown(link)}, but the last one was at"
                f" {shown(self.position)}"
            )
        if op.f == "write":
            self.writes += 1
            if same(value) != self.writes:
                return "wrong-value", f"wrote {shown(value)}, where {self.writes} was next"
            self.value = value
            return "", ""
        if op.f == "read-init" and not self.writes and value != 0:
            return "wrong-value", f"read {shown(value)} before anything was written"
        if value is not None and same(value) != self.value:
            return "wrong-value", f"read {shown(value)}, but {shown(self.value)} was written last"
        return "", ""

    def end(self) -> None:
        pass


# --- forks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LongFork:
    """write [[:w k v]], each k once, and read [[:r k v] ...] of a group of keys: two reads of a
    group are the same, or one shows all that the other does, and more.

    ``n``: keys of a group; 0: as many as the first read has.
    """

    name: ClassVar[str] = "long-fork"

    n: int = 0

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=LONG_FORK.fs, asks=(),
            begin=lambda case: _Groups(case, self.n), conclude=self._conclude,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        reads = case.counts["reads-count"]
        if not reads:
            case.doubts.append("There was no read of a group of keys.")
        return conclude(
            self.name,
            case,
            headline=f"{reads:,} reads saw the writes in one order",
            words={
                "long-fork": (
                    "two reads saw two writes in opposite orders",
                    "pairs of reads saw writes in opposite orders, {n} times",
                )
            },
            broken=("long-fork",),
        )


_Mops = tuple[tuple[Hashable, Hashable, Hashable], ...]
_IS_READ: Final = ("r", "read")


@dataclass(slots=True)
class _Groups:
    """By group of keys: which of them were there, and the first read that saw it so."""

    case: Case
    n: int
    values: dict[Hashable, Hashable] = field(default_factory=dict)
    written: set[Hashable] = field(default_factory=set)
    seen: dict[tuple[Hashable, ...], dict[int, Operation]] = field(default_factory=dict)
    order: dict[frozenset[Hashable], tuple[Hashable, ...]] = field(default_factory=dict)

    def take(self, op: Operation) -> None:
        mops = _mops_of(op.result if op.type == "ok" else op.argument)
        if mops is None:
            return
        if len(mops) == 1 and mops[0][0] not in _IS_READ:
            key = mops[0][1]
            if key in self.written:
                self._doubt(f"key {self.case.shown(key)} was written more than once")
            self.written.add(key)
        elif op.type == "ok" and mops and all(mop[0] in _IS_READ for mop in mops):
            self._read(op, mops)

    def _read(self, op: Operation, mops: _Mops) -> None:
        case = self.case
        case.counts["reads-count"] += 1
        state = {key: value for _, key, value in mops}
        there = sum(value is not None for value in state.values())
        case.counts["early-read-count"] += not there
        case.counts["late-read-count"] += there == len(state)
        self.n = self.n or len(state)
        if len(state) != self.n:
            self._doubt(f"the read at {case.at(op.place)} is of {len(state)} keys, not of {self.n}")
            return
        keys = self.order.setdefault(frozenset(state), tuple(state))
        mask = 0
        for at, key in enumerate(keys):
            value = state[key]
            if value is not None:
                mask |= 1 << at
                if self.values.setdefault(key, value) != value:
                    self._doubt(
                        f"key {case.shown(key)} was read as {case.shown(value)} and as"
                        f" {case.shown(self.values[key])}"
                    )
        self.seen.setdefault(keys, {}).setdefault(mask, op)

    def _doubt(self, why: str) -> None:
        if len(self.case.doubts) < 4:
            self.case.doubts.append(f"{self.case.of_key}This is no history for long-fork: {why}.")

    def end(self) -> None:
        for keys, seen in self.seen.items():
            masks = sorted(seen, key=lambda mask: (mask.bit_count(), mask))
            # Sorted by size, all are a chain if each is within the next.
            if all(mask & later == mask for mask, later in pairwise(masks)):
                continue
            for at, mask in enumerate(masks):
                for later in masks[at + 1 :]:
                    if mask & later != mask and self.case.found("long-fork"):
                        self._tell(keys, mask, later, seen)

    def _tell(
        self, keys: Sequence[Hashable], mask: int, later: int, seen: dict[int, Operation]
    ) -> None:
        case = self.case
        one, other = seen[mask], seen[later]
        only, others = (
            keys[(each & ~another).bit_length() - 1]
            for each, another in ((mask, later), (later, mask))
        )
        case.tell(
            "long-fork",
            f"the read at {case.at(one.place)} shows key {case.shown(only)} and not"
            f" {case.shown(others)}, that at {case.at(other.place)} shows {case.shown(others)} and"
            f" not {case.shown(only)}: {case.shown(one.result)} and {case.shown(other.result)}",
            one.place,
            other.place,
        )


def _mops_of(value: Hashable) -> _Mops | None:
    if not isinstance(value, tuple):
        return None
    if not all(isinstance(mop, tuple) and len(mop) == 3 for mop in value):
        return None
    return tuple((str(mop[0]), same(mop[1]), mop[2]) for mop in value)


# --- two that exclude each other ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class G2:
    """insert [key [a-id b-id]], one of the two nil: of one key at most one insert succeeds, for
    each looks first whether the other is there."""

    name: ClassVar[str] = "g2"

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=ADYA_G2.fs, asks=(),
            begin=_Inserts, conclude=self._conclude,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        legal = case.counts["legal-count"]
        if not case.counts["insert-count"]:
            case.doubts.append("Nothing was inserted.")
        return conclude(
            self.name,
            case,
            headline=f"of each of {legal:,} keys one insert at most succeeded",
            words={
                "illegal": (
                    "both inserts of 1 key succeeded",
                    "several inserts of {n} keys succeeded",
                )
            },
            broken=("illegal",),
        )


@dataclass(slots=True)
class _Inserts:
    case: Case
    inserted: dict[Hashable, list[Operation]] = field(default_factory=dict)

    def take(self, op: Operation) -> None:
        value = op.argument if op.argument is not None else op.result
        if not isinstance(value, tuple) or len(value) != 2:
            return
        of_key = self.inserted.setdefault(same(value[0]), [])
        if op.type == "ok":
            of_key.append(op)

    def end(self) -> None:
        case = self.case
        case.counts["key-count"] += len(self.inserted)
        for key, ops in self.inserted.items():
            case.counts["insert-count"] += len(ops)
            case.counts["legal-count"] += len(ops) == 1
            if len(ops) > 1 and case.found("illegal"):
                each = [f"{case.shown(op.argument)} ({case.at(op.place)})" for op in ops]
                case.tell(
                    "illegal",
                    f"{len(ops)} inserts of key {case.shown(key)} succeeded, though each had looked"
                    f" for the other: {' and '.join(each)}",
                    *(op.place for op in ops),
                )


def _wants_writes(shape: Shape) -> bool:
    """Each write brings one number, and a read shows several."""
    reads = shape.result("read")
    return (
        shape.within("write", "read")
        and bool(reads)
        and reads <= {LIST, SET, EMPTY, PAIR, KEYED}
        and shape.argument("write") <= {INTEGER}
        and shape.argument("read") <= {NIL}
    )


def _wants_forks(shape: Shape) -> bool:
    return (
        shape.has("write", "read")
        and shape.within("write", "read")
        and shape.result("read") == {MOPS}
        and shape.argument("write") == {MOPS}
    )


CAUSAL_REVERSE = JudgeRecord(
    name="causal-reverse",
    summary="a write is not seen without those that were acknowledged before it",
    make=CausalReverse,
    promise="A read that shows a write shows all that had been acknowledged before it was invoked.",
    source="jepsen.tests.causal-reverse; comments in Jepsen's suite of CockroachDB",
    fs=("write", "read"),
    wants=_wants_writes,
)

# As CockroachDB's suite calls it.
COMMENTS = replace(CAUSAL_REVERSE, name="comments", wants=lambda shape: False)

CAUSAL = JudgeRecord(
    name="causal",
    summary="operations on a register are in causal order",
    make=Causal,
    promise="Each operation sees what the one saw and did that it is linked to.",
    source="jepsen.tests.causal",
    fs=("read-init", "write", "read"),
    wants=lambda shape: shape.has("read-init") and shape.within("read-init", "write", "read"),
)

LONG_FORK = JudgeRecord(
    name="long-fork",
    summary="no two reads see two writes in opposite orders",
    make=LongFork,
    promise="Of two reads of the same keys one shows all that the other does: snapshot isolation"
    " forbids what parallel snapshot isolation allows.",
    source="jepsen.tests.long-fork",
    fs=("write", "read", "txn"),
    wants=_wants_forks,
)

ADYA_G2 = JudgeRecord(
    name="g2",
    summary="of two transactions that exclude each other one fails",
    make=G2,
    promise="At most one insert of each key succeeds: no cycle of anti-dependencies (G2).",
    source="jepsen.tests.adya; Adya, Weak Consistency, MIT 1999",
    fs=("insert",),
    wants=lambda shape: shape.within("insert"),
)
