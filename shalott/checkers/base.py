"""What every checker is: a pure function of a history to a Result.

Validity is three-valued and merged as in jepsen.checker: false beats "unknown" beats true. A
checker that crashes is "unknown" (checkers.runs.compose), never valid.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from shalott.core.history import History

OPERATIONS_MAX = 32  # of the operations that prove an anomaly, this many are kept


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. ``operations`` are the history indexes that prove it (at most 32 are kept)."""

    kind: str  # lost, duplicated, phantom, unexpected, corrupted, dual-master-effective, ...
    summary: str  # one sentence in the domain's words
    operations: tuple[int, ...] = ()
    detail: dict[str, Any] = {}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict. ``counts`` holds numbers only; ``detail`` whatever the report draws.

    Two texts in ``detail`` are for people: ``summary``, a sentence told of every run, and
    ``remark``, a clause that the headline of a valid run must not keep back; "" if there is none.
    """

    checker: str
    valid: bool | str  # True, False or "unknown"
    counts: dict[str, int | float] = {}
    anomalies: tuple[Anomaly, ...] = ()
    notes: tuple[str, ...] = ()  # sentences for people
    detail: dict[str, Any] = {}


class Checker(Protocol):
    """Configured when made; called with the history alone."""

    @property
    def name(self) -> str: ...

    def check(self, history: History) -> Result: ...


def merge_valid(verdicts: Iterable[bool | str]) -> bool | str:
    """False beats "unknown" beats True; no verdict at all is "unknown"."""
    seen = list(verdicts)
    if any(verdict is False for verdict in seen):
        return False
    if not seen or any(verdict == "unknown" for verdict in seen):
        return "unknown"
    return True
