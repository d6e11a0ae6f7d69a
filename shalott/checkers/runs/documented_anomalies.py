"""Of what a checker found: whether its system's manual documents that such an answer may be lost.

An anomaly names the operations that prove it. The last of them saw what it should not have seen;
one before it was acknowledged and is gone, if a way of loss that the system's record names took
what was acknowledged then, by a fault that had begun when the last one ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from shalott.checkers.checker import Anomaly, Checker, Result
from shalott.checkers.history.documented_losses import (
    LossScene,
    Stretch,
    documented_loss,
    in_detail,
)
from shalott.checkers.history.faults import read_surroundings
from shalott.core.documented_loss import DocumentedLoss
from shalott.core.history import History


@dataclass(frozen=True, slots=True)
class DocumentedAnomalies:
    """The judge's result; ``detail`` has under "documented" the ways of loss that were seen, and
    under "undocumented" how many of its anomalies were none."""

    judge: Checker
    documented: tuple[DocumentedLoss, ...] = ()

    @property
    def name(self) -> str:
        return self.judge.name

    def check(self, history: History) -> Result:
        result = self.judge.check(history)
        if result.valid is not False or not self.documented:
            return result
        scene = LossScene.read(history, read_surroundings(history))
        begins = history.ops["invoke_ns"].to_pylist()
        ends = history.ops["complete_ns"].to_pylist()
        kinds = history.ops["type"].to_pylist()
        rows = {index: (begins[index], ends[index], kinds[index]) for index in range(len(begins))}
        names = [_way(each, rows, scene, self.documented) for each in result.anomalies]
        detail = {
            **result.detail,
            "documented": in_detail(self.documented, names),
            "undocumented": names.count(""),
        }
        return msgspec.structs.replace(result, detail=detail)


def _way(
    anomaly: Anomaly,
    rows: Mapping[int, tuple[int, int | None, str]],
    scene: LossScene,
    documented: Sequence[DocumentedLoss],
) -> str:
    """The name of the way of loss; "": none was seen."""
    own = [rows[index] for index in sorted(anomaly.operations) if index in rows]
    if len(own) < 2:
        return ""
    begin_ns, end_ns, _ = own[-1]  # an index tells the order of the invocations
    seen_ns = begin_ns if end_ns is None else end_ns
    for _, acked_ns, kind in own[:-1]:
        if kind == "ok" and acked_ns is not None:
            found = documented_loss(Stretch(acked_ns, acked_ns), documented, scene)
            if found is not None and rows[found.operation][0] <= seen_ns:
                return found.loss.name
    return ""
