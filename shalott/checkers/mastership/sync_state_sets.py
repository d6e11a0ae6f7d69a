"""Invariants I2 and I4: who may become a master, and who may alter the SyncStateSet.

A master comes out of the controllers' set, an epoch has one master, and no master of an older
epoch alters the set (docs/protocols.md 2.9).

All of it by epochs, so neither clocks nor late lines matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shalott.checkers.checker import Anomaly
from shalott.checkers.history.faults import Observation
from shalott.checkers.history.tenures import NodeEvent
from shalott.checkers.mastership.election_records import (
    Election,
    anomaly_of,
    by_controllers,
    master_of,
    members_of,
    named,
    set_epoch_of,
)

OUTSIDE = "elected-outside-set"
SHARED, FENCED, HEADLESS = "two-masters-in-epoch", "fenced-alteration", "set-without-master"


# -- I2 --------------------------------------------------------------------------------------------


def sets_before(
    events: Sequence[NodeEvent], elections: Sequence[Election]
) -> list[tuple[Election, NodeEvent]]:
    """Each election with who told the set that it was held in: the one of the set's epoch before.
    Elections whose set no node told are left out, and so are those that gave a master up."""
    told: dict[tuple[str, int], NodeEvent] = {}
    for event in by_controllers(events):
        told.setdefault((event.group, set_epoch_of(event)), event)
    found = []
    for election in elections:
        set_epoch = set_epoch_of(election.event)
        before = told.get((election.event.group, set_epoch - 1)) if set_epoch > 1 else None
        if election.master and before is not None:
            found.append((election, before))
    return found


def outside_set(judged: Sequence[tuple[Election, NodeEvent]]) -> Iterator[Anomaly]:
    for election, before in judged:
        event, members = election.event, members_of(before)
        if not members or election.master in members or event.detail.get("unclean"):
            continue
        summary = (
            f"{election.master} was elected master of {event.group} for epoch {election.epoch}"
            f" from outside of the SyncStateSet {named(members)}"
        )
        yield anomaly_of(OUTSIDE, summary, before, event)


# -- I4 --------------------------------------------------------------------------------------------


def shared_epochs(
    events: Sequence[NodeEvent],
    elections: Sequence[Election],
    observations: Sequence[Observation],
) -> Iterator[Anomaly]:
    """By elections, by what nodes said and did, and by what they answered. Epoch 0 stands for a
    system that has none."""
    yield from _told_twice(events, elections)
    first: dict[tuple[str, int], tuple[str, Observation]] = {}
    known: dict[tuple[str, int, str], bool] = {}
    for seen in observations:
        for claim in seen.claims:
            if claim.role != "master" or not claim.epoch:
                continue
            other, earlier = first.setdefault((claim.group, claim.epoch), (seen.node, seen))
            key = (claim.group, claim.epoch, seen.node)
            if other != seen.node and key not in known:
                known[key] = True
                yield Anomaly(
                    kind=SHARED,
                    summary=f"{other} and {seen.node} both answered that they were master of"
                    f" {claim.group} in epoch {claim.epoch}",
                    operations=(earlier.index, seen.index),
                    detail={
                        "group": claim.group, "nodes": [other, seen.node], "events": [],
                        "at_ns": seen.end_ns,
                    },
                )  # fmt: skip


def _told_twice(events: Sequence[NodeEvent], elections: Sequence[Election]) -> Iterator[Anomaly]:
    first: dict[tuple[str, str, int], tuple[str, NodeEvent]] = {}
    known: dict[tuple[str, str, int, str], bool] = {}
    told = [("elected", one.master, one.event) for one in elections if one.master]
    for event in events:
        if event.kind in ("role", "epoch", "acked") and event.role == "master":
            told.append(("node", event.node, event))
    for witness, master, event in sorted(told, key=lambda one: one[2].run_ns):
        if not event.epoch:
            continue
        # Controllers name brokers by id, brokers are nodes: each witness is judged by itself.
        key = (event.group, witness, event.epoch)
        other, earlier = first.setdefault(key, (master, event))
        if other != master and (*key, master) not in known:
            known[*key, master] = True
            summary = f"{other} and {master} were both master of {event.group} in epoch"
            yield anomaly_of(SHARED, f"{summary} {event.epoch}", earlier, event)


def fenced(events: Sequence[NodeEvent], elections: Sequence[Election]) -> Iterator[Anomaly]:
    """Of each set that was changed: the election before it, by the epoch of the set."""
    changes = [e for e in by_controllers(events) if e.kind == "set_changed"]
    for event in changes:
        earlier = [
            one
            for one in elections
            if one.event.group == event.group and set_epoch_of(one.event) < set_epoch_of(event)
        ]
        if not earlier:
            continue
        ruling, members = max(earlier, key=lambda one: one.epoch), members_of(event)
        if master_of(event) != ruling.master:
            summary = (
                f"the SyncStateSet of {event.group} was changed to {named(members)} in the name of"
                f" {master_of(event) or 'no node'}, after {ruling.master or 'no node'} was made"
                f" master in epoch {ruling.epoch}"
            )
            yield anomaly_of(FENCED, summary, ruling.event, event)
        elif members and ruling.master not in members:
            summary = (
                f"the SyncStateSet of {event.group} was changed to {named(members)}, and"
                f" its master {ruling.master} is not in it"
            )
            yield anomaly_of(HEADLESS, summary, ruling.event, event)
