"""What every checker is: a pure function of a history to a Result.

Validity is three-valued and merged as in jepsen.checker: false beats "unknown" beats true. A
checker that crashes is "unknown" (checkers.runs.compose), never valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from shalott.core.doors import Door, door_of_records
from shalott.core.history import History
from shalott.core.plan import Plan

OPERATIONS_MAX = 32  # of the operations that prove an anomaly, this many are kept


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. ``operations`` are the history indexes that prove it (at most 32 are kept)."""

    kind: str  # lost, duplicated, phantom, unexpected, corrupted, dual-master-effective, ...
    summary: str  # one sentence in the domain's words
    operations: tuple[int, ...] = ()
    detail: dict[str, Any] = {}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict. ``counts`` holds numbers only; ``detail`` what the report draws.

    Two texts in ``detail`` are for people: ``summary``, a sentence told of every run, and
    ``remark``, a clause that the headline of a valid run must not keep back; "" if there is none.

    The headline of a run knows only what checkers say. ``headline``: the clause of a valid run, in
    this checker's own nouns and numbers: "none of 243 acknowledged jobs was lost". ``words``: by
    kind of anomaly, the clause of one and of several, with "{n}" and "{summary}"; without them an
    anomaly is told by its own summary.
    """

    checker: str
    valid: bool | str  # True, False or "unknown"
    counts: dict[str, int | float] = {}
    anomalies: tuple[Anomaly, ...] = ()
    notes: tuple[str, ...] = ()  # sentences for people
    detail: dict[str, Any] = {}
    headline: str = ""
    words: dict[str, tuple[str, str]] = {}


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


# CheckerRecord: all that is known of a checker that judges runs of any workload, as one record.
#
# A plug-in offers its record at the entry-point group ``shalott.checkers``, or in a module given
# to ``--load``. Every checker that is there and fits a plan judges its run, besides the checkers
# of the workload itself (checkers/runs/compose.py). Our own run-wide checkers are such records
# too (checkers/runs/standard.py). As in Jepsen, where a test map composes any checkers
# (jepsen.checker).

# What there is to read of a history: what clients did; what nodes wrote down (roles, epochs,
# crashes); what the nemesis did and proved; what nodes told the harness when they were asked; the
# phases of the run; what each replica held at the end.

Read = Literal["operations", "events", "faults", "observations", "phases", "replicas"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerRecord:
    """One checker.

    ``make`` gives it for a plan. ``reads``: what of a history it looks at. ``fits``: whether it has
    anything to say about runs of this plan; those that it does not fit are not judged by it.
    ``promise``: what must hold, in one sentence, and ``source``: who says so (a manual, a paper).
    """

    name: str
    summary: str
    make: Callable[[Plan], Checker]
    reads: tuple[Read, ...]
    promise: str
    source: str
    fits: Callable[[Plan], bool] = lambda plan: True


CHECKERS: Door[CheckerRecord] = door_of_records("checker", "shalott.checkers", CheckerRecord)
