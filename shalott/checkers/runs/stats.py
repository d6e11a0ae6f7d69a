"""Stats: what was asked and answered, how fast, and whether the run means anything at all.

A run proves nothing if hardly anything was acknowledged (answered reads do not make up for
messages), if nothing was answered after the heal, or if a fault was not seen to take hold
or end. Then it is "unknown", with a sentence that says why, even if the other checkers found
all in order.

Rates: how many operations a second were asked for, how many were begun, and how late they were.

A rate that was not reached is a load that was not there: a broker that takes 261 operations a
second is not tested at the 5,000 that the plan asks for. So the rate that was reached is told
beside the one that was asked, makes the headline when it is less than half, and a run that reaches
less than the plan's gate demands is "unknown".

Latencies are measured twice: from when an operation began, which leaves out how long it waited for
a client that was free, and from when the schedule wanted it (the column ``due_ns``). The second is
what a user would have seen. An operation that begins late stands for those that were given up
behind it too (core/generator.py): each is counted with the wait that it would have had, as
HdrHistogram's recordValueWithExpectedInterval does (Gil Tene: coordinated omission). Older
histories have no such column; then only the first is told.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shalott.checkers.checker import Result
from shalott.checkers.history.columns import (
    BETWEEN,
    NEVER,
    Bools,
    Ints,
    Operations,
    client_operations,
)
from shalott.checkers.history.faults import Surroundings, read_surroundings
from shalott.core.client import NO_COMPLETION
from shalott.core.history import History
from shalott.core.op import NEMESIS

QUANTILES = (0, 0.5, 0.95, 0.99, 1)
MS = 1_000_000
_MESSAGES = ("enqueue", "send")
_OF_WHICH_MESSAGES = 5  # one in so many of min_acked has to be a message, where messages were sent
EMPTY = "empty"  # what a dequeue says that found nothing: no error
ERRORS_SHOWN = 3  # of the kinds of errors, on the terminal; the report has all
ERROR_WIDTH = 80
_OWN_NAMES = re.compile(r"'[^']*'|\d{4,}")  # of queues, nodes, messages: errors alike but for them
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
            detail={
                "by-f": by_f,
                "by-node": _by_node(ops),
                "errors": _errors(ops),
                "summary": _failed_words(ops),
            },
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
        yield from _answers_that_are_none(ops)
        if not complete:
            yield "The recording was cut short: what happened after its end is not known."
        yield from _silence_after_heal(ops, around)
        yield from _unproved(around)
        if around.faults and not around.injected:
            yield "Every fault of the plan was skipped: nothing was broken."


def _answers_that_are_none(ops: Operations) -> Iterator[str]:
    """Of a client that breaks the protocol nothing is to be believed (core/client.py)."""
    for error, count in _errors(ops).items():
        if NO_COMPLETION in error:
            yield f"{error}: {count:,} operations have no outcome, and the client is to be mended."


def _silence_after_heal(ops: Operations, around: Surroundings) -> Iterator[str]:
    """After the heal an empty queue's ``empty`` counts too: there may be nothing left to take."""
    heal = around.phase("heal")
    if heal is None or heal.end_ns is None:
        yield "The history has no completed heal: nothing is known about the healed cluster."
        return
    answered = ops.type.equal("ok") & ~ops.f.among(BETWEEN)
    answered |= ops.type.equal("fail") & ops.error.equal(EMPTY)
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


def _failed_words(ops: Operations) -> str:
    """What was not acknowledged, by f and error, with the nodes whose clients met it."""
    rows = ~ops.type.equal("ok") & ~ops.error.among(("", EMPTY))
    words = (ops.f, ops.error, ops.type, ops.node)
    kinds, counts = np.unique(
        np.stack([column.codes[rows] for column in words]), axis=1, return_counts=True
    )
    met: dict[tuple[str, str, str], Counter[str]] = {}
    for codes, count in zip(kinds.T, counts, strict=True):
        f, error, kind, node = (column.names[c] for column, c in zip(words, codes, strict=True))
        outcome = "" if kind == "fail" else "unknown whether it happened; "
        alike = _OWN_NAMES.sub("…", error)
        met.setdefault((f, alike, outcome), Counter())[node] += int(count)
    most = sorted(met.items(), key=lambda group: (-group[1].total(), group[0]))
    shown = [
        f"{nodes.total():,} × {f}: {_clipped(error)} ({outcome}at {', '.join(sorted(nodes))})"
        for (f, error, outcome), nodes in most[:ERRORS_SHOWN]
    ]
    if len(most) > ERRORS_SHOWN:
        rest = sum(nodes.total() for _, nodes in most[ERRORS_SHOWN:])
        shown.append(f"{rest:,} with {len(most) - ERRORS_SHOWN} other errors")
    return f"Not acknowledged: {'; '.join(shown)}." if shown else ""


def _clipped(text: str) -> str:
    return text if len(text) <= ERROR_WIDTH else f"{text[:ERROR_WIDTH]}…"


S = 1_000_000_000
HEADLINE_SHARE = 0.5  # less of the asked rate makes the headline
ASKED_LEAST = 20  # operations: of fewer a share says nothing
RATE_QUANTILES = (0.5, 0.95, 0.99, 1)
LATE_NS = 100_000_000  # the generator's MAX_LAG_NS: behind more than this, operations are given up
SAMPLES_MAX = 50  # that stand for what was given up behind one operation; they weigh more then


@dataclass(frozen=True, slots=True)
class Rates:
    """``asked_hz``: the plan's rate. ``limit_ms``: how long the load lasts, without the operations
    that end after it. ``min_share``: of the rate; a run that reaches less is unknown."""

    asked_hz: float
    limit_ms: int
    min_share: float | None = None
    name: str = "rates"

    def check(self, history: History) -> Result:
        load = read_surroundings(history).phase("load")
        if load is None:
            return self._untold("The history has no load: nothing is known of the rate.")
        end_ns = load.begin_ns + self.limit_ms * MS
        if load.end_ns is not None:
            end_ns = min(end_ns, load.end_ns)
        ops, due_ns = client_operations(history), _due_times(history)
        begun = (ops.invoke_ns >= load.begin_ns) & (ops.invoke_ns <= end_ns)
        paced = begun & (due_ns != NEVER)
        counted = paced if paced.any() else begun
        seconds = (end_ns - load.begin_ns) / S
        asked = self.asked_hz * seconds
        count = int(counted.sum())
        share = count / asked if asked else 0.0
        reached_hz = count / seconds if seconds else 0.0
        acked = int((counted & ops.type.equal("ok")).sum())
        sentence = (
            f"{_number(reached_hz)} operations a second were begun of the"
            f" {_number(self.asked_hz)} asked"
        )
        told = asked >= ASKED_LEAST
        remark = f"only {sentence}" if told and share < HEADLINE_SHARE else ""
        too_few = self.min_share is not None and share < self.min_share
        doubt = f"Only {sentence}, and the plan wants {self.min_share} of them."
        return Result(
            checker=self.name,
            valid="unknown" if too_few else True,
            counts={
                "asked-hz": self.asked_hz,
                "reached-hz": round(reached_hz, 3),
                "reached-share": round(share, 4),
                "acknowledged-hz": round(acked / seconds, 3) if seconds else 0,
            },
            notes=(doubt,) if too_few else (),
            detail={
                "remark": remark,
                "summary": _rate_words(sentence, acked, seconds),
                "latency_ms": _latencies(ops, counted),
                "latency_from_due_ms": _latencies_from_due(ops, due_ns, paced, self.asked_hz),
            },
        )

    def _untold(self, note: str) -> Result:
        valid: bool | str = True if self.min_share is None else "unknown"
        return Result(
            checker=self.name, valid=valid, counts={"asked-hz": self.asked_hz}, notes=(note,)
        )


def _rate_words(sentence: str, acked: int, seconds: float) -> str:
    return f"Rate: {sentence}, {_number(acked / seconds if seconds else 0)} acknowledged."


def _number(hz: float) -> str:
    return f"{hz:,.0f}" if hz >= 100 else f"{hz:.3g}"


def _due_times(history: History) -> Ints:
    """Of the clients' operations; NEVER where nothing says when they should have begun."""
    ops = history.ops
    clients = ops["process"].to_numpy() != NEMESIS
    if "due_ns" not in ops.column_names:
        return np.full(int(clients.sum()), NEVER, dtype=np.int64)
    column = ops["due_ns"].filter(pa.array(clients))
    return np.asarray(column.fill_null(NEVER).to_numpy(), dtype=np.int64)


def _latencies(ops: Operations, rows: Bools) -> dict[str, float]:
    """Quantiles of those that were acknowledged, from when they began."""
    rows = rows & ops.type.equal("ok") & (ops.complete_ns != NEVER)
    took = (ops.complete_ns[rows] - ops.invoke_ns[rows]).astype(np.float64)
    return _quantiles(took, np.ones(len(took)))


def _latencies_from_due(
    ops: Operations, due_ns: Ints, rows: Bools, asked_hz: float
) -> dict[str, float]:
    """Quantiles of those that were acknowledged, from when they were due, and of those that were
    given up behind them."""
    rows = rows & ops.type.equal("ok") & (ops.complete_ns != NEVER)
    due, begin, end = due_ns[rows], ops.invoke_ns[rows], ops.complete_ns[rows]
    took, weights = [(end - due).astype(np.float64)], [np.ones(len(due))]
    mean_ns = S / asked_hz
    given_up = np.floor((begin - LATE_NS - due) / mean_ns)
    for position in np.flatnonzero(given_up >= 1):
        number = int(given_up[position])
        samples = min(number, SAMPLES_MAX)
        since = np.linspace(due[position] + mean_ns, begin[position] - LATE_NS, samples)
        took.append(end[position] - since)
        weights.append(np.full(samples, number / samples))
    return _quantiles(np.concatenate(took), np.concatenate(weights))


def _quantiles(
    took_ns: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]
) -> dict[str, float]:
    """In ms; {} of nothing. The smallest latency within which that share of the weight is."""
    if not len(took_ns):
        return {}
    order = np.argsort(took_ns)
    share = np.cumsum(weights[order]) / weights.sum()
    places = np.minimum(np.searchsorted(share, np.array(RATE_QUANTILES) - 1e-12), len(order) - 1)
    found = took_ns[order][places] / MS
    return {str(q): round(float(ms), 3) for q, ms in zip(RATE_QUANTILES, found, strict=True)}
