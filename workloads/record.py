"""WorkloadRecord: all that the harness knows of a workload, as one record.

A workload is what the clients of a run do, and what judges it. A plug-in offers its record at the
entry-point group ``shalott.workloads``, or in a module given to ``--load``. As in Jepsen
(jepsen.tests.*: a map of client, generator and checker), but as functions of the plan, so that a
stored run can be judged again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from shalott.checkers.base import Checker
from shalott.harness.core.doors import Door, door_of_records
from shalott.harness.core.parameters import NoParameters
from shalott.harness.core.plan import Plan
from shalott.workloads.base import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRecord:
    """One workload.

    ``needs``: the protocols that its clients speak, by name; it fits every system that speaks them
    all. ``parameters``: a struct whose fields are flags of the command line and values of the plan
    (harness/core/parameters.py). ``checkers``: what judges it besides the checkers that every run
    has. ``check``: raises UsageError for a plan that it can't have. ``describe``: a few words for
    the report's first paragraph.
    """

    name: str
    summary: str
    needs: tuple[str, ...]
    build: Callable[[Plan], Workload]
    checkers: Callable[[Plan], Sequence[Checker]]
    parameters: type[msgspec.Struct] = NoParameters
    check: Callable[[Plan], None] = lambda plan: None
    describe: Callable[[Plan], str] = lambda plan: ""


WORKLOADS: Door[WorkloadRecord] = door_of_records("workload", "shalott.workloads", WorkloadRecord)
