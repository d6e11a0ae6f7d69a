"""CheckerRecord: all that is known of a checker that judges runs of any workload, as one record.

A plug-in offers its record at the entry-point group ``shalott.checkers``, or in a module given to
``--load``. Every checker that is there and fits a plan judges its run, besides the checkers of the
workload itself (checkers/runs/compose.py). Our own run-wide checkers are such records too
(checkers/runs/standard.py). As in Jepsen, where a test map composes any checkers (jepsen.checker).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from shalott.checkers.base import Checker
from shalott.core.doors import Door, door_of_records
from shalott.core.plan import Plan

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
