"""What brokers and name servers make of the controllers' word, by the events that they tell.

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

from shalott.checkers.checker import Anomaly
from shalott.checkers.history.faults import Fault
from shalott.checkers.history.loss import window_label
from shalott.checkers.history.tenures import NodeEvent

KINDS = ("wrong-set", "confirm-regression", "route-regression")


def misheard(events: Sequence[NodeEvent]) -> Iterator[Anomaly]:
    """All three."""
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
    """Of one epoch and master the first that was told."""
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
    """The anomaly with when it was, among the faults."""
    at_ns = anomaly.detail["at_ns"]
    window = window_label(injected, at_ns)
    summary = f"{anomaly.summary}; at {at_ns / 1e9:.1f} s, {window}"
    detail = {**anomaly.detail, "window": window}
    return msgspec.structs.replace(anomaly, summary=summary, detail=detail)
