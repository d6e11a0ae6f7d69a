"""A story: something that somebody told of a cluster, step by step, with what brings it about here
and what shows each step.

``shalott test --scenario NAME`` lays its settings over the command line's defaults, runs, and tells
the steps beside what happened. The stories are in catalogue.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from shalott.core.plan import GatePlan, Plan
from shalott.harness.report.meta import ToldStory
from shalott.harness.report.stories.material import Material


class Asked(Protocol):
    """What a command line asked for, a field a flag (harness/run/request.py)."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def given(self) -> Mapping[str, str | bool]: ...


A = TypeVar("A", bound=Asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """``settings``: the command line's flags, ``given``: parameters of system and workload; either
    counts where the command line says nothing else. ``plan``: fields of the plan that no
    flag sets; ``gates`` those of its gates. ``faults_max``: how many of the drawn faults are made.
    ``tell``: what it finds in a run.
    """

    name: str
    settings: Mapping[str, Any]
    given: Mapping[str, str | bool] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    gates: Mapping[str, Any] = field(default_factory=dict)
    faults_max: int | None = None
    tell: Callable[[Material], ToldStory]

    def request(self, asked: A) -> A:
        usual = {each.name: each.default for each in dataclasses.fields(asked)}
        own = {
            name: value
            for name, value in self.settings.items()
            if getattr(asked, name) == usual[name]
        }
        return dataclasses.replace(asked, **own, given={**self.given, **asked.given})

    def staged(self, plan: Plan) -> Plan:
        gates: GatePlan = msgspec.structs.replace(plan.gates, **self.gates)
        faults = plan.faults[: self.faults_max]
        return msgspec.structs.replace(plan, gates=gates, faults=faults, **self.plan)
