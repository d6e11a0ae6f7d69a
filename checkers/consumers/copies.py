"""Deliveries of one copy of a message, one after the other.

A copy is a message in one queue in one life: what was dead-lettered is another copy. A delivery and
the one before it are what rules about redelivery speak of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.consumers.case import Case
from shalott.checkers.consumers.rows import Deliveries
from shalott.checkers.history.columns import Ints


@dataclass(frozen=True, slots=True)
class Pairs:
    """Deliveries that were not the first of their copy, each with the one before it, in order."""

    before: Ints  # positions in the deliveries
    again: Ints

    def __len__(self) -> int:
        return len(self.again)


def read_pairs(case: Case) -> Pairs:
    deliveries = case.rows.deliveries
    known = np.flatnonzero(deliveries.message >= 0)
    known = _not_alone(deliveries, known, len(case.rows.published.index))
    order = known[
        np.lexsort(
            (known, deliveries.life[known], deliveries.queue[known], deliveries.message[known])
        )
    ]
    same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
    for column in (deliveries.message, deliveries.queue, deliveries.life):
        same &= column[order[1:]] == column[order[:-1]]
    return Pairs(order[:-1][same], order[1:][same])


def _not_alone(deliveries: Deliveries, known: Ints, messages: int) -> Ints:
    """Those of messages that came more than once: mostly few are worth sorting."""
    often = np.bincount(deliveries.message[known], minlength=messages) > 1
    return known[often[deliveries.message[known]]]
