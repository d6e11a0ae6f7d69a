"""linearizability: whether each object of a run did as if operations on it took effect one by one.

The objects are the keys of the history, each is checked alone
(checkers/linearizability/checking.py), and each one that is not linearizable is an anomaly, with
the operations that prove it and a window that the report draws. What could not be decided within
the limits is "unknown", never valid.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly, Result
from shalott.checkers.history.client_history import concurrent_history
from shalott.checkers.history.columns import NEVER, Ints, Operations, client_operations
from shalott.checkers.history.concurrent import FAIL, ConcurrentHistory
from shalott.checkers.history.faults import Surroundings, read_surroundings
from shalott.checkers.linearizability.checking import check
from shalott.checkers.linearizability.explain import explain
from shalott.checkers.linearizability.explanation import Explanation, Verdict, Violation, to_detail
from shalott.checkers.models import Model, make_model, model_name
from shalott.core.history import History
from shalott.core.json_value import JsonObject

TIME_LIMIT_S: Final = 120.0  # for all objects
MEMORY_LIMIT_BYTES: Final = 2 * 1024**3
AFTERMATH_NS: Final = 20_000_000_000  # so long a healed fault may be what did it
EXPLAINED_MAX: Final = 6  # objects whose violation is drawn


@dataclass(frozen=True, slots=True)
class Linearizability:
    """``model``: a model, or what ``make_model`` makes one of: a name, or "package.module:Class".

    ``fs``: the operations that it is about. ``kinds``: what anomalies are called, by the
    word of the monitor that found them. ``exactly_once``: not judged if a message came out twice.
    """

    model: Model | str
    fs: tuple[str, ...]
    kinds: Mapping[str, str] = field(default_factory=dict)
    exactly_once: bool = False
    time_limit_s: float = TIME_LIMIT_S
    name: str = "linearizability"

    @property
    def model_name(self) -> str:
        """As it was given, or what the model is called."""
        return self.model if isinstance(self.model, str) else model_name(self.model)

    def check(self, history: History) -> Result:
        """Raises UsageError: there is no such model, or it fails on an operation."""
        model = make_model(self.model) if isinstance(self.model, str) else self.model
        ops = client_operations(history)
        if self.exactly_once and (repeated := repeated_deliveries(ops)):
            note = (
                f"{repeated} messages were delivered again: that is no queue that delivers exactly"
                " once, and AMQP promises none. Only first deliveries were judged."
            )
            return Result(checker=self.name, valid="unknown", notes=(note,))
        judged = list(self._judged(ops, model))
        around = read_surroundings(history)
        violations = [each for each in judged if each.verdict.violation is not None]
        doubts = [each.doubt for each in judged if each.verdict.valid == "unknown"]
        if not judged:
            doubts.append(f"There was no operation to judge: {' or '.join(self.fs)}.")
        explanations = [each.explanation(model, self.fs) for each in violations[:EXPLAINED_MAX]]
        return Result(
            checker=self.name,
            valid=False if violations else ("unknown" if doubts else True),
            counts={
                "object-count": len(judged),
                "not-linearizable-count": len(violations),
                "undecided-count": sum(each.verdict.valid == "unknown" for each in judged),
                "linearized-count": sum(
                    each.happened for each in judged if each.verdict.valid is True
                ),
            },
            anomalies=tuple(each.anomaly(self.kinds, ops, around) for each in violations),
            notes=tuple(doubts),
            detail={
                "model": self.model_name,
                "objects": {each.key: each.summary() for each in judged},
                **to_detail(explanations),
            },
        )

    def _judged(self, ops: Operations, model: Model) -> Iterator[Judged]:
        """Object by object: one that is wrong does not hide another."""
        wanted = ops.f.among(self.fs)
        deadline = time.monotonic() + self.time_limit_s
        for code in np.unique(ops.key.codes[wanted]):
            key = ops.key.names[code]
            history = concurrent_history(ops, wanted & (ops.key.codes == code))
            verdict = check(
                history,
                model,
                time_limit_s=max(1e-9, deadline - time.monotonic()),
                memory_limit_bytes=MEMORY_LIMIT_BYTES,
                find_prefix=True,
            )
            yield Judged(key, history, verdict)


@dataclass(frozen=True, slots=True)
class Judged:
    """One object's history and what was found of it."""

    key: str
    history: ConcurrentHistory
    verdict: Verdict

    @property
    def happened(self) -> int:
        """Operations that took effect, or may have."""
        return int((self.history.type != FAIL).sum())

    @property
    def doubt(self) -> str:
        progress = f"; {self.verdict.progress}" if self.verdict.progress else ""
        return f"{self.key} could not be judged: {self.verdict.cause}{progress}."

    @property
    def violation(self) -> Violation:
        assert self.verdict.violation is not None
        return self.verdict.violation

    def summary(self) -> JsonObject:
        found = self.verdict
        return {
            "valid": found.valid,
            "how": found.how,
            "passed_over": list(found.passed_over),
            "operations": found.operations,
        }

    def anomaly(self, kinds: Mapping[str, str], ops: Operations, around: Surroundings) -> Anomaly:
        rows = dict.fromkeys(self.violation.operations)
        if self.violation.stuck is not None:
            rows.setdefault(self.violation.stuck)
        places = [int(self.history.place[row]) for row in rows]
        where = np.searchsorted(ops.index, places)
        nodes = list(dict.fromkeys(ops.node.names[code] for code in ops.node.codes[where]))
        through = f", through {' and '.join(nodes)}" if any(nodes) else ""
        return Anomaly(
            kind=kinds.get(self.violation.word, "not-linearizable"),
            summary=f"{self.key}: {self.violation.reason}{through}",
            operations=tuple(places[:OPERATIONS_MAX]),
            detail={
                "queue": self.key,
                "model": self.verdict.model,
                "by": self.violation.by,
                "violation": self.violation.word,
                "nodes": nodes,
                **in_force(int(ops.invoke_ns[where].min()), _last_ns(ops, where), around),
            },
        )

    def explanation(self, model: Model, fs: tuple[str, ...]) -> Explanation:
        """The window that the report draws."""
        found = self.violation
        explanation = explain(
            self.history,
            model,
            stuck=found.stuck,
            prefix=found.prefix,
            witness=found.operations,
            reason=found.reason,
            by=found.by,
        )
        return msgspec.structs.replace(explanation, fs=fs)


def _last_ns(ops: Operations, where: Ints) -> int:
    ends = np.where(ops.complete_ns[where] == NEVER, ops.invoke_ns[where], ops.complete_ns[where])
    return int(ends.max())


def in_force(begin_ns: int, end_ns: int, around: Surroundings) -> dict[str, object]:
    """The stretch of time, and which faults were in force then, or had been shortly before."""
    span: dict[str, object] = {"begin_ns": begin_ns, "end_ns": end_ns}
    faults = [f for f in around.injected if f.effective_ns <= end_ns]
    during = [f.name for f in faults if f.end_ns >= begin_ns]
    if during:
        return {**span, "cause": "fault", "why": f"in force: {', '.join(during)}"}
    latest = max(faults, key=lambda fault: fault.end_ns, default=None)
    if latest is None or begin_ns - latest.end_ns > AFTERMATH_NS:
        return span
    ago_s = (begin_ns - latest.end_ns) / 1e9
    return {**span, "cause": "fault", "why": f"{latest.name} had been healed {ago_s:.1f} s before"}


def repeated_deliveries(ops: Operations) -> int:
    """Messages that came out more than once, or were flagged as redelivered."""
    given = ops.f.equal("dequeue") & ops.type.equal("ok") & ops.has_value
    values, times = np.unique(ops.value[given], return_counts=True)
    flagged = np.unique(ops.value[given & ops.redelivered])
    return len(np.union1d(values[times > 1], flagged))
