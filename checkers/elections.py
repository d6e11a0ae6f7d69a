"""elections: who was made master of a replicated log, by whom, in which epoch, out of which set.

Judged from node events (docs/architecture.md): ``role`` and ``acked`` of the brokers, ``elected``
and ``set_changed`` of the controllers' leaders, whose detail names the ``master`` and the ``set``
afterwards (brokers tell what they have heard of, without a master). A new leader tells the last
election again, with the set as it is. The epoch of an election is the master's, that of a changed
set the set's own. What must hold all the time (reference 2.2.12, and Raft's
own election safety, where the epoch is a term):

- *one master an epoch*: no two nodes are master, are elected or acknowledge in one epoch
  (``two-masters-in-epoch``);
- *epochs rise*: neither a node's own, nor from one election to the next (``epoch-regression``);
- *the master comes from the SyncStateSet* as it was before (``elected-outside-set``): I2, but for
  an unclean election that the plan allows;
- *a fenced master alters no set*: a SyncStateSet is not changed in the name of another master than
  the one elected last (``fenced-alteration``), nor to one without that master
  (``set-without-master``): I4;
- *nobody acknowledges after a successor did*: two masters that acknowledge at once, in whatever
  epochs, write two histories (checkers/mastership.py tells how long; here it is
  ``acked-while-deposed``: an acknowledgement under an epoch, later than the first one under the
  next, which I1 rules out where every member of the set has to acknowledge).

What brokers and name servers make of it is judged, too: ``wrong-set``, ``confirm-regression`` and
``route-regression`` (checkers/heard.py).

I3, that a new master has all that was acknowledged, is what the workload ``log`` proves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checkers.base import Anomaly, Result
from checkers.faults import read_surroundings
from checkers.heard import KINDS as HEARD
from checkers.heard import anomaly_of, misheard
from checkers.loss import window_label
from checkers.mastership import acting_reigns
from checkers.reigns import NodeEvent, Reign, read_events
from harness.history import History

ANOMALIES_MAX = 32
MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Elections:
    """``unclean``: the plan allows a master from outside the set. ``tolerance_ms``: what clocks may
    be apart."""

    unclean: bool = False
    tolerance_ms: int = 100
    name: str = "elections"

    def check(self, history: History) -> Result:
        events = read_events(history)
        around = read_surroundings(history)
        acted = acting_reigns(events)
        elections = _elections(events)
        found = [
            *_shared_epochs(events, elections),
            *_regressions(events, elections),
            *([] if self.unclean else _outside_set(events, elections)),
            *_fenced(events, elections),
            *_deposed(acted, self.tolerance_ms * MS),
            *misheard(events),
        ]
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
                _with_window(anomaly, window_label(around.injected, anomaly.detail["at_ns"]))
                for anomaly in found[:ANOMALIES_MAX]
            ),
            notes=() if judged else ("No node said that it was master: nothing was judged.",),
        )


KINDS = (
    "two-masters-in-epoch",
    "epoch-regression",
    "elected-outside-set",
    "fenced-alteration",
    "set-without-master",
    "acked-while-deposed",
    *HEARD,
)


@dataclass(frozen=True, slots=True)
class Election:
    """What a controller decided; ``master`` is "" where it gave up a dead one."""

    event: NodeEvent
    master: str
    epoch: int


def _elections(events: Sequence[NodeEvent]) -> list[Election]:
    """Of one epoch and master the first that was told: a new leader may tell it again."""
    found: dict[tuple[str, int, str], Election] = {}
    for event in events:
        if event.kind == "elected":
            master = _master(event)
            election = Election(event, master, event.epoch)
            found.setdefault((event.group, event.epoch, master), election)
    return list(found.values())


def _by_controllers(events: Sequence[NodeEvent]) -> list[NodeEvent]:
    """Elections and changes of sets, as those tell them who decide."""
    return [e for e in events if e.kind in ("elected", "set_changed") and "master" in e.detail]


def _master(event: NodeEvent) -> str:
    return str(event.detail.get("master") or "")


def _members(event: NodeEvent) -> tuple[str, ...]:
    return tuple(str(member) for member in event.detail.get("set") or ())


def _shared_epochs(events: Sequence[NodeEvent], elections: Sequence[Election]) -> Iterator[Anomaly]:
    """Epoch 0 stands for a system that has none."""
    first: dict[tuple[str, str, int], tuple[str, NodeEvent]] = {}
    known: dict[tuple[str, str, int, str], bool] = {}
    told: list[tuple[str, str, NodeEvent, int]] = [
        ("was elected", one.master, one.event, one.epoch) for one in elections if one.master
    ]
    for event in events:
        if event.kind in ("role", "acked") and event.role == "master":
            verb = "was master" if event.kind == "role" else "acknowledged"
            told.append((verb, event.node, event, event.epoch))
    for verb, master, event, epoch in sorted(told, key=lambda one: one[2].run_ns):
        if not epoch:
            continue
        # Controllers name brokers by id, brokers are nodes: each witness is judged by itself.
        witness = "elected" if verb == "was elected" else "node"
        other, earlier = first.setdefault((event.group, witness, epoch), (master, event))
        if other != master and (event.group, witness, epoch, master) not in known:
            known[event.group, witness, epoch, master] = True
            summary = f"{other} and {master} were both master of {event.group} in epoch {epoch}"
            yield anomaly_of("two-masters-in-epoch", summary, earlier, event)


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


def _outside_set(events: Sequence[NodeEvent], elections: Sequence[Election]) -> Iterator[Anomaly]:
    """Against the set as the event before left it."""
    by_event = {election.event.row: election for election in elections}
    last: dict[str, NodeEvent] = {}
    for event in _by_controllers(events):
        election, before = by_event.get(event.row), last.get(event.group)
        last[event.group] = event
        if election is None or not election.master or before is None or event.detail.get("unclean"):
            continue
        if _members(before) and election.master not in _members(before):
            summary = (
                f"{election.master} was elected master of {event.group} for epoch {election.epoch}"
                f" from outside of the SyncStateSet {_named(_members(before))}"
            )
            yield anomaly_of("elected-outside-set", summary, before, event)


def _fenced(events: Sequence[NodeEvent], elections: Sequence[Election]) -> Iterator[Anomaly]:
    by_event = {election.event.row: election for election in elections}
    latest: dict[str, Election] = {}
    for event in _by_controllers(events):
        election = by_event.get(event.row)
        if election is not None:
            latest[event.group] = election
        ruling, members = latest.get(event.group), _members(event)
        if event.kind == "elected" or ruling is None:
            continue
        if _master(event) != ruling.master:
            summary = (
                f"the SyncStateSet of {event.group} was changed to {_named(members)} in the name of"
                f" {_master(event) or 'nobody'}, after {ruling.master or 'nobody'} was made master"
                f" in epoch {ruling.epoch}"
            )
            yield anomaly_of("fenced-alteration", summary, ruling.event, event)
        elif members and ruling.master not in members:
            summary = (
                f"the SyncStateSet of {event.group} was changed to {_named(members)}, and"
                f" its master {ruling.master} is not in it"
            )
            yield anomaly_of("set-without-master", summary, ruling.event, event)


def _deposed(acted: Sequence[Reign], tolerance_ns: int) -> Iterator[Anomaly]:
    """Acknowledgements under an epoch, later than another node's first under a higher one."""
    by_group: dict[str, list[Reign]] = {}
    for reign in acted:
        if reign.epoch:
            by_group.setdefault(reign.group, []).append(reign)
    for group, own in sorted(by_group.items()):
        for old in own:
            successors = [r for r in own if r.epoch > old.epoch and r.node != old.node]
            heir = min(successors, key=lambda reign: reign.begin_ns, default=None)
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


def _named(members: Sequence[str]) -> str:
    return "{" + ", ".join(members) + "}"


def _with_window(anomaly: Anomaly, window: str) -> Anomaly:
    at_s = anomaly.detail["at_ns"] / 1e9
    return Anomaly(
        kind=anomaly.kind,
        summary=f"{anomaly.summary}; at {at_s:.1f} s, {window}",
        detail={**anomaly.detail, "window": window},
    )
