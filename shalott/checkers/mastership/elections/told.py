"""What controllers told of masters and SyncStateSets: elections and sets, by their epochs.

Epochs of one group order what was told, whoever told it and whenever it arrived: nodes' clocks and
lines that come late say nothing about order. A new leader of the controllers tells the last
election again, with the set as it is then. Part of checkers/mastership/elections/.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from shalott.checkers.base import Anomaly
from shalott.checkers.history.faults import Fault
from shalott.checkers.history.loss import window_label
from shalott.checkers.history.tenures import NodeEvent


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
