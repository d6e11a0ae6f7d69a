"""What is seen in an order: values that only grow, and writes that are seen as they were made.

``monotonic`` takes the forms that Jepsen's suites use. What an operation returns is

- a number: a register that is only incremented; no process sees it fall (dgraph's sequential);
- ``[time number]``: the same, with the time at which the system says that it was so: per process
  neither falls, and by time the number does not (faunadb's monotonic);
- a map of keys to numbers: no two operations see one key rise and another fall (tidb's monotonic);
- a list of rows {:val :sts :process ..}, read in the end: by the system's own time the values rise,
  all that was acknowledged is there, nothing twice (cockroachdb's monotonic).

``sequential``: one process writes a key's parts one after the other, a read asks for them in the
other order: it never sees a part without those that were written before (cockroachdb's, tidb's).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import dropwhile, pairwise
from typing import ClassVar, Final

from shalott.checkers.checker import Result
from shalott.checkers.judge import JudgeRecord, Limits
from shalott.checkers.judges.cycles import Graph, shortest_cycle
from shalott.checkers.judges.passes import (
    Case,
    Operation,
    conclude,
    fields_of,
    judge_objects,
    same,
)
from shalott.checkers.models.model import one_of
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.shape import INTEGER, KEYED, MAP, NIL, PAIR, Shape

_GROW: Final = ("inc", "add", "increment", "write")
_READ: Final = ("read", "read-at")
_KINDS: Final = ("went-back", "time-went-back", "reordered", "lost", "duplicated", "revived")


@dataclass(frozen=True, slots=True)
class Monotonic:
    """inc, add, read -> a number, [time number], a map of numbers, or rows: they only grow.

    ``order``: what maps of numbers must agree with besides each other: "process", what each process
    saw, "realtime", what had ended before, too, or "none". ``rows``: values of rows rise over "all"
    of them, or "process" by process.
    """

    name: ClassVar[str] = "monotonic"

    order: str = "realtime"
    rows: str = "all"

    def __post_init__(self) -> None:
        one_of("order", self.order, "process", "realtime", "none")
        one_of("rows", self.rows, "all", "process")

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=(*_GROW, *_READ), asks=("read", "inc", "add"),
            begin=lambda case: _Growing(case, self), conclude=self._conclude,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        seen = case.counts["observation-count"]
        if not seen:
            case.doubts.append("No value was ever seen.")
        return conclude(
            self.name,
            case,
            headline=f"{seen:,} observations only grew",
            words={
                "went-back": ("a value went back", "values went back, {n} times"),
                "time-went-back": ("the system's time went back", "its time went back, {n} times"),
                "reordered": (
                    "values were seen in two orders",
                    "{n} pairs of values were reordered",
                ),
                "lost": ("1 acknowledged value was lost", "{n} acknowledged values were lost"),
                "duplicated": ("1 value is there twice", "{n} values are there twice"),
                "revived": ("a failed write is there", "{n} failed writes are there"),
            },
            broken=_KINDS,
        )


@dataclass(slots=True)
class _Growing:
    """Told apart by what operations return; one history has one form."""

    case: Case
    options: Monotonic
    last: dict[int, tuple[Operation, Hashable]] = field(default_factory=dict)  # by process
    last_time: dict[int, tuple[Operation, Hashable]] = field(default_factory=dict)
    timed: list[tuple[Hashable, int, Operation]] = field(default_factory=list)
    maps: list[tuple[Operation, dict[Hashable, int]]] = field(default_factory=list)
    rows: _Rows = field(init=False)

    def __post_init__(self) -> None:
        self.rows = _Rows(self.case, self.options.rows)

    def take(self, op: Operation) -> None:
        fields = fields_of(op.result)
        if fields is not None and "val" in fields:
            self.rows.take_add(op, fields)
            return
        if op.type != "ok":
            self.rows.take_add(op, None)
            return
        value = op.result
        if type(value) is int:
            self._see(op, value)
        elif fields is not None:
            state = _numbers(fields.get("registers", op.result))
            self.maps.append((op, state))
        elif isinstance(value, tuple) and len(value) == 2 and type(value[1]) is int:
            self._see_at(op, value[0], value[1])
        elif isinstance(value, tuple):
            self.rows.last = op
        else:
            return
        self.case.counts["observation-count"] += 1

    def _see(self, op: Operation, value: int) -> None:
        case = self.case
        before = self.last.get(op.process)
        self.last[op.process] = (op, value)
        if before is None or not _is_less(value, before[1]):
            return
        if case.found("went-back"):
            case.tell(
                "went-back",
                f"process {op.process} saw {case.shown(before[1])} ({case.at(before[0].place)}),"
                f" then {value} ({case.at(op.place)})",
                before[0].place,
                op.place,
            )

    def _see_at(self, op: Operation, time: Hashable, value: int) -> None:
        case, time = self.case, same(time)
        if op.f != "read":
            self.timed.append((time, value, op))
        if op.f == "read-at":
            return  # it asks for the past
        self._see(op, value)
        before = self.last_time.get(op.process)
        self.last_time[op.process] = (op, time)
        if before is not None and _is_less(time, before[1]) and case.found("time-went-back"):
            case.tell(
                "time-went-back",
                f"process {op.process} was told time {case.shown(before[1])}"
                f" ({case.at(before[0].place)}), then {case.shown(time)} ({case.at(op.place)})",
                before[0].place,
                op.place,
            )

    def end(self) -> None:
        self._judge_timed()
        if self.maps:
            self._judge_maps()
        self.rows.end()

    def _judge_timed(self) -> None:
        """By the system's own time the value does not fall."""
        case = self.case
        ordered = sorted(self.timed, key=lambda each: _sort_key(each[0]))
        for (time, value, op), (later, other, next_op) in pairwise(ordered):
            if other < value and time != later and case.found("reordered"):
                case.tell(
                    "reordered",
                    f"at time {case.shown(time)} the value was {value} ({case.at(op.place)}), at"
                    f" the later time {case.shown(later)} it was {other}"
                    f" ({case.at(next_op.place)})",
                    op.place,
                    next_op.place,
                )

    def _judge_maps(self) -> None:
        case = self.case
        graph = Graph(len(self.maps))
        for key in {key for _, state in self.maps for key in state}:
            _add_key(graph, key, [(state.get(key), at) for at, (_, state) in enumerate(self.maps)])
        ops = [op for op, _ in self.maps]
        if self.options.order != "none":
            graph.add_processes([(op.process, op.call) for op in ops])
        if self.options.order == "realtime":
            graph.add_realtime([(op.call, op.ret) for op in ops])
        for component in graph.components():
            if case.found("reordered"):
                told, places = self._told(shortest_cycle(graph, component))
                case.tell("reordered", told, *places)

    def _told(self, cycle: list[tuple[int, str]]) -> tuple[str, list[int]]:
        case, steps = self.case, []
        for (at, why), (later, _) in pairwise((*cycle, cycle[0])):
            (op, state), (next_op, next_state) = self.maps[at], self.maps[later]
            if why.startswith("key "):
                key = next(key for key in state if f"key {key}" == why)
                steps.append(
                    f"{case.at(op.place)} saw {case.shown(key)} at {state[key]}, before"
                    f" {case.at(next_op.place)}, which saw {next_state[key]}"
                )
            else:
                steps.append(f"{case.at(op.place)} was before {case.at(next_op.place)} {why}")
        return f"{'; '.join(steps)}: a circle", [self.maps[at][0].place for at, _ in cycle]


def _numbers(value: Hashable) -> dict[Hashable, int]:
    """A map's numbers; of {:value n :ts t} the value."""
    found: dict[Hashable, int] = {}
    for key, each in (fields_of(value) or {}).items():
        inner = fields_of(each)
        number = each if inner is None else inner.get("value")
        if type(number) is int:
            found[key] = number
    return found


def _add_key(graph: Graph, key: Hashable, seen: list[tuple[int | None, int]]) -> None:
    """Those that saw a lower value come before those that saw the next higher one."""
    by_value: dict[int, list[int]] = {}
    for value, at in seen:
        if value is not None:
            by_value.setdefault(value, []).append(at)
    groups = [by_value[value] for value in sorted(by_value)]
    for lower, higher in pairwise(groups):
        graph.add_all(lower, higher, f"key {key}")


def _sort_key(value: Hashable) -> tuple[bool, float, str]:
    is_number = isinstance(value, int | float)
    return (not is_number, float(value) if isinstance(value, int | float) else 0.0, str(value))


def _is_less(value: Hashable, other: Hashable) -> bool:
    if isinstance(value, int | float) and isinstance(other, int | float):
        return value < other
    return _sort_key(value) < _sort_key(other)


@dataclass(slots=True)
class _Rows:
    """Rows that adds wrote, and the last read of all of them."""

    case: Case
    across: str
    acknowledged: dict[Hashable, tuple[int, int]] = field(default_factory=dict)  # end, place
    failed: dict[Hashable, int] = field(default_factory=dict)  # place
    last: Operation | None = None

    def take_add(self, op: Operation, row: dict[Hashable, Hashable] | None) -> None:
        told = row or fields_of(op.argument)
        if told is None or "val" not in told:
            return
        value = same(told["val"])
        if op.type == "ok" and op.ret is not None:
            self.case.counts["observation-count"] += 1
            self.acknowledged[value] = (op.ret, op.place)
        elif op.type == "fail":
            self.failed[value] = op.place

    def end(self) -> None:
        case, last = self.case, self.last
        if last is None:
            if self.acknowledged:
                case.doubts.append(f"{case.of_key}The rows were never read.")
            return
        assert isinstance(last.result, tuple)
        rows = [row for each in last.result if (row := fields_of(each)) is not None]
        read = f"the last read ({case.at(last.place)})"
        times = Counter(same(row.get("val")) for row in rows)
        for value, (end, place) in self.acknowledged.items():
            if value not in times and end < last.call and case.found("lost"):
                case.tell(
                    "lost",
                    f"{case.shown(value)} was added ({case.at(place)}), but {read} lacks it",
                    place,
                    last.place,
                )
        for value, count in times.items():
            if count > 1 and case.found("duplicated"):
                case.tell("duplicated", f"{read} has {case.shown(value)} {count} times", last.place)
            if value in self.failed and case.found("revived"):
                place = self.failed[value]
                case.tell(
                    "revived",
                    f"{read} has {case.shown(value)}, whose add failed ({case.at(place)})",
                    place,
                    last.place,
                )
        self._judge_order(rows, read, last.place)

    def _judge_order(self, rows: list[dict[Hashable, Hashable]], read: str, place: int) -> None:
        case = self.case
        times = [same(row["sts"]) for row in rows if "sts" in row]
        for time, later in pairwise(times):
            if _is_less(later, time) and case.found("time-went-back"):
                told = f"{read} has time {case.shown(time)} before {case.shown(later)}"
                case.tell("time-went-back", told, place)
        for who, values in self._series(rows):
            for value, later in pairwise(values):
                if _is_less(later, value) and case.found("reordered"):
                    told = f"{read} has {case.shown(value)} before {case.shown(later)}{who}"
                    case.tell("reordered", told, place)

    def _series(self, rows: list[dict[Hashable, Hashable]]) -> Iterator[tuple[str, list[Hashable]]]:
        if self.across == "all":
            yield "", [row.get("val") for row in rows]
            return
        by_process: dict[Hashable, list[Hashable]] = {}
        for row in rows:
            by_process.setdefault(same(row.get("process")), []).append(row.get("val"))
        for process, values in by_process.items():
            yield f" of process {self.case.shown(process)}", values


# --- the parts of a key, in order -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sequential:
    """write(k), which writes its parts in order; read(k) -> [k parts], asked for in the other
    order: the last part first, nil where there is none."""

    name: ClassVar[str] = "sequential"

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=SEQUENTIAL.fs, asks=(),
            begin=_Parts, conclude=self._conclude,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        reads = sum(case.counts[f"{name}-count"] for name in ("all", "some", "none"))
        if not reads:
            case.doubts.append("No key was ever read.")
        return conclude(
            self.name,
            case,
            headline=f"{reads:,} reads saw the parts of their keys in order",
            words={
                "bad": (
                    "1 read saw a later part without an earlier one",
                    "{n} reads saw later parts without earlier ones",
                )
            },
            broken=("bad",),
        )


@dataclass(slots=True)
class _Parts:
    case: Case

    def take(self, op: Operation) -> None:
        if op.f != "read" or op.type != "ok":
            return
        case, parts, of_key = self.case, op.result, ""
        if isinstance(parts, tuple) and len(parts) == 2 and isinstance(parts[1], tuple):
            of_key, parts = f" of key {case.shown(parts[0])}", parts[1]
        if not isinstance(parts, tuple):
            return
        there = sum(part is not None for part in parts)
        how_many = "all" if there == len(parts) else "some" if there else "none"
        case.counts[f"{how_many}-count"] += 1
        missing = [part for part in dropwhile(lambda part: part is None, parts) if part is None]
        if missing and case.found("bad"):
            seen = next(part for part in parts if part is not None)
            case.tell(
                "bad",
                f"the read at {case.at(op.place)}{of_key} saw {case.shown(seen)}, but then not what"
                f" had been written before it: {case.shown(parts)}",
                op.place,
            )

    def end(self) -> None:
        pass


def _wants_monotonic(shape: Shape) -> bool:
    if not shape.has_any("inc", "add", "increment") or not shape.within(*_GROW, *_READ):
        return False
    if shape.has("read-at") or "val" in shape.map_keys.get("add", ()):
        return True
    asked = shape.argument("inc") | shape.argument("increment")
    seen = shape.result("inc") | shape.result("increment")
    tells = bool(seen & {MAP, PAIR, KEYED}) or (INTEGER in seen and asked <= {NIL})
    return tells and shape.has_any("inc", "increment")


def _wants_sequential(shape: Shape) -> bool:
    return (
        shape.within("write", "read")
        and shape.result("read") <= {PAIR, KEYED}
        and bool(shape.result("read"))
        and shape.argument("read") <= {INTEGER}
        and bool(shape.argument("read"))
    )


MONOTONIC = JudgeRecord(
    name="monotonic",
    summary="values that only grow are never seen to fall",
    make=Monotonic,
    promise="No process sees a value fall, no two operations see values in two orders, and by the"
    " system's own time values only rise.",
    source="Jepsen's suites of CockroachDB, FaunaDB, TiDB and Dgraph",
    fs=(*_GROW, *_READ),
    wants=_wants_monotonic,
)

SEQUENTIAL = JudgeRecord(
    name="sequential",
    summary="writes of one process are seen in the order in which it made them",
    make=Sequential,
    promise="A read that sees a part of a key sees what was written before it, too.",
    source="Jepsen's suites of CockroachDB and TiDB",
    fs=("write", "read"),
    wants=_wants_sequential,
)
