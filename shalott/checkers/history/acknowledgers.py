"""Which node acknowledged a message: the one that said ok as its master, not who passed it on.

A client is connected to one node; what it sends is acknowledged by the master of its queue or log,
which often is another one. Three witnesses are asked in turn, from the firmest to the weakest:

- the client's own word, where its answer tells who gave it (``broker`` of a send's extra, an
  address);
- the nodes' ``acked`` events, whose stretches say when each of them gave acknowledgements as
  master; of two masters at once the one whose stretch holds is the client's own node, if any is;
- who was master at that time, by events and polls, if it was one node alone.

Where they leave it open none is named: "".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shalott.checkers.history.column_values import Words
from shalott.checkers.history.columns import Bools, Codes, Ints, Operations
from shalott.checkers.history.faults import Surroundings
from shalott.checkers.history.tenures import NodeEvent, event_tenures, observed_tenures

SLACK_NS = 5_000_000  # what a line of a node's log and the client's clock may be apart


@dataclass(frozen=True, slots=True)
class _Stretches:
    """When one node was at work as master of a group: sorted, none touches the next."""

    begin_ns: Ints
    end_ns: Ints

    def touched(self, begin_ns: Ints, end_ns: Ints) -> Bools:
        """By row, whether [begin_ns, end_ns] touches one of them."""
        last = np.searchsorted(self.begin_ns, end_ns + SLACK_NS, side="right") - 1
        reached = self.end_ns[np.maximum(last, 0)] >= begin_ns - SLACK_NS
        return np.asarray((last >= 0) & reached)


_ByNode = Mapping[str, _Stretches]


@dataclass(frozen=True, slots=True)
class Witnesses:
    """Who acknowledged and who was master when, by group and node."""

    acked: Mapping[str, _ByNode]
    masters: Mapping[str, _ByNode]

    @staticmethod
    def read(events: Sequence[NodeEvent], around: Surroundings) -> Witnesses:
        tenures = [*event_tenures(events, around), *observed_tenures(around.observations)]
        told = [(one.group, one.node, one.begin_ns, one.end_ns) for one in tenures]
        return Witnesses(_stretches(_acked(events)), _stretches(told))

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.acked, *self.masters]))


def acknowledgers(
    ops: Operations, rows: Ints, group: Words, witnesses: Witnesses, told: Words | None = None
) -> Words:
    """By row of ``rows`` (positions of acknowledged operations) who acknowledged it.

    ``group``: of each row, the queue or the group of brokers. ``told``: of each row, the node that
    the client itself names, or "".
    """
    near = ops.node.take(rows)
    begin_ns, end_ns = ops.invoke_ns[rows], ops.complete_ns[rows]
    names = ["", *(told.names if told is not None else ()), *near.names]
    for known in (witnesses.acked, witnesses.masters):
        names += [node for by_node in known.values() for node in by_node]
    names = list(dict.fromkeys(names))
    found = np.zeros(len(rows), dtype=np.int32)
    if told is not None:
        found = np.array([names.index(name) for name in told.names], dtype=np.int32)[told.codes]
    for known in (witnesses.acked, witnesses.masters):
        for code, name in enumerate(group.names):
            own = np.flatnonzero((group.codes == code) & (found == 0))
            if len(own) and known.get(name):
                by = _one_of(known[name], begin_ns[own], end_ns[own], near.take(own), names)
                found[own] = by
    return Words(found, tuple(names))


def _one_of(
    by_node: _ByNode, begin_ns: Ints, end_ns: Ints, near: Words, names: Sequence[str]
) -> Codes:
    """By row the only node that was at work then, or of several the client's own; else 0."""
    nodes = list(by_node)
    at_work = np.stack([by_node[node].touched(begin_ns, end_ns) for node in nodes])
    code_of = np.array([names.index(node) for node in nodes], dtype=np.int32)
    found = np.where(at_work.sum(axis=0) == 1, code_of[at_work.argmax(axis=0)], 0)
    for place, node in enumerate(nodes):
        found = np.where(at_work[place] & near.equal(node), code_of[place], found)
    return found.astype(np.int32)


def answered_by(ops: Operations, rows: Ints, by: Words) -> Operations:
    """The operations, with who acknowledged them in place of the client's node in ``rows``."""
    names = tuple(dict.fromkeys([*ops.node.names, *by.names]))
    codes: Codes = np.array(ops.node.codes)
    places = np.array([names.index(name) for name in by.names], dtype=np.int32)
    codes[rows] = places[by.codes]
    return replace(ops, node=Words(codes, names))


def nodes_of_addresses(events: Sequence[NodeEvent], nodes: Sequence[str]) -> dict[str, str]:
    """Which node is meant by an address under which a master was known: the host's name, the node
    that says so when it has booted (``address``), or else the master of that epoch, where one name
    server's route and one master's event have it."""
    masters: dict[tuple[str, int], dict[str, None]] = {}
    for event in events:
        if event.kind == "role" and event.role == "master":
            masters.setdefault((event.group, event.epoch), {})[event.node] = None
    own_word = {
        str(event.detail["address"]): event.node for event in events if "address" in event.detail
    }
    found: dict[str, str] = {}
    for event in events:
        address = event.detail.get("master") if event.kind == "route" else None
        if isinstance(address, str) and address:
            own = masters.get((event.group, event.epoch), {})
            if len(own) == 1:
                found.setdefault(address, next(iter(own)))
    hosts = {address: host for address in found if (host := host_of(address)) in nodes}
    return found | own_word | hosts


def host_of(address: str) -> str:
    return address.rpartition(":")[0]


_Span = tuple[str, str, int, int]  # group, node, begin and end in ns


def _acked(events: Sequence[NodeEvent]) -> list[_Span]:
    """From the first to the last acknowledgement that each line tells of, on the run's clock."""
    found = []
    for event in events:
        if event.kind == "acked":
            begin_ns, end_ns = event.bounds_ns("first_ns")[0], event.bounds_ns("last_ns")[1]
            found.append((event.group, event.node, begin_ns, end_ns))
    return found


def _stretches(spans: Sequence[_Span]) -> dict[str, _ByNode]:
    merged: dict[str, dict[str, list[list[int]]]] = {}
    for group, node, begin_ns, end_ns in sorted(spans):
        own = merged.setdefault(group, {}).setdefault(node, [])
        if own and begin_ns <= own[-1][1]:
            own[-1][1] = max(own[-1][1], end_ns)
        else:
            own.append([begin_ns, end_ns])
    return {
        group: {node: _Stretches(*np.array(own, dtype=np.int64).T) for node, own in nodes.items()}
        for group, nodes in merged.items()
    }
