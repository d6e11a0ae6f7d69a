"""A story: a known course of events in a cluster, step by step, with the settings that bring it
about and the evidence that shows each step.

``shalott test --scenario NAME`` lays its settings over the command line's defaults, runs, and tells
the steps beside what happened (catalogue.py). The evidence is a run's events, observations and
operations, and its nodes' logs. Lines have the time that they begin with: virtual seconds in a
simulation, else the wall clock, counted from the run's start.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from shalott.core.history import History
from shalott.core.plan import GatePlan, Plan
from shalott.core.timeline import place_log
from shalott.harness.report.meta import StoryResult

# "  15.783310 n1#3  E LOGGER: text"
Claims = Mapping[str, Mapping[str, Any]]  # by queue, as the system's observation told them
_SIMULATED = re.compile(r"\s*(\d+\.\d+) \S+\s+[A-Z] [\w.]+: (.*)")
# "2026-11-25T16:40:39.535 n1 E LOGGER: text"
_REAL = re.compile(r"\S*?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}) \S+ [A-Z] [\w.]+: (.*)")


class RequestFields(Protocol):
    """What a command line asked for, a field a flag (harness/run/request.py)."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def given(self) -> Mapping[str, str | bool]: ...


A = TypeVar("A", bound=RequestFields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """``settings``: the command line's flags, ``given``: parameters of system and workload; either
    counts where the command line says nothing else. ``plan``: fields of the plan that no
    flag sets; ``gates`` those of its gates. ``faults_max``: how many of the drawn faults are made.
    ``tell``: what it finds in a run.
    """

    name: str
    settings: Mapping[str, object]
    given: Mapping[str, str | bool] = field(default_factory=dict)
    plan: Mapping[str, object] = field(default_factory=dict)
    gates: Mapping[str, object] = field(default_factory=dict)
    faults_max: int | None = None
    tell: Callable[[Material], StoryResult]

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


@dataclass(frozen=True, slots=True)
class Event:
    """A node's event (core/history.py)."""

    at_s: float
    node: str
    group: str
    kind: str
    role: str
    detail: Mapping[str, object]

    def as_text(self) -> str:
        more = ", ".join(f"{name}={value}" for name, value in self.detail.items())
        return f"{self.kind} {self.role}".strip() + (f" ({more})" if more else "")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a node's log, without what it begins with."""

    at_s: float
    node: str
    text: str


@dataclass(frozen=True, slots=True)
class Material:
    """``seen``: node -> what it was observed to claim last, by queue, and when, in seconds.
    ``writes``: (queue, invoked at, acknowledged) of every enqueue.
    """

    events: tuple[Event, ...]
    lines: tuple[Line, ...]
    seen: Mapping[str, tuple[float, Claims]]
    writes: tuple[tuple[str, float, bool], ...]
    end_s: float

    def first(self, after_s: float, **wanted: object) -> Event | None:
        """The first event after that time whose fields are as wanted; a callable is asked."""
        for event in self.events:
            if event.at_s >= after_s and _fits(event, wanted):
                return event
        return None

    def last(self, before_s: float, **wanted: object) -> Event | None:
        found = [e for e in self.events if e.at_s <= before_s and _fits(e, wanted)]
        return found[-1] if found else None

    def line(self, node: str, near_s: float, *texts: str) -> Line | None:
        """The line of ``node`` with all of ``texts`` that is nearest to that time."""
        found = [
            line
            for line in self.lines
            if line.node == node and all(text in line.text for text in texts)
        ]
        return min(found, key=lambda line: abs(line.at_s - near_s), default=None)


def _fits(event: Event, wanted: Mapping[str, object]) -> bool:
    return all(
        value(getattr(event, name)) if callable(value) else getattr(event, name) == value
        for name, value in wanted.items()
    )


def read_material(history: History, nodes: Path, start_wall_ns: int) -> Material:
    """``nodes``: the directory with a directory for each node's collected files."""
    return make_material(history, sorted(_lines(nodes, start_wall_ns), key=lambda x: x.at_s))


def make_material(history: History, lines: Sequence[Line]) -> Material:
    seen: dict[str, tuple[float, Claims]] = {}
    writes: list[tuple[str, float, bool]] = []
    end_ns = 0
    for op in history.ops.to_pylist():
        end_ns = max(end_ns, op["complete_ns"] or 0)
        if op["f"] == "enqueue":
            writes.append((op["key"], op["invoke_ns"] / 1e9, op["type"] == "ok"))
        elif op["f"] == "observe" and op["type"] == "ok":
            claims = msgspec.json.decode(op["extra"]).get("claims", [])
            seen[op["node"]] = (op["invoke_ns"] / 1e9, {c["group"]: c for c in claims})
    return Material(
        events=tuple(map(_event, history.events.to_pylist())),
        lines=tuple(lines),
        seen=seen,
        writes=tuple(writes),
        end_s=end_ns / 1e9,
    )


def _event(row: Mapping[str, Any]) -> Event:
    detail = row["detail"]
    return Event(
        at_s=row["run_ns"] / 1e9,
        node=row["node"],
        group=row["group"],
        kind=row["kind"],
        role=row["role"],
        detail=msgspec.json.decode(detail) if detail else {},
    )


def _lines(nodes: Path, start_wall_ns: int) -> Iterator[Line]:
    for file in sorted(nodes.glob("*/*.log")):
        real: list[tuple[int, str]] = []
        for text in file.read_text(errors="replace").splitlines():
            if (found := _SIMULATED.fullmatch(text)) is not None:
                yield Line(float(found[1]), file.parent.name, found[2])
            elif (found := _REAL.fullmatch(text)) is not None:
                at = datetime.fromisoformat(found[1]).astimezone()
                real.append((round(at.timestamp() * 1e9), found[2]))
        placed = place_log(start_wall_ns, file.parent.name, [wall_ns for wall_ns, _ in real])
        for at_ns, (_, text) in zip(placed, real, strict=True):
            yield Line(at_ns / 1e9, file.parent.name, text)
