"""Rows brought together by a small integer, quickly."""

from __future__ import annotations

import numpy as np

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
