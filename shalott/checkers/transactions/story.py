"""Anomalies of transactions, told as arguments that a person can follow.

A cycle is told edge by edge: each sentence says which of two transactions must come first, and what
in the history says so; the last one contradicts the others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from shalott.checkers.history.column_values import Keyword
from shalott.checkers.transactions.found import (
    NONE,
    TYPES,
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
        self.show = show

    # --- values and transactions ------------------------------------------------------------------

    def value(self, value: Hashable) -> str:
        if isinstance(value, tuple) and len(value) > ELEMENTS_MAX:
            ends = ELEMENTS_MAX // 2
            begin, end = self.show(value[:ends])[:-1], self.show(value[-ends:])[1:]
            return f"{begin} ... {end}"
        if isinstance(value, frozenset) and len(value) > ELEMENTS_MAX:
            some = sorted(map(self.show, value))[:ELEMENTS_MAX]
            return f"{len(value)} elements, such as {' '.join(some)}"
        return self.show(value)

    def mop(self, mop: Mop) -> str:
        value = self.value(mop.value) if mop.is_known else "?"
        return f"[{self.show(Keyword(mop.f))} {self.show(mop.key)} {value}]"

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

    def named(self, at: int, name: str) -> str:
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
        sentences = [self.named(step.txn, names[step.txn]) for step in cycle.steps]
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
        return f"{step.kind} {self.show(key)} {self.show(value)}"

    def _edge(self, step: Step, end: int, names: dict[int, str]) -> str:
        a, b = names[step.txn], names[end]
        if step.kind == "process":
            return f"process {self.found.process(end)} had completed {a} when it began {b}"
        if step.kind == "realtime":
            return self._edge_of_time(step.txn, end, a, b)
        key = self.show(self.found.key(step.key))
        value = self.show(self.found.version(step.version))
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
            seen for seen in reads if not (isinstance(seen, tuple | frozenset) and version in seen)
        ]
        return self.value((lacking or reads or [None])[0])

    def _edge_of_register(self, step: Step, a: str, b: str, key: str, value: str) -> str:
        if step.kind == "wr":
            return f"{b} read the {value} that {a} wrote to {key}"
        mops = [mop for mop in self.found.mops(step.txn) if mop.key == self.found.key(step.key)]
        if step.kind == "rw":
            read = next((mop.value for mop in mops if mop.f == "r"), None)
            if read is None:
                return f"{a} read {key} as {self.show(None)}, which it was before {b} wrote {value}"
            return f"{a} read {key} as {self.show(read)}, which {b} replaced by {value}"
        wrote = [mop.value for mop in mops if mop.f != "r"][-1]
        return f"{b} replaced the {self.show(wrote)} that {a} wrote to {key} by {value}"

    def _edge_of_time(self, before: int, after: int, a: str, b: str) -> str:
        one, other = self.found.txn(before), self.found.txn(after)
        ended, began = self.place(before), f"index {other.call_index}"
        if other.call_index < 0:
            began = f"line {other.call_line}"
        gap = ""
        if 0 <= one.time < other.call_time:
            gap = f" {_duration(other.call_time - one.time)}"
        return f"{a} had completed ({ended}){gap} before {b} was invoked ({began})"


def _duration(ns: int) -> str:
    for unit, least in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if ns >= least:
            return f"{ns / least:.3g} {unit}"
    return f"{ns} ns"
