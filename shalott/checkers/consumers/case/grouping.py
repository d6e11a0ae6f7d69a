"""Deliveries brought together by whom they were made to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.consumers.case.case import Case
from shalott.checkers.history.columns import Ints
from shalott.checkers.history.grouping import by_group


@dataclass(frozen=True, slots=True)
class Held:
    """Deliveries by whom they were made to."""

    order: Ints
    begin: Ints

    def of(self, code: int) -> Ints:
        """Positions of the deliveries, in order of time."""
        return self.order[self.begin[code] : self.begin[code + 1]]


def by_consumer(case: Case) -> Held:
    return _held(case.rows.deliveries.consumer, len(case.rows.consumers))


def by_channel(case: Case) -> Held:
    return _held(case.rows.deliveries.channel, len(case.rows.channels.name))


def _held(code: Ints, size: int) -> Held:
    order = by_group(code + 1)  # those of nobody come first
    counts = np.bincount(code + 1, minlength=size + 1)
    return Held(order, np.cumsum(counts))
