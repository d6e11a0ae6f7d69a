"""convergence: at the end, what is called synchronised holds what its master holds.

A mirror that is listed as synchronised is promoted as if it had everything, so one that differs is
a loss, or a resurrection, that only waits for the next failure; clients can't see it. Of queues the
events of kind ``replica`` tell in a simulation, which can look into its nodes; of logs the rows of
f ``replica`` in every world, what brokers answered (cluster/systems/rocket/replicas.py). Either
has, for each replica: the group, the role, ``depth`` (in ``unit``s: messages, or a log's bytes),
``digest`` of the ordered contents, ``synchronised``, and of logs where they begin to differ.
Differing is the anomaly ``diverged``, as are two masters of one queue. Of several looks at one
process the last counts. A history without any is "unknown": nothing was compared. So is one whose
group had not settled, if all that is wrong with a log is that it ends too early: that may yet come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.history.faults import decode_object, read_surroundings
from shalott.checkers.history.tenures import read_events
from shalott.core.history import History

UNREADABLE = "unreadable"  # what a digest begins with that is none


@dataclass(frozen=True, slots=True)
class Look:
    """What one node held of one group; ``row`` of the events, or else ``operation``."""

    node: str
    group: str
    role: str
    epoch: int
    detail: dict[str, object]
    row: int | None = None
    operation: int | None = None

    @property
    def is_synchronised(self) -> bool:
        return self.detail.get("synchronised") is True

    @property
    def contents(self) -> tuple[object, object]:
        return self.detail.get("depth"), self.detail.get("digest")


@dataclass(frozen=True, slots=True)
class Convergence:
    name: str = "convergence"

    def check(self, history: History) -> Result:
        looks, silent = _looks(history)
        queues = _last_looks(looks)
        settled = read_surroundings(history).phase("settle")
        may_come = settled is not None and settled.settled is False
        diverged = [anomaly for own in queues.values() for anomaly in _compare(own)]
        late = [anomaly for anomaly in diverged if may_come and anomaly.detail["is_prefix"]]
        diverged = [anomaly for anomaly in diverged if anomaly not in late]
        compared = sum(len(own) for own in queues.values())
        headless = sorted(group for group, own in queues.items() if not _masters(own))
        notes = [f"{group} had no master to compare its mirrors with." for group in headless]
        notes += [f"{node} did not say what it holds: {error}." for node, error in silent]
        notes += [f"The cluster had not settled: {anomaly.summary}." for anomaly in late]
        if not queues:
            notes.append("No replica told what it held at the end: nothing was compared.")
        return Result(
            checker=self.name,
            valid=False if diverged else ("unknown" if notes else True),
            counts={
                "diverged-count": len(diverged),
                "replica-count": compared,
                "synchronised-count": sum(
                    look.is_synchronised for own in queues.values() for look in own
                ),
            },
            anomalies=tuple(diverged),
            notes=tuple(notes),
        )


def _looks(history: History) -> tuple[list[Look], list[tuple[str, str]]]:
    """In order; and the nodes that did not say, with why."""
    events = [event for event in read_events(history) if event.kind == "replica"]
    found = [Look(e.node, e.group, e.role, e.epoch, e.detail, row=e.row) for e in events]
    silent: list[tuple[str, str]] = []
    for row in history.ops.filter(pc.equal(history.ops["f"], "replica")).to_pylist():
        extra = decode_object(row["extra"])
        if row["type"] == "ok":
            found.append(
                Look(
                    node=row["node"],
                    group=str(extra.get("group", "")),
                    role=str(extra.get("role", "")),
                    epoch=int(extra.get("epoch") or 0),
                    detail=extra,
                    operation=row["index"],
                )
            )
        else:
            silent.append((row["node"], row["error"] or "it was not asked to the end"))
    return found, silent


def _last_looks(looks: Sequence[Look]) -> dict[str, list[Look]]:
    """The last look at each process, by queue."""
    last = {(look.group, look.node): look for look in looks}
    queues: dict[str, list[Look]] = {}
    for (group, _), look in sorted(last.items()):
        queues.setdefault(group, []).append(look)
    return queues


def _masters(own: Sequence[Look]) -> list[Look]:
    return [look for look in own if look.role == "master"]


def _compare(own: Sequence[Look]) -> Iterator[Anomaly]:
    """What is wrong among the replicas of one queue."""
    masters = _masters(own)
    if not masters:
        return
    master = max(masters, key=lambda look: look.epoch)
    for other in own:
        if other.role == "master" and other is not master:
            both = f"{master.node} and {other.node}"
            yield _anomaly(f"{both} are both master of {other.group}", master, other)
        elif other.is_synchronised and _differ(master, other):
            summary, is_prefix = _difference(master, other), _is_prefix(master, other)
            yield _anomaly(summary, master, other, is_prefix=is_prefix)


def _differ(master: Look, other: Look) -> bool:
    return other.contents != master.contents or other.detail.get("differs_at") is not None


def _is_prefix(master: Look, other: Look) -> bool:
    """Of a log: whether all that is wrong is that it ends before its master's. Queues follow."""
    digests = [str(look.detail.get("digest")) for look in (master, other)]
    if other.operation is None or any(digest.startswith(UNREADABLE) for digest in digests):
        return False
    held, depth = other.detail.get("depth"), master.detail.get("depth")
    return other.detail.get("differs_at") is None and held != depth


def _difference(master: Look, mirror: Look) -> str:
    for look in (master, mirror):
        digest = str(look.detail.get("digest"))
        if digest.startswith(UNREADABLE):  # how much it holds says nothing then
            return f"what {look.node} holds of {look.group} is {digest}"
    held, depth = mirror.detail.get("depth"), master.detail.get("depth")
    unit = master.detail.get("unit", "messages")
    what = f"{held} {unit}, not the {depth}" if held != depth else f"other {unit} than the {held}"
    differs_at = mirror.detail.get("differs_at")
    where = "" if differs_at is None else f"; the first byte that differs is at {differs_at}"
    return f"{mirror.node} holds {what} that {master.node} holds of {master.group}{where}"


def _anomaly(summary: str, master: Look, other: Look, *, is_prefix: bool = False) -> Anomaly:
    both = (master, other)
    return Anomaly(
        kind="diverged",
        summary=summary,
        operations=tuple(look.operation for look in both if look.operation is not None),
        detail={
            "group": master.group,
            "events": [look.row for look in both if look.row is not None],
            "nodes": [master.node, other.node],
            "depths": [master.detail.get("depth"), other.detail.get("depth")],
            "differs_at": other.detail.get("differs_at"),
            "is_prefix": is_prefix,
        },
    )
