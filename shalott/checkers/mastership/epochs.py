"""Epochs: did the version that gives a master its role ever go backwards?

An epoch is the version of the metadata row that named the master; each change of the row is one
higher. A lower one later means that a node overwrote the row from a stale copy, or that a part of
the cluster went on with tables of its own. Epoch 0 means that a system has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shalott.checkers.checker import Anomaly
from shalott.checkers.history.faults import Observation, Surroundings
from shalott.checkers.history.tenures import NodeEvent


@dataclass(frozen=True, slots=True)
class Restarts:
    """When each node's process began or ended. Epochs live in memory: when every node has been
    restarted they may begin anew, and epochs before and after can't be compared."""

    by_node: dict[str, list[int]]

    @staticmethod
    def read(events: Sequence[NodeEvent], around: Surroundings) -> Restarts:
        by_node: dict[str, list[int]] = {}
        begun: dict[tuple[str, int], int] = {}
        for event in events:
            begun.setdefault((event.node, event.incarnation), event.run_ns)
        for (node, _), at_ns in begun.items():
            by_node.setdefault(node, []).append(at_ns)
        for fault in around.injected:
            if fault.takes_processes:
                for node in fault.nodes:
                    times = (fault.invoke_ns, fault.effective_ns, fault.end_ns)
                    by_node.setdefault(node, []).extend(times)
        for observation in around.observations:
            by_node.setdefault(observation.node, [])
        return Restarts(by_node)

    def all_between(self, begin_ns: int, end_ns: int) -> bool:
        return bool(self.by_node) and all(
            any(begin_ns < at_ns <= end_ns for at_ns in times) for times in self.by_node.values()
        )


def epoch_regressions(
    events: Sequence[NodeEvent],
    observations: Sequence[Observation],
    restarts: Restarts,
    tolerance_ns: int,
) -> list[Anomaly]:
    """Where a group's epoch was lower than before: on one node, or from one master to the next.

    A master that goes on in its old epoch beside a later one is no regression, but an overlap.
    """
    told = [
        Sighting(e.group, e.node, e.run_ns, e.run_ns, e.epoch, "events", e.row)
        for e in events
        if e.kind in ("role", "acked") and e.role == "master" and e.epoch and e.group
    ]
    asked = [
        Sighting(c.group, o.node, o.begin_ns, o.end_ns, c.epoch, "operations", o.index)
        for o in observations
        for c in o.claims
        if c.role == "master" and c.epoch
    ]
    return [
        *_regressions(told, restarts, tolerance_ns, "logged"),
        *_regressions(asked, restarts, tolerance_ns, "said"),
    ]


@dataclass(frozen=True, slots=True)
class Sighting:
    """A master's epoch, true at some moment of [begin_ns, end_ns]."""

    group: str
    node: str
    begin_ns: int
    end_ns: int
    epoch: int
    witness: str  # events, operations
    evidence: int


def _regressions(
    sightings: Iterable[Sighting], restarts: Restarts, tolerance_ns: int, verb: str
) -> list[Anomaly]:
    highest: dict[str, Sighting] = {}
    latest: dict[tuple[str, str], Sighting] = {}
    known: dict[tuple[str, str, int], Sighting] = {}
    found: list[Anomaly] = []
    for seen in sorted(sightings, key=lambda sighting: sighting.begin_ns):
        top, own = highest.get(seen.group), latest.get((seen.group, seen.node))
        latest[seen.group, seen.node] = seen
        is_new = known.setdefault((seen.group, seen.node, seen.epoch), seen) is seen
        if (
            top is None
            or seen.epoch >= top.epoch
            or restarts.all_between(top.end_ns, seen.begin_ns)
        ):
            highest[seen.group] = seen
        elif own is not None and seen.epoch < own.epoch:
            found.append(_regression(own, seen, verb))
        elif is_new and seen.node != top.node and seen.begin_ns - top.end_ns > tolerance_ns:
            found.append(_regression(top, seen, verb))
    return found


def _regression(top: Sighting, seen: Sighting, verb: str) -> Anomaly:
    by_operation = seen.witness == "operations"
    return Anomaly(
        kind="epoch-regression",
        summary=f"{seen.node} {verb} that it was master of {seen.group} in epoch {seen.epoch} at "
        f"{seen.begin_ns / 1e9:.1f} s, after {top.node} in epoch {top.epoch} at "
        f"{top.end_ns / 1e9:.1f} s",
        operations=(top.evidence, seen.evidence) if by_operation else (),
        detail={
            "group": seen.group,
            "nodes": [top.node, seen.node],
            "epochs": [top.epoch, seen.epoch],
            "events": [] if by_operation else [top.evidence, seen.evidence],
        },
    )
