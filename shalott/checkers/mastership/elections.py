"""elections: how the masters of a replicated log followed each other, by what nodes told.

Judged from node events (docs/architecture.md): ``role`` and ``acked`` of the brokers, ``elected``
and ``set_changed`` of the controllers' leaders, whose detail names the ``master`` and the ``set``
afterwards (brokers tell what they have heard of, without a master). The epoch of an election is the
master's (where Raft elects, a term), that of a changed set the set's own. The invariants of
docs/protocols.md 2.9 are judged by invariants.py. What must hold beside them:

- *epochs rise*: neither a node's own, nor from one election to the next (``epoch-regression``);
- *none acknowledges after a successor did*: two masters that acknowledge at once, in any
  epochs, write two histories (checkers/mastership/mastership.py tells how long; here it is
  ``acked-while-deposed``: an acknowledgement under an epoch, later than the first one under the
  next, which I1 rules out where every member of the set has to acknowledge).

What brokers and name servers make of it is judged, too: ``wrong-set``, ``confirm-regression`` and
``route-regression`` (checkers/mastership/election_records.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.history.faults import read_surroundings
from shalott.checkers.history.tenures import NodeEvent, Tenure, read_events
from shalott.checkers.mastership.election_records import KINDS as HEARD
from shalott.checkers.mastership.election_records import (
    Election,
    anomaly_of,
    elections_of,
    misheard,
    with_window,
)
from shalott.checkers.mastership.mastership import acting_tenures
from shalott.core.history import History

ANOMALIES_MAX = 32
MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Elections:
    """``tolerance_ms``: what clocks may be apart."""

    tolerance_ms: int = 100
    name: str = "elections"

    def check(self, history: History) -> Result:
        events = read_events(history)
        around = read_surroundings(history)
        acted = acting_tenures(events)
        elections = elections_of(events)
        found = breaches(events, elections, acted, self.tolerance_ms * MS)
        masters = [event for event in events if event.kind == "role" and event.role == "master"]
        judged = bool(masters or elections)
        return Result(
            checker=self.name,
            valid=False if found else (True if judged else "unknown"),
            counts={
                "election-count": len(elections),
                "master-count": len(masters),
                "epoch-max": max((event.epoch for event in masters), default=0),
                **{f"{kind}-count": sum(a.kind == kind for a in found) for kind in KINDS},
            },
            anomalies=tuple(
                with_window(anomaly, around.injected) for anomaly in found[:ANOMALIES_MAX]
            ),
            notes=() if judged else ("No node said that it was master: nothing was judged.",),
        )


KINDS = (
    "epoch-regression",
    "acked-while-deposed",
    *HEARD,
)


def breaches(
    events: Sequence[NodeEvent],
    elections: Sequence[Election],
    acted: Sequence[Tenure],
    tolerance_ns: int,
) -> list[Anomaly]:
    """All of them, of the kinds KINDS; each anomaly's detail names its group."""
    return [
        *_regressions(events, elections),
        *_deposed(acted, tolerance_ns),
        *misheard(events),
    ]


def _regressions(events: Sequence[NodeEvent], elections: Sequence[Election]) -> Iterator[Anomaly]:
    last: dict[tuple[str, str], NodeEvent] = {}
    own = sorted(events, key=lambda e: (e.node, e.incarnation, e.at_ns, e.row))
    for event in own:
        if event.kind != "role" or event.role not in ("master", "slave") or not event.epoch:
            continue
        before = last.get((event.group, event.node))
        if before is not None and event.epoch < before.epoch:
            summary = (
                f"{event.node} was {event.role} of {event.group} in epoch {event.epoch}, after"
                f" epoch {before.epoch}"
            )
            yield anomaly_of("epoch-regression", summary, before, event)
        else:
            last[event.group, event.node] = event
    highest: dict[str, Election] = {}
    for election in sorted(elections, key=lambda one: one.event.run_ns):
        group = election.event.group
        top = highest.get(group)
        if top is not None and election.epoch < top.epoch:
            summary = (
                f"{election.master} was elected master of {group} for epoch {election.epoch},"
                f" after {top.master} for {top.epoch}"
            )
            yield anomaly_of("epoch-regression", summary, top.event, election.event)
        else:
            highest[group] = election


def _deposed(acted: Sequence[Tenure], tolerance_ns: int) -> Iterator[Anomaly]:
    """Acknowledgements under an epoch, later than another node's first under a higher one."""
    by_group: dict[str, list[Tenure]] = {}
    for tenure in acted:
        if tenure.epoch:
            by_group.setdefault(tenure.group, []).append(tenure)
    for group, own in sorted(by_group.items()):
        for old in own:
            successors = [r for r in own if r.epoch > old.epoch and r.node != old.node]
            heir = min(successors, key=lambda tenure: tenure.begin_ns, default=None)
            if heir is None or old.end_ns - heir.begin_ns <= tolerance_ns:
                continue
            seconds = (old.end_ns - heir.begin_ns) / 1e9
            yield Anomaly(
                kind="acked-while-deposed",
                summary=f"{old.node} acknowledged writes of {group} in epoch {old.epoch} for"
                f" {seconds:.2f} s after {heir.node} had begun to in epoch {heir.epoch}",
                detail={
                    "group": group,
                    "nodes": [old.node, heir.node],
                    "epochs": [old.epoch, heir.epoch],
                    "events": [old.evidence, heir.evidence],
                    "at_ns": heir.begin_ns,
                },
            )
