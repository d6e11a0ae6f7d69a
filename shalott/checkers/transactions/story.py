"""Anomalies of transactions, told as arguments that a person can follow.

A cycle is told edge by edge: each sentence says which of two transactions must come first, and what
in the history says so; the last one contradicts the others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from shalott.checkers.engine import CData
from shalott.checkers.history.column_values import Keyword
from shalott.checkers.transactions.found import (
    CONTESTED,
    NONE,
    SOURCES,
    TYPES,
    WRITES,
    Cycle,
    Found,
    Mop,
    Step,
)

ELEMENTS_MAX: Final = 12  # of a list that is shown
MOPS_MAX: Final = 40  # of a transaction

_MEANS: Final = {
    "G0": "writes of these transactions overwrite each other in a circle (dirty write)",
    "G1c": "information flows in a circle: each of these transactions depends on the one before",
    "G-single-item": "one of these transactions did not see what another one wrote, although it"
    " depends on it (read skew)",
    "G-nonadjacent-item": "some of these transactions saw parts of others, and missed other parts"
    " (long fork): no snapshots explain what they read",
    "G2-item": "each of these transactions missed what the next one wrote (write skew)",
}
_ORDER: Final = {
    "process": ", in the order in which each process did them",
    "realtime": ", in the order of time",
}


@dataclass(frozen=True, slots=True)
class Told:
    """``sentences``: the argument. ``transactions``: indexes, in the order of T1, T2...;
    ``places``: their indexes or lines in the history. ``edges``: what a drawing shows."""

    kind: str
    summary: str
    sentences: tuple[str, ...]
    transactions: tuple[int, ...]
    places: tuple[int, ...]
    edges: tuple[tuple[int, int, str, str], ...] = ()  # from, to (of ``transactions``), kind, label
    drawing: str = ""  # SVG


class Teller:
    """Tells what was found in one history. ``show`` writes a value as the history does."""

    def __init__(self, found: Found, show: Callable[[Hashable], str]) -> None:
        self.found = found
        self._show = show
        self._write = WRITES[found.object][0]

    # --- values and transactions ------------------------------------------------------------------

    def value(self, value: Hashable) -> str:
        if isinstance(value, tuple) and len(value) > ELEMENTS_MAX:
            ends = ELEMENTS_MAX // 2
            begin, end = self._show(value[:ends])[:-1], self._show(value[-ends:])[1:]
            return f"{begin} ... {end}"
        if isinstance(value, frozenset) and len(value) > ELEMENTS_MAX:
            some = sorted(map(self._show, value))[:ELEMENTS_MAX]
            return f"{len(value)} elements, such as {' '.join(some)}"
        return self._show(value)

    def mop(self, mop: Mop) -> str:
        value = self.value(mop.value) if mop.is_known else "?"
        return f"[{self._show(Keyword(mop.f))} {self._show(mop.key)} {value}]"

    def transaction(self, at: int) -> str:
        mops = self.found.mops(at)
        shown = " ".join(map(self.mop, mops[:MOPS_MAX]))
        more = f" ... and {len(mops) - MOPS_MAX} more" if len(mops) > MOPS_MAX else ""
        return f"[{shown}{more}]"

    def place(self, at: int) -> str:
        txn = self.found.txn(at)
        if txn.index >= 0:
            return f"index {txn.index}"
        return f"line {txn.line}"

    def _named(self, at: int, name: str) -> str:
        kind = TYPES[self.found.txn(at).type]
        ended = {"ok": "", "fail": ", failed", "info": ", crashed"}[kind]
        process = self.found.process(at)
        return f"{name} is {self.transaction(at)} ({self.place(at)}, process {process}{ended})"

    # --- cycles -----------------------------------------------------------------------------------

    def cycle(self, cycle: Cycle) -> Told:
        names = {step.txn: f"T{number}" for number, step in enumerate(cycle.steps, start=1)}
        ends = [*cycle.steps[1:], cycle.steps[0]]
        claims = [
            self._edge(step, end.txn, names) for step, end in zip(cycle.steps, ends, strict=True)
        ]
        sentences = [self._named(step.txn, names[step.txn]) for step in cycle.steps]
        for at, (step, end, claim) in enumerate(zip(cycle.steps, ends, claims, strict=True)):
            begin = "But " if at == len(claims) - 1 else ""
            order = f"{names[step.txn]} comes before {names[end.txn]}, because {claim}"
            sentences.append(f"{begin}{order}")
        around = " before ".join([*names.values(), "T1"])
        sentences.append(f"So {around}: no order of these transactions has all of that")
        if any(TYPES[self.found.txn(step.txn).type] == "info" for step in cycle.steps):
            sentences.append(
                "What crashed among them did happen, because it was read; if it was aborted, it was"
                " an aborted read (G1a)"
            )
        if not cycle.is_shortest:
            sentences.append("A shorter cycle may be there: the search was stopped")
        count = len(cycle.steps)
        meaning = self.meaning(cycle.name)
        return Told(
            cycle.name,
            f"{count} transactions in a circle: {meaning}",
            tuple(sentences),
            tuple(step.txn for step in cycle.steps),
            tuple(self.found.place(step.txn) for step in cycle.steps),
            tuple(
                (at, (at + 1) % count, step.kind, self._label(step))
                for at, step in enumerate(cycle.steps)
            ),
        )

    @staticmethod
    def meaning(name: str) -> str:
        """What a kind of cycle is, in words."""
        base, _, level = name.rpartition("-")
        if level in _ORDER:
            return f"{_MEANS[base]}{_ORDER[level]}"
        return _MEANS[name]

    def _label(self, step: Step) -> str:
        if step.key == NONE:
            return step.kind
        key, value = self.found.key(step.key), self.found.version(step.version)
        return f"{step.kind} {self._show(key)} {self._show(value)}"

    def _edge(self, step: Step, end: int, names: dict[int, str]) -> str:
        a, b = names[step.txn], names[end]
        if step.kind == "process":
            return f"process {self.found.process(end)} had completed {a} when it began {b}"
        if step.kind == "realtime":
            return self._edge_of_time(step.txn, end, a, b)
        key = self._show(self.found.key(step.key))
        value = self._show(self.found.version(step.version))
        if self.found.object == "registers":
            return self._edge_of_register(step, a, b, key, value)
        if step.kind == "ww":
            seen = self.found.view.version[step.version].at != NONE
            behind = "behind" if seen else "which no read shows, so behind"
            return f"{b} appended {value} to {key}, {behind} what {a} appended"
        if step.kind == "wr":
            return f"{b} read {key} with the {value} that {a} put there"
        return f"{a} read {key} as {self._read_without(step)}, without the {value} of {b}"

    def _read_without(self, step: Step) -> str:
        """What the beginning of an rw read of the key: the first that lacks the version."""
        version = self.found.version(step.version)
        key = self.found.key(step.key)
        reads = [
            mop.value
            for mop in self.found.mops(step.txn)
            if mop.f == "r" and mop.key == key and mop.is_known
        ]
        lacking = [
            seen
            for seen in reads
            if not (isinstance(seen, tuple | frozenset) and version in seen)
        ]
        return self.value((lacking or reads or [None])[0])

    def _edge_of_register(self, step: Step, a: str, b: str, key: str, value: str) -> str:
        if step.kind == "wr":
            return f"{b} read the {value} that {a} wrote to {key}"
        mops = [mop for mop in self.found.mops(step.txn) if mop.key == self.found.key(step.key)]
        if step.kind == "rw":
            read = next((mop.value for mop in mops if mop.f == "r"), None)
            if read is None:
                return (
                    f"{a} read {key} as {self._show(None)}, which it was before {b} wrote {value}"
                )
            return f"{a} read {key} as {self._show(read)}, which {b} replaced by {value}"
        wrote = [mop.value for mop in mops if mop.f != "r"][-1]
        return f"{b} replaced the {self._show(wrote)} that {a} wrote to {key} by {value}"

    def _edge_of_time(self, before: int, after: int, a: str, b: str) -> str:
        one, other = self.found.txn(before), self.found.txn(after)
        ended, began = self.place(before), f"index {other.call_index}"
        if other.call_index < 0:
            began = f"line {other.call_line}"
        gap = ""
        if 0 <= one.time < other.call_time:
            gap = f" {_duration(other.call_time - one.time)}"
        return f"{a} had completed ({ended}){gap} before {b} was invoked ({began})"

    # --- what needs no cycle ----------------------------------------------------------------------

    def finding(self, kind: str, found: CData) -> Told:
        transactions = tuple(
            at for at in (found.txn, *self._other_transactions(kind, found)) if at != NONE
        )
        claim = getattr(self, f"_{kind.replace('-', '_').lower()}")(found)
        sentences = tuple(
            self._named(at, f"T{number}") for number, at in enumerate(transactions, start=1)
        )
        places = tuple(self.found.place(at) for at in transactions)
        return Told(kind, claim, (*sentences, claim), transactions, places)

    @staticmethod
    def _other_transactions(kind: str, found: CData) -> tuple[int, ...]:
        of_two = ("G1a", "G1b", "dirty-update", "lost-update")
        has_two = kind in of_two or (kind == "incompatible-order" and found.branch != NONE)
        return (found.other,) if has_two else ()

    def _key_of(self, found: CData) -> str:
        return self._show(self.found.key(found.key))

    def _version_of(self, version: int) -> str:
        return self._show(self.found.version(version))

    def _duplicate_elements(self, found: CData) -> str:
        read = self.mop(self.found.mop(found.mop))
        element = self._version_of(found.version)
        return f"T1 read {read}, which holds {element} more than once"

    def _cyclic_versions(self, found: CData) -> str:
        key = self._key_of(found)
        one, other = self._version_of(found.version), self._version_of(found.other_version)
        if self.found.object != "registers":
            return self._own_order(found, key)
        sources = ", ".join(name for bit, name in SOURCES.items() if found.place & bit)
        return (
            f"versions of {key} come in a circle: {one} before {other}, and {other} before {one},"
            f" by what is assumed ({sources})"
        )

    def _own_order(self, found: CData, key: str) -> str:
        later, earlier = self._version_of(found.version), self._version_of(found.other_version)
        if self.found.view.version[found.other_version].at == NONE:
            return (
                f"T1 appended {earlier} to {key}, and then {later}; a read shows {later}, and none"
                f" {earlier}"
            )
        return f"T1 appended {earlier} to {key}, and then {later}; reads show them the other way"

    def _internal(self, found: CData) -> str:
        read, earlier = self.found.mop(found.mop), self.found.mop(found.other)
        did = "read" if earlier.f == "r" else "wrote"
        return f"T1 {did} {self.mop(earlier)}, and read {self.mop(read)} behind it"

    def _garbage_read(self, found: CData) -> str:
        read = self.mop(self.found.mop(found.mop))
        return f"T1 read {read}, where no transaction wrote {self._version_of(found.version)}"

    def _g1a(self, found: CData) -> str:
        read = self.mop(self.found.mop(found.mop))
        return f"T1 read {read}, where {self._version_of(found.version)} is of T2, which failed"

    def _g1b(self, found: CData) -> str:
        read = self.mop(self.found.mop(found.mop))
        version = self._version_of(found.version)
        return f"T1 read {read}, where {version} was not the last that T2 wrote to the key"

    def _dirty_update(self, found: CData) -> str:
        failed, behind = self._version_of(found.version), self._version_of(found.other_version)
        return (
            f"{self._key_of(found)} holds the {failed} of T2, which failed, and behind it the"
            f" {behind} of T1, which was committed on top of it"
        )

    def _future_read(self, found: CData) -> str:
        version = self._version_of(found.version)
        return f"T1 read {version} in {self._key_of(found)}, which only itself wrote, later"

    def _incompatible_order(self, found: CData) -> str:
        if found.branch == NONE:
            return self._own_order(found, self._key_of(found))
        one = self.value(self.found.list_of(found.branch))
        other = self.value(self.found.list_of(found.other_branch))
        return (
            f"T1 read {self._key_of(found)} as {one}, and T2 as {other}: neither is how the other"
            " one began"
        )

    def _lost_update(self, found: CData) -> str:
        version = self._version_of(found.version)
        what = f"with {version}" if found.version != NONE else "as it was at first"
        if self.found.object != "registers" and found.version != NONE:
            what += " at its end"
        return (
            f"T1 and T2 both read {self._key_of(found)} {what}, and both wrote it: the update of"
            " one was made without that of the other"
        )


def is_contested(found: CData) -> bool:
    return bool(found.kind == CONTESTED)


def _duration(ns: int) -> str:
    for unit, least in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if ns >= least:
            return f"{ns / least:.3g} {unit}"
    return f"{ns} ns"
