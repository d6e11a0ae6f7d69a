"""The list of consumers, for whoever can't see the picture, or wants to know more than it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shalott.checkers.history.columns import Ints
from shalott.harness.report.consumers.deliveries import Deliveries
from shalott.harness.report.consumers.passages import peaks
from shalott.harness.report.consumers.tenures import Tenure

HOLDERS_MAX = 300


@dataclass(frozen=True, slots=True)
class HolderRow:
    """A tenure in words and numbers; ``span`` in ms, for the picture."""

    tenure: Tenure
    deliveries: int
    again: int
    most: int
    is_bad: bool  # it did not end as its client wanted
    span: tuple[float, float]


def holder_rows(
    tenures: Sequence[Tenure], found: Deliveries, which: Ints, again_rows: Ints, end_ns: int
) -> list[HolderRow]:
    """The first tenures, by block and begin."""
    mine = np.flatnonzero(which >= 0)
    lane = which[mine].astype(np.int32)
    ends = np.minimum(found.end_ns[mine], end_ns)
    most = peaks(lane, found.begin_ns[mine], np.maximum(ends, found.begin_ns[mine]), len(tenures))
    counts = np.bincount(lane, minlength=len(tenures))
    repeated = which[again_rows]
    again = np.bincount(repeated[repeated >= 0], minlength=len(tenures))
    return [
        HolderRow(
            tenure=one,
            deliveries=int(counts[place]),
            again=int(again[place]),
            most=int(most[place]),
            is_bad=one.ended in _BAD,
            span=(one.begin_ns / 1e6, one.end_ns / 1e6),
        )
        for place, one in enumerate(tenures[:HOLDERS_MAX])
    ]


_BAD = ("lost", "refused", "cancelled-by-server", "lock-lost", "died", "hung-up")
