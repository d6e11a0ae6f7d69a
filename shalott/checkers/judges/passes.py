"""One pass over a history: operations out of entries, objects by key, findings as they come.

A judge gives the state of one object (``begin``), which takes the operations on it in the order in
which they ended. The pass does the rest: it pairs invocations and completions, tells keys apart
(jepsen.independent: every value is ``[key value]``), leaves out what the judge does not read, with
a note, and stops at the limits. A history is never kept: memory is what the states keep.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeGuard

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly, Result
from shalott.checkers.history.column_values import MapPairs, exact, original
from shalott.checkers.judge import Limits
from shalott.checkers.reading.edn import EdnMap
from shalott.checkers.reading.entries import NEMESIS, NO_PROCESS, Entry, EntrySource

SHOWN_MAX: Final = 120  # characters of a value within a sentence
LISTED_MAX: Final = 8  # values listed in a sentence
KEPT_MAX: Final = 16  # anomalies of one kind that are told one by one
_LOOK_EVERY: Final = 4096  # entries between two looks at clock and memory
NO_TIME: Final = -1
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_INTEGERS: Final = frozenset({int})
_SAMPLE: Final = 2000  # entries within which the first question tells whether there are keys


class Operation(NamedTuple):
    """An invocation and what came of it. ``type`` is info, too, if it never completed.

    ``call`` and ``ret`` number the entries of the history; ``ret`` is None if it is not known
    whether or when it took effect. ``argument`` and ``result`` are the values of the two entries.
    ``place`` is where people find it: the index, or else the line, of its last entry.
    """

    type: str
    process: int
    f: str
    argument: Hashable
    result: Hashable
    call: int
    ret: int | None
    call_ns: int
    ret_ns: int
    place: int
    error: Hashable
    extra: Mapping[Hashable, Hashable]  # what else stands in its last entry, by name


class State(Protocol):
    """What a judge knows of one object."""

    def take(self, op: Operation) -> None:
        """The next operation that ended; those that never did come last."""
        ...

    def end(self) -> None: ...


@dataclass(slots=True)
class Case:
    """What one judgement has found so far; its states share it."""

    show: Callable[[Hashable], str]  # a value in the history's own syntax
    counts: Counter[str] = field(default_factory=Counter)
    kept: list[Anomaly] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)  # why it is unknown, if nothing is found
    notes: list[str] = field(default_factory=list)
    detail: dict[str, object] = field(default_factory=dict)  # for the report
    keys: int = 0  # 0: there are none
    is_keyed: bool = False
    key: Hashable = None  # of the object that is looked at now
    place: str = "index"

    def found(self, kind: str) -> bool:
        """Counts an anomaly; whether it is one of the first, which are told (``tell``): a sentence
        takes longer than a count."""
        self.counts[f"{kind}-count"] += 1
        return self.counts[f"{kind}-count"] <= KEPT_MAX

    def tell(self, kind: str, summary: str, *operations: int, **detail: object) -> None:
        proof = tuple(place for place in dict.fromkeys(operations) if place >= 0)[:OPERATIONS_MAX]
        told = f"{self.of_key}{summary}"
        self.kept.append(Anomaly(kind=kind, summary=told, operations=proof, detail=detail))

    @property
    def of_key(self) -> str:
        """What the sentences of the object begin with."""
        return f"key {self.shown(self.key)}: " if self.is_keyed else ""

    def at(self, place: int) -> str:
        return f"{self.place} {place}"

    def shown(self, value: Hashable) -> str:
        text = self.show(original(value))
        return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 4]} ..."

    def listed(self, values: Iterator[Hashable] | list[Hashable], count: int) -> str:
        """ "1, 2 and 3", or the first few of ``count``."""
        first = [self.shown(value) for value in islice(values, LISTED_MAX)]
        more = count - len(first)
        if more > 0:
            return f"{', '.join(first)} and {more:,} more"
        return f"{', '.join(first[:-1])} and {first[-1]}" if len(first) > 1 else "".join(first)


Begin = Callable[[Case], State]


class LimitReached(Exception):
    """A limit was reached: says which."""


def judge_objects(
    name: str,
    source: EntrySource,
    limits: Limits,
    *,
    fs: tuple[str, ...],
    asks: tuple[str, ...],
    begin: Begin,
    conclude: Callable[[Case], Result],
    invocations: bool = False,
) -> Result:
    """``fs``: see ``JudgeRecord``; ``asks``: those whose invocations bring no value, so that the
    first of them tells whether there are keys. ``conclude`` is asked when every object has ended.
    ``invocations``: states are told when operations begin, too (type invoke).
    """
    case = Case(source.show)
    try:
        entries = _clients(source, limits, case)
        sample = list(islice(entries, _SAMPLE))
        case.is_keyed = _is_keyed(sample, asks)
        ops = operations_of(chain(sample, entries), invocations)
        objects = _take_all(case, ops, fs, begin)
        for case.key, state in objects.items():
            state.end()
    except LimitReached as reached:
        return Result(checker=name, valid="unknown", notes=(f"{reached}.",))
    case.is_keyed = False
    return conclude(case)


def _take_all(
    case: Case,
    ops: Iterator[Operation],
    fs: tuple[str, ...],
    begin: Begin,
) -> dict[Hashable, State]:
    """The states by key, with every operation taken; one of key None where there are no keys."""
    is_keyed = case.is_keyed
    objects: dict[Hashable, State] = {} if is_keyed else {None: begin(case)}
    others: Counter[str] = Counter()
    keyless = 0
    for op in ops:
        if op.f not in fs:
            others[op.f] += op.type != "invoke"
            continue
        key: Hashable = None
        if is_keyed:
            pair = op.result if _is_pair(op.result) else op.argument
            if not _is_pair(pair):
                keyless += op.type != "invoke"
                continue
            key = same(pair[0])
            op = _of_key(op)
        state = objects.get(key)
        if state is None:
            state = objects[key] = begin(case)
        case.key = key
        state.take(op)
    case.keys = len(objects) if is_keyed else 0
    if keyless:
        case.notes.append(f"{keyless:,} operations tell no key and were left out.")
    for f, count in sorted(others.items()):
        case.notes.append(f"{count:,} operations {case.shown(f)} were left out: not judged here.")
    return objects


def _is_keyed(sample: list[tuple[int, Entry]], asks: tuple[str, ...]) -> bool:
    """jepsen.independent asks with ``[key nil]`` what is asked with nil otherwise."""
    for _, entry in sample:
        if entry.type == "invoke" and entry.f in asks:
            return _is_pair(entry.value) and entry.value[1] is None
    return False


def _is_pair(value: Hashable) -> TypeGuard[tuple[Hashable, Hashable]]:
    return type(value) is tuple and len(value) == 2


def _of_key(op: Operation) -> Operation:
    argument = op.argument[1] if _is_pair(op.argument) else op.argument
    result = op.result[1] if _is_pair(op.result) else op.result
    return op._replace(argument=argument, result=result)


class _Pairing:
    """Invocations that are open, by their processes."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, Entry]] = {}
        self._nameless: dict[str, list[tuple[int, Entry]]] = {}  # by f: entries of no process
        self._last: dict[int, int] = {}  # by process: its last completion without invocation
        self._has_invocations = False

    def begin(self, number: int, entry: Entry) -> tuple[int, Entry] | None:
        """What the process had open already, and will never end."""
        self._has_invocations = True
        if entry.process == NO_PROCESS:
            self._nameless.setdefault(entry.f, []).append((number, entry))
            return None
        earlier = self._open.pop(entry.process, None)
        self._open[entry.process] = (number, entry)
        return earlier

    def end(self, number: int, entry: Entry) -> tuple[int, Entry]:
        """When it was invoked, and by what entry: its own if there is no invocation."""
        if entry.process == NO_PROCESS:
            return self._end_nameless(number, entry)
        found = self._open.pop(entry.process, None)
        if found is not None:
            return found
        if not self._has_invocations:
            return number, entry  # each of its entries is an instant
        begun = self._last.get(entry.process, -1) + 1
        self._last[entry.process] = number
        return begun, entry

    def _end_nameless(self, number: int, entry: Entry) -> tuple[int, Entry]:
        """The oldest invocation of the same value, or else of the same f, may have been its own."""
        waiting = self._nameless.get(entry.f)
        if not waiting:
            return (0 if self._has_invocations else number), entry
        alike = (at for at, (_, each) in enumerate(waiting) if each.value == entry.value)
        return waiting.pop(next(alike, 0))

    def left(self) -> Iterator[tuple[int, Entry]]:
        yield from self._open.values()
        for waiting in self._nameless.values():
            yield from waiting


def operations_of(
    entries: Iterator[tuple[int, Entry]], invocations: bool = False
) -> Iterator[Operation]:
    """Each operation when it ends, then those that never did. ``entries`` are numbered.

    A completion without an invocation began at some time after the process's last one; where no
    entry is an invocation each is an instant. An invocation of a process that has another one open
    leaves that one without an end.
    """
    pairing = _Pairing()
    for number, entry in entries:
        if entry.type == "invoke":
            if (earlier := pairing.begin(number, entry)) is not None:
                yield _unended(*earlier)
            if invocations:
                yield _unended(number, entry, "invoke")
            continue
        call, invoked = pairing.end(number, entry)
        if invoked.f != entry.f:
            yield _unended(call, invoked)
            call, invoked = number, entry
        yield Operation(
            entry.type, entry.process, entry.f, invoked.value, entry.value,
            call, None if entry.type == "info" else number,
            invoked.time_ns, entry.time_ns, place_of(entry), entry.error,
            entry.extra,
        )  # fmt: skip
    for call, invoked in pairing.left():
        yield _unended(call, invoked)


def _unended(call: int, invoked: Entry, kind: str = "info") -> Operation:
    return Operation(
        kind, invoked.process, invoked.f, invoked.value, None,
        call, None, invoked.time_ns, NO_TIME, place_of(invoked), None, invoked.extra,
    )  # fmt: skip


def _clients(source: EntrySource, limits: Limits, case: Case) -> Iterator[tuple[int, Entry]]:
    """What clients did, numbered. Raises LimitReached."""
    began = time.monotonic()
    held = _resident_bytes() if limits.memory_limit_bytes else 0
    for number, entry in enumerate(source.entries()):
        if not number % _LOOK_EVERY:
            _look(limits, began, held, number)
            if entry.index < 0:
                case.place = "line"
        if entry.process != NEMESIS:
            yield number, entry


def _look(limits: Limits, began: float, held: int, number: int) -> None:
    if limits.time_limit_s is not None and time.monotonic() - began > limits.time_limit_s:
        raise LimitReached(f"The time limit was reached after {number:,} entries")
    most = limits.memory_limit_bytes
    if most is not None and _resident_bytes() - held > most:
        raise LimitReached(f"The memory limit was reached after {number:,} entries")


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def place_of(entry: Entry) -> int:
    return entry.index if entry.index >= 0 else entry.line


# --- values ---------------------------------------------------------------------------------------


def same(value: Hashable) -> Hashable:
    """``value`` such that Python's equality is EDN's (history/column_values.py), but for keywords
    and strings, which JSON does not tell apart."""
    kind = type(value)
    if kind is int or kind is str or value is None:
        return value
    if isinstance(value, str):  # a keyword, which equals its string
        return value
    if isinstance(value, tuple | frozenset):
        return type(value)(map(same, value))
    if isinstance(value, EdnMap):
        return EdnMap({same(key): same(each) for key, each in value.items()})
    return exact(value)


def elements_of(value: Hashable) -> list[Hashable] | None:
    """What a vector, list or set holds, ready to be compared; None: it is none."""
    if not isinstance(value, tuple | frozenset) or isinstance(value, MapPairs):
        return None
    if _INTEGERS.issuperset(map(type, value)):
        return list(value)
    return [same(each) for each in value]


def fields_of(value: Hashable) -> dict[Hashable, Hashable] | None:
    """A map, as a dict whose keys are ready to be compared; None: it is none."""
    if isinstance(value, MapPairs):
        return {same(key): each for key, each in value}
    if isinstance(value, Mapping):
        return {same(key): each for key, each in value.items()}
    return None


def conclude(
    name: str,
    case: Case,
    *,
    headline: str,
    words: dict[str, tuple[str, str]],
    broken: tuple[str, ...],
) -> Result:
    """Invalid if anything ``broken`` was found, else unknown if there is a doubt, else valid."""
    found = [kind for kind in broken if case.counts[f"{kind}-count"]]
    if case.keys:
        case.counts["key-count"] = case.keys
    valid: bool | str = False if found else ("unknown" if case.doubts else True)
    return Result(
        checker=name,
        valid=valid,
        counts=dict(case.counts),
        anomalies=tuple(case.kept),
        notes=(*(() if found else case.doubts), *case.notes),
        detail={"broken": found, **case.detail},
        headline=headline if valid is True else "",
        words=words,
    )
