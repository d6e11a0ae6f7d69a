"""Rows brought together by a small integer, quickly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.consumers.case.case import Case
from shalott.checkers.history.columns import Ints

RADIX_MAX = 1 << 16  # numpy sorts integers of 16 bits by radix


def by_group(group: Ints) -> Ints:
    """A stable order by group."""
    if len(group) and int(group.min()) >= 0 and int(group.max()) < RADIX_MAX:
        return np.argsort(group.astype(np.uint16), kind="stable")
    return np.argsort(group, kind="stable")


def split_by(group: Ints) -> list[Ints]:
    """The positions of each group, in order within it."""
    if not len(group):
        return []
    order = by_group(group)
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)


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
