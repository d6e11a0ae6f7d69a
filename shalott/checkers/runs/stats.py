"""Stats: what was asked and answered, how fast, and whether the run means anything at all.

A run proves nothing if hardly anything was acknowledged (answered reads do not make up for
messages), if nothing was answered after the heal, or if a fault was not seen to take hold
or end. Then it is "unknown", with a sentence that says why, even if the other checkers found
all in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shalott.checkers.checker import Result
from shalott.checkers.history.columns import BETWEEN, NEVER, Bools, Operations, client_operations
from shalott.checkers.history.faults import Surroundings, read_surroundings
from shalott.core.history import History

QUANTILES = (0, 0.5, 0.95, 0.99, 1)
MS = 1_000_000
_MESSAGES = ("enqueue", "send")
_OF_WHICH_MESSAGES = 5  # one in so many of min_acked has to be a message, where messages were sent
_LASTING = ("channel", "consumer", "blocked", "member", "assignment", "deliver")  # no latencies


@dataclass(frozen=True, slots=True)
class Stats:
    """``min_acked``: fewer acknowledged operations in the whole run prove nothing."""

    min_acked: int = 50
    name: str = "stats"

    def check(self, history: History) -> Result:
        ops = client_operations(history)
        around = read_surroundings(history)
        doubts = list(self._doubts(ops, around, history.complete))
        by_f = {name: _summary(ops, ops.f.equal(name)) for name in sorted(set(ops.f.names)) if name}
        skipped = [fault for fault in around.faults if fault.skipped]
        return Result(
            checker=self.name,
            valid="unknown" if doubts else True,
            counts={
                "count": len(ops),
                "ok-count": int(ops.type.equal("ok").sum()),
                "fail-count": int(ops.type.equal("fail").sum()),
                "info-count": int(ops.type.equal("info").sum()),
                "fault-count": len(around.injected),
                "skipped-fault-count": len(skipped),
                "unproved-fault-count": len(_unproved(around)),
            },
            notes=(*doubts, *(f"Fault {f.name} was skipped: {f.skipped}." for f in skipped)),
            detail={"by-f": by_f, "by-node": _by_node(ops), "errors": _errors(ops)},
        )

    def _doubts(self, ops: Operations, around: Surroundings, complete: bool) -> Iterator[str]:
        acked = int((ops.type.equal("ok") & ~ops.f.among(BETWEEN)).sum())
        if acked < self.min_acked:
            yield (
                f"Only {acked} operations were acknowledged; fewer than {self.min_acked} "
                "prove nothing."
            )
        sent = ops.f.among(_MESSAGES)
        messages = int((sent & ops.type.equal("ok")).sum())
        least = self.min_acked // _OF_WHICH_MESSAGES
        if sent.any() and messages < least and acked >= self.min_acked:
            yield f"Only {messages} messages were acknowledged; fewer than {least} prove nothing."
        if not complete:
            yield "The recording was cut short: what happened after its end is not known."
        yield from _silence_after_heal(ops, around)
        yield from _unproved(around)
        if around.faults and not around.injected:
            yield "Every fault of the plan was skipped: nothing was broken."


def _silence_after_heal(ops: Operations, around: Surroundings) -> Iterator[str]:
    """After the heal an empty queue's ``empty`` counts too: there may be nothing left to take."""
    heal = around.phase("heal")
    if heal is None or heal.end_ns is None:
        yield "The history has no completed heal: nothing is known about the healed cluster."
        return
    answered = ops.type.equal("ok") & ~ops.f.among(BETWEEN)
    answered |= ops.type.equal("fail") & ops.error.equal("empty")
    if not (answered & (ops.invoke_ns >= heal.end_ns)).any():
        yield "No operation was acknowledged after the heal."


def _unproved(around: Surroundings) -> list[str]:
    sentences = []
    for fault in around.injected:
        if not fault.proved_effective and not fault.refused:
            sentences.append(f"Fault {fault.name} was not proved effective.")
        if not fault.proved_healed:
            sentences.append(f"Fault {fault.name} was not proved healed.")
    return sentences


def _summary(ops: Operations, rows: Bools) -> dict[str, object]:
    return {
        "count": int(rows.sum()),
        **{f"{t}-count": int((rows & ops.type.equal(t)).sum()) for t in ("ok", "fail", "info")},
        "latency_ms": _latencies_ms(ops, rows & ops.type.equal("ok") & ~ops.f.among(_LASTING)),
    }


def _latencies_ms(ops: Operations, rows: Bools) -> dict[str, float]:
    """Quantiles of the acknowledged ones."""
    ended = rows & (ops.complete_ns != NEVER)
    latencies = (ops.complete_ns[ended] - ops.invoke_ns[ended]) / MS
    if not len(latencies):
        return {}
    return {
        str(q): round(float(value), 3)
        for q, value in zip(QUANTILES, np.quantile(latencies, QUANTILES), strict=True)
    }


def _by_node(ops: Operations) -> dict[str, dict[str, int]]:
    result = {}
    for name in sorted(ops.node.names):
        rows = ops.node.equal(name)
        counts = {t: int((rows & ops.type.equal(t)).sum()) for t in ("ok", "fail", "info")}
        if any(counts.values()):
            result[name] = counts
    return result


def _errors(ops: Operations) -> dict[str, int]:
    counts = np.bincount(ops.error.codes, minlength=len(ops.error.names))
    order = np.argsort(-counts, kind="stable")
    return {ops.error.names[i]: int(counts[i]) for i in order if ops.error.names[i] and counts[i]}
