"""liveness: once everything is healed the cluster comes to rest, and its queues can be emptied.

After the heal every node runs, no link is cut and no disk is broken: what is still missing when the
plan's time for settling is over will be missing for ever. The phase ``settle`` records whether the
cluster settled (``settled``, ``reason``; cluster/systems/settling.py says what that means); events
of kind ``waits`` tell what nodes wait for then, where these can be looked into. At last every node
that served clients, and has not left the cluster for good, must say of every queue that it is empty
(see checkers/queues/total_queue.py). Each failing is the anomaly ``stuck``, and so is an operator's
request that was refused, or not answered, while nothing but its own fault was in force. A run that
was cut short before its drain ended, or whose history does not say whether it settled, is
"unknown".

A plan that does not demand this (its gate must_settle) is not invalid without it. But of a cluster
that did not come to rest it is unknown what it will make of what it holds, so its run is "unknown".
"""

from __future__ import annotations

from dataclasses import dataclass

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.history.columns import client_operations
from shalott.checkers.history.faults import (
    Fault,
    Phase,
    Surroundings,
    read_surroundings,
    stalled_ns,
)
from shalott.checkers.history.tenures import read_events
from shalott.checkers.queues.total_queue import undrained_queues
from shalott.core.history import History

STALLED_SHARE = 0.1  # of a phase: then what did not happen in time proves nothing


@dataclass(frozen=True, slots=True)
class Liveness:
    """``is_promised``: that it settles and can be drained. The time for it is the plan's."""

    is_promised: bool = True
    name: str = "liveness"

    def check(self, history: History) -> Result:
        around = read_surroundings(history)
        if not self.is_promised:
            return self._unpromised(around, _waiting(history))
        doubts = _doubts(around, history.complete)
        stuck: list[Anomaly] = []
        settle, drain = around.phase("settle"), around.phase("drain")
        if settle is not None and settle.settled is False:
            if _is_stalled(settle, around):
                doubts.append("It had not settled in time, but the harness stood still meanwhile.")
            else:
                stuck.append(_unsettled(settle))
        stuck += _waiting(history)
        stuck += [_refused(fault) for fault in around.injected if _is_stuck(fault, around)]
        undrained: dict[str, str] = {}
        if drain is not None and drain.end_ns is not None and history.complete:
            undrained = undrained_queues(client_operations(history), around, history.complete)
            if undrained and _is_stalled(drain, around):
                doubts.append("Queues were not drained, but the harness stood still meanwhile.")
            else:
                stuck += [_undrained(drain, queue, reason) for queue, reason in undrained.items()]
        return Result(
            checker=self.name,
            valid=False if stuck else ("unknown" if doubts else True),
            counts={"stuck-count": len(stuck), "undrained-count": len(undrained)},
            anomalies=tuple(stuck),
            notes=tuple(doubts),
        )

    def _unpromised(self, around: Surroundings, waiting: list[Anomaly]) -> Result:
        settle = around.phase("settle")
        stuck = [_unsettled(settle), *waiting] if settle and settle.settled is False else waiting
        return Result(
            checker=self.name,
            valid="unknown" if stuck else True,
            counts={"stuck-count": len(stuck)},
            notes=tuple(f"The healed cluster was drained as it was: {a.summary}." for a in stuck),
        )


def _doubts(around: Surroundings, complete: bool) -> list[str]:
    settle, drain = around.phase("settle"), around.phase("drain")
    if settle is None or settle.settled is None:
        return ["The history does not say whether the healed cluster settled."]
    if drain is None or drain.end_ns is None or not complete:
        return ["The run was cut short before its queues were drained."]
    return []


def _is_stalled(phase: Phase, around: Surroundings) -> bool:
    """Whether the harness, or the network that it is, did not run for much of the phase."""
    end_ns = around.end_ns if phase.end_ns is None else phase.end_ns
    lost_ns = stalled_ns(around.stalls, phase.begin_ns, end_ns)
    return lost_ns > STALLED_SHARE * (end_ns - phase.begin_ns)


def _unsettled(settle: Phase) -> Anomaly:
    waited_s = ((settle.end_ns or settle.begin_ns) - settle.begin_ns) / 1e9
    reason = settle.reason or "it is not known why"
    return Anomaly(
        kind="stuck",
        summary=f"it had not settled after {waited_s:.1f} s: {reason}",
        operations=(settle.index,),
        detail={"reason": reason, "begin_ns": settle.begin_ns, "end_ns": settle.end_ns},
    )


def _waiting(history: History) -> list[Anomaly]:
    """What a look into the healed nodes found to wait for nothing that may still come."""
    return [
        Anomaly(
            kind="stuck",
            summary=f"{event.node}, at rest: {event.group and f'{event.group}: '}{what}",
            detail={"node": event.node, "group": event.group, "events": [event.row], "for": what},
        )
        for event in read_events(history)
        if event.kind == "waits" and (what := str(event.detail.get("for", "")))
    ]


def _is_stuck(fault: Fault, around: Surroundings) -> bool:
    """Whether an operator was refused although nothing else was broken at the time."""
    others = [other for other in around.injected if other.id != fault.id]
    if stalled_ns(around.stalls, fault.invoke_ns, fault.end_ns):
        return False  # who asked was not there to hear the answer
    return bool(_reason(fault)) and not any(
        other.invoke_ns <= fault.end_ns and fault.invoke_ns <= other.end_ns for other in others
    )


def _refused(fault: Fault) -> Anomaly:
    return Anomaly(
        kind="stuck",
        summary=f"during {fault.name}: {_reason(fault)}",
        operations=(fault.index,),
        detail={"fault": fault.id, "reason": _reason(fault)},
    )


def _reason(fault: Fault) -> str:
    return fault.refused or fault.refused_at_end


def _undrained(drain: Phase, queue: str, reason: str) -> Anomaly:
    return Anomaly(
        kind="stuck",
        summary=f"{queue} could not be drained: {reason}",
        operations=(drain.index,),
        detail={"queue": queue, "reason": reason},
    )
