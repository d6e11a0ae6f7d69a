"""WorkloadRecord: all that the harness knows of a workload, as one record.

A workload is what the clients of a run do, and what judges it. A plug-in offers its record at the
entry-point group ``shalott.workloads``, or in a module given to ``--load``. It is what a map of
client, generator and checker is in Jepsen (jepsen.tests.*), but as functions of the plan, so that a
stored run can be judged again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shalott.checkers.base import Checker
from shalott.core.doors import Door, door_of_records
from shalott.core.drawing import Draw
from shalott.core.parameters import NoParameters
from shalott.core.plan import Plan
from shalott.workloads.base import Workload

Values = Mapping[str, Any]  # of parameters, by field


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRecord:
    """One workload.

    ``needs``: the protocols that its clients speak, by name; it fits every system that speaks them
    all. ``parameters``: a struct whose fields are flags of the command line and values of the plan
    (core/parameters.py). ``checkers``: what judges it besides the checkers that every run
    has. ``complete``: given the struct's values and how many nodes serve clients, the values that a
    plan stores. ``check``: raises UsageError for a plan that it can't have. ``draw``: values for a
    search's run; what it leaves out has its default. ``search``: fields of a swarm by name
    (harness/scenarios/swarm.py) that searches with this workload have, whatever the system.
    ``describe``: a few words for the report.

    For shrinking: ``lower`` names whole numbers that may be made smaller, down to 1; ``calm`` has
    the values that a parameter may be put to because there it does least.
    """

    name: str
    summary: str
    needs: tuple[str, ...]
    build: Callable[[Plan], Workload]
    checkers: Callable[[Plan], Sequence[Checker]]
    parameters: type[msgspec.Struct] = NoParameters
    complete: Callable[[Values, int], Values] = lambda values, serving: values
    check: Callable[[Plan], None] = lambda plan: None
    draw: Callable[[Draw], Values] = lambda draw: {}
    search: Values = field(default_factory=dict)
    describe: Callable[[Plan], str] = lambda plan: ""
    lower: tuple[str, ...] = ()
    calm: Values = field(default_factory=dict)


WORKLOADS: Door[WorkloadRecord] = door_of_records("workload", "shalott.workloads", WorkloadRecord)
