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

What brokers and name servers make of it is judged, too (``HEARD``):

- a broker's SyncStateSet is the controllers': under one epoch of the set both name the same members
  (``wrong-set``);
- a confirm offset does not fall in its master's tenure (``confirm-regression``);
- a name server that knows a living master does not go back to one of an older epoch
  (``route-regression``); going back after that one left, or was missed, is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.history.faults import Fault, read_surroundings
from shalott.checkers.history.loss import window_label
from shalott.checkers.history.tenures import NodeEvent, Tenure, read_events
from shalott.checkers.mastership.mastership import acting_tenures
from shalott.core.history import History

HEARD = ("wrong-set", "confirm-regression", "route-regression")


def misheard(events: Sequence[NodeEvent]) -> Iterator[Anomaly]:
    yield from _wrong_sets(events)
    yield from _lowered(events)
    yield from _routes_back(events)


def anomaly_of(kind: str, summary: str, *proof: NodeEvent) -> Anomaly:
    """The last event of the proof is the one that broke the rule."""
    return Anomaly(
        kind=kind,
        summary=summary,
        detail={
            "group": proof[-1].group,
            "nodes": list(dict.fromkeys(event.node for event in proof)),
            "events": [event.row for event in proof],
            "at_ns": proof[-1].run_ns,
        },
    )


def _wrong_sets(events: Sequence[NodeEvent]) -> Iterator[Anomaly]:
    """An epoch of the set has one set, as the controllers decided it."""
    decided: dict[tuple[str, object], NodeEvent] = {}
    for event in events:
        if event.kind in ("elected", "set_changed") and "set_ids" in event.detail:
            decided.setdefault((event.group, event.detail.get("set_epoch")), event)
    for event in events:
        if event.kind != "set_changed" or "set_ids" in event.detail:
            continue
        word = decided.get((event.group, event.detail.get("epoch")))
        if word is None or _ids(event, "set") == _ids(word, "set_ids"):
            continue
        summary = (
            f"{event.node} takes {_named(event, 'set')} for the SyncStateSet of {event.group} in"
            f" the set's epoch {event.detail['epoch']}, which is {_named(word, 'set_ids')}"
        )
        yield anomaly_of("wrong-set", summary, word, event)


def _ids(event: NodeEvent, field: str) -> list[str]:
    return sorted(str(member) for member in event.detail.get(field) or ())


def _named(event: NodeEvent, field: str) -> str:
    return "{" + ", ".join(_ids(event, field)) + "}"


def _lowered(events: Sequence[NodeEvent]) -> Iterator[Anomaly]:
    for event in events:
        if event.kind == "confirm_lowered":
            summary = (
                f"{event.node}, master of {event.group} in epoch {event.epoch}, took its confirm"
                f" offset back from {event.detail.get('from')} to {event.detail.get('to')}"
            )
            yield anomaly_of("confirm-regression", summary, event)


def _routes_back(events: Sequence[NodeEvent]) -> Iterator[Anomaly]:
    last: dict[tuple[str, int, str], NodeEvent] = {}
    for event in events:
        if event.kind != "route":
            continue
        life = (event.node, event.incarnation, event.group)
        before, last[life] = last.get(life), event
        if before is None or not (before.detail.get("master") and event.detail.get("master")):
            continue
        if event.epoch < before.epoch:
            summary = (
                f"the name server of {event.node} took {event.detail['master']}, of epoch"
                f" {event.epoch}, for the master of {event.group} instead of"
                f" {before.detail['master']}, of epoch {before.epoch}"
            )
            yield anomaly_of("route-regression", summary, before, event)


# What controllers told of masters and SyncStateSets: elections and sets, by their epochs.
#
# Epochs of one group order what was told, from any node and at any time: nodes' clocks
# and lines that come late say nothing about order. A new leader of the controllers tells the last
# election again, with the set as it is then.


@dataclass(frozen=True, slots=True)
class Election:
    """What a controller decided; ``master`` is "" where it gave up a dead one."""

    event: NodeEvent
    master: str
    epoch: int


def elections_of(events: Sequence[NodeEvent]) -> list[Election]:
    found: dict[tuple[str, int, str], Election] = {}
    for event in events:
        if event.kind == "elected":
            master = master_of(event)
            election = Election(event, master, event.epoch)
            found.setdefault((event.group, event.epoch, master), election)
    return list(found.values())


def by_controllers(events: Sequence[NodeEvent]) -> list[NodeEvent]:
    """Elections and changes of sets, as those tell them who decide."""
    return [e for e in events if e.kind in ("elected", "set_changed") and "master" in e.detail]


def master_of(event: NodeEvent) -> str:
    return str(event.detail.get("master") or "")


def members_of(event: NodeEvent) -> tuple[str, ...]:
    return tuple(str(member) for member in event.detail.get("set") or ())


def set_epoch_of(event: NodeEvent) -> int:
    """0 if it was not told."""
    return int(event.detail.get("set_epoch") or 0)


def named(members: Sequence[str]) -> str:
    return "{" + ", ".join(members) + "}"


def with_window(anomaly: Anomaly, injected: Sequence[Fault]) -> Anomaly:
    at_ns = anomaly.detail["at_ns"]
    window = window_label(injected, at_ns)
    summary = f"{anomaly.summary}; at {at_ns / 1e9:.1f} s, {window}"
    detail = {**anomaly.detail, "window": window}
    return msgspec.structs.replace(anomaly, summary=summary, detail=detail)


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


KINDS = ("epoch-regression", "acked-while-deposed", *HEARD)


def breaches(
    events: Sequence[NodeEvent],
    elections: Sequence[Election],
    acted: Sequence[Tenure],
    tolerance_ns: int,
) -> list[Anomaly]:
    """All of them, of the kinds KINDS; each anomaly's detail names its group."""
    return [*_regressions(events, elections), *_deposed(acted, tolerance_ns), *misheard(events)]


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
