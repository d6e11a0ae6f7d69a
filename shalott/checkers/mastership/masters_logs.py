"""Invariant I3: a new master's log holds all that was acknowledged before it.

The invariant is docs/protocols.md 2.9. By what nodes tell: an ``acked`` event says how far the log
was acknowledged (``end``), who becomes master says how far its own log goes, and under controllers
which epochs it is made of. Epochs order the tenures; no clock does, and no line comes too late.
Three ways to break it:

- ``acked-missing-at-master``: the log of a later master, or of the same one after its restart, ends
  before what was acknowledged;
- ``acked-replaced-at-master``: it goes far enough, but has bytes of another epoch there;
- ``acked-cut``: a node cuts its log before the end of what it acknowledged itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shalott.checkers.checker import Anomaly
from shalott.checkers.history.tenures import NodeEvent
from shalott.checkers.mastership.elections import anomaly_of

MISSING, REPLACED, CUT = "acked-missing-at-master", "acked-replaced-at-master", "acked-cut"
KINDS = (MISSING, REPLACED, CUT)

Table = Sequence[Sequence[int]]  # [epoch, where it starts], in order


@dataclass(frozen=True, slots=True)
class Beginning:
    """Of a tenure, or of a node's going on in it after a restart."""

    event: NodeEvent
    end: int
    epochs: Table


def beginnings_of(events: Sequence[NodeEvent]) -> list[Beginning]:
    return [
        Beginning(event, int(event.detail["end"]), event.detail.get("epochs") or ())
        for event in events
        if event.kind in ("role", "epoch") and event.role == "master" and "end" in event.detail
    ]


def acknowledged_ends(events: Sequence[NodeEvent]) -> list[NodeEvent]:
    """Of each life of a node and epoch the ``acked`` event that goes furthest."""
    furthest: dict[tuple[str, str, int, int], NodeEvent] = {}
    for event in events:
        if event.kind == "acked" and end_of(event):
            key = (event.group, event.node, event.incarnation, event.epoch)
            if key not in furthest or end_of(furthest[key]) < end_of(event):
                furthest[key] = event
    return list(furthest.values())


def end_of(event: NodeEvent) -> int:
    """How far the log was acknowledged by an ``acked`` event."""
    return int(event.detail.get("end") or 0)


def lost_at_masters(
    acked: Sequence[NodeEvent], beginnings: Sequence[Beginning]
) -> Iterator[Anomaly]:
    """At most one for each pair of tenures."""
    for begun in beginnings:
        for ack in acked:
            if not _must_have(begun, ack, beginnings):
                continue
            event, end = begun.event, end_of(ack)
            what = (
                f"{ack.node} had acknowledged the log of {ack.group} up to {end} in epoch"
                f" {ack.epoch}"
            )
            where = f"{event.node} is its master in epoch {event.epoch}"
            if begun.end < end:
                summary = f"{what}, and {where} with a log that ends at {begun.end}"
                yield anomaly_of(MISSING, summary, ack, event)
                continue
            found = _epoch_at(begun.epochs, end - 1)
            allowed = _written_in(ack, beginnings)
            if found is not None and allowed and found not in allowed:
                summary = (
                    f"{what}, and {where} with a log that has bytes of epoch {found} there, not of"
                    f" {min(allowed)}"
                )
                yield anomaly_of(REPLACED, summary, ack, event)


def _must_have(begun: Beginning, ack: NodeEvent, beginnings: Sequence[Beginning]) -> bool:
    event = begun.event
    if event.group != ack.group:
        return False
    if event.node == ack.node and event.epoch == ack.epoch:
        return event.incarnation > ack.incarnation
    return event.epoch > ack.epoch and not _goes_on(event, ack, beginnings)


def _goes_on(event: NodeEvent, ack: NodeEvent, beginnings: Sequence[Beginning]) -> bool:
    """Whether one master was elected again, and no other in between: what it takes meanwhile
    counts under either epoch."""
    same_life = (event.node, event.incarnation) == (ack.node, ack.incarnation)
    return same_life and not any(
        other.event.group == ack.group
        and other.event.node != ack.node
        and ack.epoch < other.event.epoch < event.epoch
        for other in beginnings
    )


def _written_in(ack: NodeEvent, beginnings: Sequence[Beginning]) -> list[int]:
    """The epochs that the last acknowledged byte may be of, by the tables of who acknowledged."""
    found: dict[int, None] = {}
    for begun in beginnings:
        event = begun.event
        same_life = (event.node, event.incarnation) == (ack.node, ack.incarnation)
        if event.group != ack.group or not same_life:
            continue
        later = event.epoch > ack.epoch and _goes_on(event, ack, beginnings)
        if event.epoch == ack.epoch or later:
            epoch = _epoch_at(begun.epochs, end_of(ack) - 1)
            if epoch is not None:
                found[epoch] = None
    return list(found)


def _epoch_at(epochs: Table, offset: int) -> int | None:
    """None where the table does not reach back that far."""
    last = None
    for epoch, start in epochs:
        if start > offset:
            break
        last = epoch
    return last


def cut_by_themselves(events: Sequence[NodeEvent]) -> Iterator[Anomaly]:
    """Each node by its own order of lines."""
    furthest: dict[tuple[str, str], NodeEvent] = {}
    for event in sorted(events, key=lambda e: (e.node, e.incarnation, e.at_ns, e.row)):
        key = (event.group, event.node)
        if event.kind == "acked" and end_of(event):
            if key not in furthest or end_of(furthest[key]) < end_of(event):
                furthest[key] = event
        elif event.kind == "truncated" and key in furthest:
            yield from _cut(furthest, key, event)


def _cut(
    furthest: Mapping[tuple[str, str], NodeEvent], key: tuple[str, str], event: NodeEvent
) -> Iterator[Anomaly]:
    ack, to = furthest[key], event.detail.get("to")
    if isinstance(to, int) and to < end_of(ack):
        summary = (
            f"{event.node} cut its log of {event.group} down to {to}, and had acknowledged it up to"
            f" {end_of(ack)} in epoch {ack.epoch}"
        )
        yield anomaly_of(CUT, summary, ack, event)
