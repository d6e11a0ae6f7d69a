"""convergence: at the end, what is called synchronised holds what its master holds.

A mirror that is listed as synchronised is promoted as if it had everything, so one that differs is
a loss, or a resurrection, that only waits for the next failure; clients can't see it. In worlds
that can look into their nodes the events of kind ``replica`` tell, for each queue process: the
group, the role, and as detail ``depth`` (in ``unit``s: messages, or a log's bytes), ``digest`` of
the ordered contents and ``synchronised``.
Differing is the anomaly ``diverged``, as are two masters of one queue. Of several looks at one
process the last counts. A history without any such event is "unknown": nothing was compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checkers.base import Anomaly, Result
from checkers.reigns import NodeEvent, read_events
from harness.history import History

UNREADABLE = "unreadable"  # what a digest begins with that is none (cluster/sim/log_replicas.py)


@dataclass(frozen=True, slots=True)
class Convergence:
    name: str = "convergence"

    def check(self, history: History) -> Result:
        queues = _last_looks(read_events(history))
        diverged = [anomaly for own in queues.values() for anomaly in _compare(own)]
        compared = sum(len(own) for own in queues.values())
        headless = sorted(group for group, own in queues.items() if not _masters(own))
        notes = [f"{group} had no master to compare its mirrors with." for group in headless]
        if not queues:
            notes.append("No replica told what it held at the end: nothing was compared.")
        return Result(
            checker=self.name,
            valid=False if diverged else ("unknown" if notes else True),
            counts={
                "diverged-count": len(diverged),
                "replica-count": compared,
                "synchronised-count": sum(
                    _is_synchronised(event) for own in queues.values() for event in own
                ),
            },
            anomalies=tuple(diverged),
            notes=tuple(notes),
        )


def _last_looks(events: Sequence[NodeEvent]) -> dict[str, list[NodeEvent]]:
    """The last event of each process, by queue."""
    last = {(e.group, e.node): e for e in events if e.kind == "replica"}
    queues: dict[str, list[NodeEvent]] = {}
    for (group, _), event in sorted(last.items()):
        queues.setdefault(group, []).append(event)
    return queues


def _masters(own: Sequence[NodeEvent]) -> list[NodeEvent]:
    return [event for event in own if event.role == "master"]


def _compare(own: Sequence[NodeEvent]) -> Iterator[Anomaly]:
    """What is wrong among the replicas of one queue."""
    masters = _masters(own)
    if not masters:
        return
    master = max(masters, key=lambda event: event.epoch)
    for other in own:
        if other.role == "master" and other is not master:
            both = f"{master.node} and {other.node}"
            yield _anomaly(f"{both} are both master of {other.group}", master, other)
        elif _is_synchronised(other) and _contents(other) != _contents(master):
            yield _anomaly(_difference(master, other), master, other)


def _is_synchronised(event: NodeEvent) -> bool:
    return event.detail.get("synchronised") is True


def _contents(event: NodeEvent) -> tuple[object, object]:
    return event.detail.get("depth"), event.detail.get("digest")


def _difference(master: NodeEvent, mirror: NodeEvent) -> str:
    for event in (master, mirror):
        digest = str(event.detail.get("digest"))
        if digest.startswith(UNREADABLE):  # how much it holds says nothing then
            return f"what {event.node} holds of {event.group} is {digest}"
    held, depth = mirror.detail.get("depth"), master.detail.get("depth")
    unit = master.detail.get("unit", "messages")
    what = f"{held} {unit}, not the {depth}" if held != depth else f"other {unit} than the {held}"
    return f"{mirror.node} holds {what} that {master.node} holds of {master.group}"


def _anomaly(summary: str, master: NodeEvent, other: NodeEvent) -> Anomaly:
    return Anomaly(
        kind="diverged",
        summary=summary,
        detail={
            "group": master.group,
            "events": [master.row, other.row],
            "nodes": [master.node, other.node],
            "depths": [master.detail.get("depth"), other.detail.get("depth")],
        },
    )
