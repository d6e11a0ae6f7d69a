"""Acknowledgements of an original's brokers, as events: its brokers log none, clients saw them.

A send that is ok names the broker that said so and where in its log the message lies, which is in
the message's id (LogReaders.tell_where). In which epoch that broker was master is known if it was
one all the time from the send's beginning to its end, by its own log; else the epoch is not told,
and the acknowledgement is left out: it is in the history all the same.

An event ``acked`` is as our own brokers': ``end`` is how far the log was acknowledged at least,
``first_ns`` and ``last_ns`` when its messages were taken. When a send that took long
was taken is unknown: it has an event of its own, at the moment of its answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from shalott.cluster.system import EventRow
from shalott.core.history import History

MS = 1_000_000
COLUMNS = ["f", "type", "extra", "invoke_ns", "complete_ns"]
TOGETHER_NS = 250 * MS  # acknowledgements of one event
SHORT_NS = 100 * MS  # what clocks may be apart: checkers/mastership tolerate as much


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was acknowledged, on the run's clock."""

    node: str
    end: int
    invoke_ns: int
    complete_ns: int

    @property
    def is_short(self) -> bool:
        return self.complete_ns - self.invoke_ns <= SHORT_NS


@dataclass(frozen=True, slots=True)
class Role:
    begin_ns: int
    row: EventRow


def acknowledged_events(
    history: History, rows: Sequence[EventRow], hosts: Mapping[str, str]
) -> list[EventRow]:
    """Rows of EVENT_SCHEMA. ``rows``: what the nodes told. ``hosts``: nodes by their addresses."""
    roles: dict[str, list[Role]] = {}
    for row in rows:
        if row["kind"] in ("role", "starting") and row["group"] != "controller":
            roles.setdefault(row["node"], []).append(Role(row["run_ns"], row))
    for own in roles.values():
        own.sort(key=lambda role: role.begin_ns)
    by_tenure: dict[tuple[str, int], tuple[EventRow, list[Sent]]] = {}
    for sent in _sent(history, hosts):
        tenure = _tenure(roles.get(sent.node, ()), sent)
        if tenure is not None:
            key = (sent.node, tenure["run_ns"])
            by_tenure.setdefault(key, (tenure, []))[1].append(sent)
    return [
        _event(tenure, together)
        for tenure, own in by_tenure.values()
        for together in _together(own)
    ]


def _sent(history: History, hosts: Mapping[str, str]) -> Iterator[Sent]:
    for row in history.ops.select(COLUMNS).to_pylist():
        if (row["f"], row["type"]) != ("send", "ok"):
            continue
        extra = msgspec.json.decode(row["extra"]) if row["extra"] else {}
        node = hosts.get(str(extra.get("broker", "")).rpartition(":")[0])
        if node is not None and "log_offset" in extra:
            # A message has a byte at least.
            yield Sent(node, int(extra["log_offset"]) + 1, row["invoke_ns"], row["complete_ns"])


def _tenure(roles: Sequence[Role], sent: Sent) -> EventRow | None:
    """The role that the node had from the send's beginning to its end, if it was the master."""
    times = [role.begin_ns for role in roles]
    first, last = bisect_right(times, sent.invoke_ns), bisect_right(times, sent.complete_ns)
    own = [role.row for role in roles[:last] if role.row["kind"] == "role" and role.row["group"]]
    later = [
        role.row for role in roles[first:last] if role.row["group"] or role.row["kind"] != "role"
    ]
    return own[-1] if own and not later and own[-1]["role"] == "master" else None


def _together(own: Sequence[Sent]) -> Iterator[list[Sent]]:
    """In order of their answers."""
    bunch: list[Sent] = []
    for sent in sorted(own, key=lambda one: one.complete_ns):
        if not sent.is_short:
            yield [sent]
            continue
        if bunch and sent.complete_ns - bunch[0].complete_ns > TOGETHER_NS:
            yield bunch
            bunch = []
        bunch.append(sent)
    if bunch:
        yield bunch


def _event(tenure: EventRow, together: Sequence[Sent]) -> EventRow:
    told_ns = max(sent.complete_ns for sent in together)
    taken = [sent.invoke_ns if sent.is_short else sent.complete_ns for sent in together]
    wall_ns = tenure["wall_ns"] - tenure["run_ns"] + told_ns
    shift_ns = wall_ns - told_ns  # from the run's clock to the node's
    detail = {
        "first_ns": min(taken) + shift_ns,
        "last_ns": max(taken) + shift_ns,
        "count": len(together),
        "end": max(sent.end for sent in together),
        "told_by": "clients",
    }
    return {
        **tenure,
        "at_ns": wall_ns,
        "wall_ns": wall_ns,
        "run_ns": told_ns,
        "kind": "acked",
        "detail": msgspec.json.encode(detail).decode(),
    }
