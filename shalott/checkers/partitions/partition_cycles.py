"""Cycles of operations that send and poll, as Adya and Elle name them, each told as an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shalott.checkers.checker import Anomaly
from shalott.checkers.engine import Budget, CData, ffi, lib
from shalott.checkers.partitions.partition_history import (
    NONE,
    LimitReached,
    PartitionHistory,
    limit_words,
)
from shalott.checkers.transactions.found import CYCLES, EDGES

_LEVELS: Final = ("", "-process", "-realtime")
_SEARCH_STEPS: Final = 50_000_000  # edges looked at for one kind of cycle in one component
CYCLE_NAMES: Final = tuple(f"{name}{level}" for level in _LEVELS for name in CYCLES)


@dataclass(frozen=True, slots=True)
class Cycles:
    """``counts`` by name. ``stopped``: what may be there, but its search came to its end."""

    counts: dict[str, int]
    anomalies: dict[str, list[Anomaly]]
    stopped: tuple[str, ...]


def find_cycles(
    history: PartitionHistory, budget: Budget, *, ww_deps: bool, rw_deps: bool, told: int
) -> Cycles:
    """Raises LimitReached."""
    if not lib.shl_kafka_find_cycles(history.engine, ww_deps, rw_deps, told, _SEARCH_STEPS):
        raise LimitReached(limit_words(budget))
    view = ffi.new("shl_txn_view *")
    lib.shl_txns_view(lib.shl_kafka_txns(history.engine), view)
    counts = {name: view.cycle_count[at] for at, name in enumerate(CYCLE_NAMES)}
    anomalies: dict[str, list[Anomaly]] = {}
    for at in range(view.cycles):
        anomaly = _told(history, view, view.cycle[at])
        anomalies.setdefault(anomaly.kind, []).append(anomaly)
    return Cycles(
        counts={name: count for name, count in counts.items() if count},
        anomalies=anomalies,
        stopped=tuple(name for at, name in enumerate(CYCLE_NAMES) if view.exists_count[at]),
    )


def _told(history: PartitionHistory, view: CData, cycle: CData) -> Anomaly:
    steps = [view.step[at] for at in range(cycle.first, cycle.first + cycle.steps)]
    ops = [lib.shl_kafka_op_of_txn(history.engine, step.txn) for step in steps]
    edges = [EDGES[step.kind] for step in steps]
    arguments = [
        _argument(history, edge, (at + 1, ops[at]), (after + 1, ops[after]), step.version)
        for at, (edge, step) in enumerate(zip(edges, steps, strict=True))
        for after in [(at + 1) % len(ops)]
    ]
    named = [f"T{number} ({history.at(op)})" for number, op in enumerate(ops, 1)]
    name = f"{CYCLES[cycle.kind]}{_LEVELS[cycle.level]}"
    return Anomaly(
        kind=name,
        summary=f"{', '.join(named)}: {', '.join(arguments)}, so each comes before itself",
        operations=tuple(history.place(op) for op in ops),
        detail={"edges": list(edges), "shortest": bool(cycle.shortest)},
    )


def _argument(
    history: PartitionHistory, edge: str, one: tuple[int, int], other: tuple[int, int], version: int
) -> str:
    """Why the one (its number, its operation) comes before the other."""
    first, second = f"T{one[0]}", f"T{other[0]}"
    if edge == "process":
        return f"process {history.process(one[1])} did {first} before {second}"
    if edge == "realtime":
        return f"{first} had ended before {second} began ({history.at(other[1], begun=True)})"
    assert version != NONE, edge
    message = f"{history.with_offset(version)} of key {history.key(history.key_of(version))}"
    if edge == "wr":
        return f"{first} sent {message}, which {second} polled"
    if edge == "ww":
        return f"{first} sent what stands before {message}, which {second} sent"
    return f"{first} polled up to what stands before {message}, which {second} sent"
