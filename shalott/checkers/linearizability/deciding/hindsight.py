"""The shortest prefix that is not linearizable, without hindsight.

The general search gets stuck at a return. It knows then what the operations under way will return
later, and a prefix does not: there an append may still get any offset. So the prefix that ends with
that return may have an order that hindsight excludes, and the shortest without one be longer. A
monitor judges prefixes as such, but can't decide each. Both are put right here, by checking
prefixes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shalott.checkers.history.concurrent import NEVER, OK, ConcurrentHistory
from shalott.checkers.linearizability.monitors.base import cut, first_true
from shalott.checkers.models import Model, meanings_of

Decide = Callable[[ConcurrentHistory], bool | None]  # is it not linearizable? None: not known


def without_hindsight(
    history: ConcurrentHistory, model: Model, rank: int, is_invalid: Decide
) -> int:
    """The first event, from ``rank`` on, whose prefix is invalid; ``rank`` if that is not known.

    ``history`` is of one object and invalid; no prefix that ends before ``rank`` is.
    """
    if not _settles_later(history, model, rank):
        return rank
    completions = np.sort(history.ret[history.ret != NEVER])
    first = int(np.searchsorted(completions, rank))
    known = [True]

    def ask(at: int) -> bool | None:
        answer = is_invalid(cut(history, int(completions[first + at])))
        known[0] = known[0] and answer is not None
        return answer

    found = first_true(len(completions) - first, 0, ask)
    return int(completions[first + found]) if known[0] else rank


def _settles_later(history: ConcurrentHistory, model: Model, rank: int) -> bool:
    """Whether something under way at ``rank`` returned later what narrows down what it did."""
    meanings = meanings_of(model)
    if meanings is not None and not any(
        meanings[name].settles for name in history.f.names if name in meanings
    ):
        return False
    later = (history.call < rank) & (history.ret > rank)
    later &= (history.ret != NEVER) & (history.type == OK)
    if meanings is None:
        return bool(later.any())
    names = {history.f.names[code] for code in history.f.codes[later].tolist()}
    return any(meanings[name].settles for name in names)
