"""Who was master of a queue, and for how long, by the better witness of each queue: the nodes' own
event logs, or the harness's polls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow.compute as pc

from shalott.checkers.consumers.case.intervals import MS, S, Stretch, without
from shalott.checkers.history.faults import Fault, Surroundings
from shalott.checkers.history.tenures import (
    NodeEvent,
    Tenure,
    ends_tenure,
    event_tenures,
    observed_tenures,
)
from shalott.core.history import History
from shalott.core.op import NEMESIS

SLACK_NS = 250 * MS  # how far an event log's clock may be apart, with time to act
BEFORE_NS = S // 2  # a fault may begin to show so long before it was asked for, by clocks apart
GENTLE = {"ends-processes", "in-order"}  # effects that leave an heir all that was told in time


def is_gentle(fault: Fault) -> bool:
    """Whether it does no more than end processes: nothing stands still, gets lost or goes wrong."""
    return bool(fault.effects) and GENTLE.issuperset(fault.effects)


def nodes_that_died(history: History) -> frozenset[str]:
    """Whose process ended though nobody asked for it, at any time."""
    died = pc.and_(pc.equal(history.ops["process"], NEMESIS), pc.equal(history.ops["f"], "died"))
    return frozenset(history.ops.filter(died)["node"].to_pylist())


class Masters:
    """Of all queues. ``mortal``: nodes whose last word may well be the last of their lives."""

    def __init__(
        self, around: Surroundings, events: Sequence[NodeEvent], mortal: frozenset[str]
    ) -> None:
        self._around = around
        self._events = events
        self._told: dict[str, list[Tenure]] = {}
        for tenure in event_tenures(events, around):
            whole = tenure if tenure.node in mortal else self._to_the_end(tenure)
            self._told.setdefault(tenure.group, []).append(whole)
        self._seen: dict[str, list[Tenure]] = {}
        for tenure in observed_tenures(around.observations):
            self._seen.setdefault(tenure.group, []).append(tenure)
        self._whole = {
            event.group for event in events if event.role == "master" and _began_as(event)
        }
        self._turns = [event for event in events if _is_turn(event)]

    def _to_the_end(self, tenure: Tenure) -> Tenure:
        """Nodes are not asked in the drain, and say little: one whose log does not end the tenure,
        and that had a word after the last fault, went on.
        """
        own = [event for event in self._events if event.node == tenure.node]
        asked = [event for event in own if event.kind == "replica"]  # by the harness, at the end
        told = [event for event in own if event.kind != "replica"]
        ended = any(
            event.incarnation > tenure.incarnation
            or (event.run_ns >= tenure.end_ns and ends_tenure(event, tenure.group))
            for event in told
        )
        troubles = [(f.invoke_ns, f.end_ns) for f in self._around.injected]
        troubles += [(each.begin_ns, each.end_ns) for each in self._around.operator_restarts]
        killed = any(begin_ns == tenure.end_ns for begin_ns, _ in troubles)
        if ended or killed:
            return tenure
        words = [event.run_ns for event in told]
        words += [e.run_ns for e in asked if e.group == tenure.group and e.role == "master"]
        words += [o.end_ns for o in self._around.observations if o.node == tenure.node and o.ok]
        if max(words) <= max((end_ns for _, end_ns in troubles), default=0):
            return tenure
        return replace(tenure, end_ns=max(tenure.end_ns, self._around.end_ns + SLACK_NS))

    def ruled(self, queue: str) -> list[Stretch]:
        told, seen = self._told.get(queue, []), self._seen.get(queue, [])
        tenures = told if queue in self._whole or not seen else seen
        if not tenures:
            first_ns = min(
                (fault.invoke_ns for fault in self._around.injected), default=self._around.end_ns
            )
            return [(0, first_ns - BEFORE_NS)] if first_ns > BEFORE_NS else []
        stretches: list[Stretch] = []
        for tenure in tenures:
            others = [
                (other.begin_ns - SLACK_NS, other.end_ns + SLACK_NS)
                for other in (*told, *seen)
                if other.node != tenure.node or (other.witness == tenure.witness and
                                                 other.begin_ns != tenure.begin_ns)
            ]  # fmt: skip
            turns = [
                (event.run_ns - SLACK_NS, event.run_ns + SLACK_NS)
                for event in self._turns
                if _disturbs(event, tenure)
            ]
            whole = (tenure.begin_ns + SLACK_NS, tenure.end_ns - SLACK_NS)
            if whole[0] <= whole[1]:
                stretches += without([whole], [*others, *turns])
        return stretches

    def heirs(self, queue: str, ruled: Sequence[Stretch]) -> Iterator[tuple[int, int, int]]:
        """The parts of ``ruled`` in which a mirror that was promoted did, each with when it was."""
        began = {
            (event.node, event.run_ns)
            for event in self._events
            if event.group == queue and event.role == "master" and _began_as(event) == "promoted"
        }
        for tenure in self._told.get(queue, []):
            if (tenure.node, tenure.begin_ns) in began:
                for begin_ns, end_ns in ruled:
                    if tenure.begin_ns <= begin_ns and end_ns <= tenure.end_ns:
                        yield begin_ns, end_ns, tenure.begin_ns

    def inherited(self, queue: str) -> list[Stretch]:
        told = self._told.get(queue, [])
        if queue not in self._whole or not told:
            return []
        end_ns = self._around.end_ns
        ends = [f.invoke_ns for f in self._around.injected if not is_gentle(f)]
        ends += [each.begin_ns for each in self._around.operator_restarts]
        beginnings = [
            event.run_ns
            for event in self._events
            if event.group == queue and event.role == "master" and event.kind == "role"
            and _began_as(event) != "promoted"
        ]  # fmt: skip
        ends += sorted(beginnings)[1:]
        latest_ns = -1
        for tenure in sorted(told, key=lambda each: each.begin_ns):
            if tenure.begin_ns < latest_ns:
                ends.append(tenure.begin_ns)
            latest_ns = max(latest_ns, tenure.end_ns)
        begin_ns = min(tenure.begin_ns for tenure in told) + SLACK_NS
        end_ns = min([end_ns, *(at_ns - BEFORE_NS for at_ns in ends)])
        return [(begin_ns, end_ns)] if begin_ns <= end_ns else []


def _began_as(event: NodeEvent) -> str:
    return str(event.detail.get("started_as") or "")


def _is_turn(event: NodeEvent) -> bool:
    """Whether a node or one of its queues began, ended or changed its role by this."""
    if event.group == "":
        return ends_tenure(event, "") or event.kind in ("started", "starting", "crashed")
    return event.kind in ("role", "crashed", "deleted", "demoted")


def _disturbs(event: NodeEvent, tenure: Tenure) -> bool:
    """Whether another became master, or the master's process may have changed."""
    if event.group == tenure.group and event.role == "master" and event.node != tenure.node:
        return True
    return event.group in ("", tenure.group) and event.node == tenure.node
