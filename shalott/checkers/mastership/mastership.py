"""Mastership: did two nodes rule one queue at once, and did an epoch ever go backwards?

Claimed: two nodes said "master" at the same time, by their event logs or by the harness's polls:
each of the two before and after the other said so, or both within one poll round. Effective: two
nodes acknowledged writes as master in overlapping stretches, or in one epoch; by their own
``acked`` events, and where a system writes none, by writes that a client got acknowledged through
a node that answered "master" to the polls before and after. Where a group acknowledges by a vote
of its members that is no proof: a node that still believes in its lead passes the write on.

A stale claim does no harm until it is acted on (a master cut off from the rest can't know), so a
claimed overlap is reported and leaves the run valid unless ``strict``; an effective one is two
histories of one queue and makes it invalid. Epoch regressions are reported like claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.history.columns import Operations, client_operations
from shalott.checkers.history.faults import Fault, Observation, Surroundings, read_surroundings
from shalott.checkers.history.loss import window_label
from shalott.checkers.history.tenures import (
    NodeEvent,
    Overlap,
    Tenure,
    ends_tenure,
    event_tenures,
    observed_tenures,
    overlaps,
    read_events,
    without_pauses,
)
from shalott.checkers.mastership.epochs import Restarts, epoch_regressions
from shalott.core.history import History

MS = 1_000_000
ANOMALIES_MAX = 32


@dataclass(frozen=True, slots=True)
class Mastership:
    """``tolerance_ms`` is what clocks and log lines may be apart; overlaps below it are no news."""

    tolerance_ms: int = 100
    poll_round_ms: int = 500
    strict: bool = False
    name: str = "mastership"

    def check(self, history: History) -> Result:
        around = read_surroundings(history)
        events = read_events(history)
        ops = client_operations(history)
        tolerance_ns = self.tolerance_ms * MS
        rivals = rival_masters(ops, events, around, tolerance_ns, self.poll_round_ms * MS)
        held, acted, restarts = rivals.held, rivals.acted, rivals.restarts
        claimed, seen = rivals.claimed, rivals.seen
        effective, shared = rivals.effective, rivals.shared
        regressions = epoch_regressions(events, around.observations, restarts, tolerance_ns)
        anomalies = [
            *_overlap_anomalies("dual-master-effective", effective, around),
            *shared,
            *_overlap_anomalies("dual-master-claimed", [*claimed, *seen], around),
            *regressions,
        ]
        witnesses = bool(held or acted) or any(o.ok for o in around.observations)
        noted = bool(claimed or seen or regressions)
        takeovers = takeovers_ns(held, around.injected)
        return Result(
            checker=self.name,
            valid=_verdict(bool(effective or shared), noted and self.strict, witnesses),
            counts={
                "dual-master-claimed-count": len(claimed) + len(seen),
                "dual-master-effective-count": len(effective) + len(shared),
                "epoch-regression-count": len(regressions),
                "claimed-ms-max": _longest_ms([*claimed, *seen]),
                "effective-ms-max": _longest_ms(effective),
                "tenure-count": len(held),
                "takeover-ms-max": max(takeovers, default=0) / MS,
            },
            anomalies=tuple(anomalies),
            notes=tuple(_notes(witnesses, bool(acted), noted and not self.strict, effective)),
            detail={"tenures": [_tenure_detail(tenure) for tenure in held]},
        )


def voting_groups(observations: Sequence[Observation]) -> frozenset[str]:
    return frozenset(c.group for o in observations for c in o.claims if c.by_majority)


@dataclass(frozen=True, slots=True)
class Rivals:
    """Masters at once. ``claimed`` by the nodes' logs and ``seen`` by the polls; ``effective`` by
    what they acknowledged, and ``shared`` where only an epoch is shared. ``held``: all tenures by
    the logs; ``acted``: the stretches in which nodes acknowledged."""

    held: list[Tenure]
    acted: list[Tenure]
    claimed: list[Overlap]
    seen: list[Overlap]
    effective: list[Overlap]
    shared: list[Anomaly]
    restarts: Restarts


def rival_masters(
    ops: Operations,
    events: Sequence[NodeEvent],
    around: Surroundings,
    tolerance_ns: int,
    round_ns: int,
) -> Rivals:
    """Everything that two nodes did or claimed at once. ``round_ns``: how often nodes are polled;
    overlaps up to ``tolerance_ns`` are none."""
    held = without_pauses(event_tenures(events, around), around.injected)
    polled = observed_tenures(around.observations)
    seen = overlaps(polled, tolerance_ns)
    seen += _not_yet_found(observed_overlaps(around.observations, tolerance_ns, round_ns), seen)
    acted = acting_tenures(events)
    effective = overlaps(acted, tolerance_ns)
    voting = voting_groups(around.observations)
    acted_seen = acknowledged_tenures(ops, [t for t in polled if t.group not in voting])
    effective += _not_yet_found(overlaps(acted_seen, tolerance_ns), effective)
    restarts = Restarts.read(events, around)
    return Rivals(
        held=held,
        acted=acted,
        claimed=overlaps(held, tolerance_ns),
        seen=seen,
        effective=effective,
        shared=shared_epochs(acted, effective, restarts),
        restarts=restarts,
    )


def _verdict(is_effective: bool, is_strictly_bad: bool, witnesses: bool) -> bool | str:
    if is_effective or is_strictly_bad:
        return False
    return True if witnesses else "unknown"


def _longest_ms(found: Iterable[Overlap]) -> float:
    return max(((o.end_ns - o.begin_ns) / MS for o in found), default=0)


def _notes(witnesses: bool, acted: bool, noted: bool, effective: Sequence[Overlap]) -> list[str]:
    notes = []
    if not witnesses:
        notes.append("No node event and no observation says who was master: nothing was judged.")
    elif not acted:
        notes.append(
            "The nodes logged no acknowledgements of their own; effective mastership was judged "
            "by the clients' acknowledged writes and the polls around them."
        )
    if noted and not effective:
        notes.append(
            "Claims overlapped or an epoch went back, but no two nodes acknowledged writes of one "
            "queue at once: reported, and valid (use strict to make it invalid)."
        )
    return notes


def observed_overlaps(
    observations: Sequence[Observation], tolerance_ns: int, round_ns: int
) -> list[Overlap]:
    """Two nodes that answered "master" in one poll round; consecutive rounds make one overlap."""
    polls = [o for o in observations if o.ok and any(c.role == "master" for c in o.claims)]
    found: dict[tuple[str, str, str], list[Overlap]] = {}
    for position, first in enumerate(polls):
        for second in polls[position + 1 :]:
            if second.begin_ns - first.begin_ns > round_ns:
                break
            span_ns = max(first.end_ns, second.end_ns) - first.begin_ns
            apart_ns = second.begin_ns - first.end_ns
            if first.node != second.node and span_ns <= round_ns and apart_ns <= tolerance_ns:
                for overlap in _claimed_by_both(first, second):
                    _extend(found, overlap, round_ns)
    return sorted((o for own in found.values() for o in own), key=lambda o: o.begin_ns)


def _claimed_by_both(first: Observation, second: Observation) -> list[Overlap]:
    epochs = {claim.group: claim.epoch for claim in second.claims if claim.role == "master"}
    begin_ns, end_ns = second.begin_ns, max(first.end_ns, second.end_ns)

    def tenure(group: str, by: Observation, epoch: int) -> Tenure:
        return Tenure(group, by.node, begin_ns, end_ns, epoch, "observed", by.index)

    return [
        Overlap(tenure(c.group, first, c.epoch), tenure(c.group, second, epochs[c.group]))
        for c in first.claims
        if c.role == "master" and c.group in epochs
    ]


def _extend(
    found: dict[tuple[str, str, str], list[Overlap]], overlap: Overlap, round_ns: int
) -> None:
    low, high = sorted((overlap.first.node, overlap.second.node))
    own = found.setdefault((overlap.first.group, low, high), [])
    if own and overlap.begin_ns - own[-1].end_ns <= 3 * round_ns:
        last = own[-1]
        own[-1] = Overlap(
            replace(last.first, end_ns=overlap.end_ns), replace(last.second, end_ns=overlap.end_ns)
        )
    else:
        own.append(overlap)


def acting_tenures(events: Sequence[NodeEvent]) -> list[Tenure]:
    """From the first to the last acknowledgement of each tenure, by the nodes' ``acked`` events.

    A new tenure begins with a new incarnation, or after the node said that it was not master. What
    it tells after that of the epoch that is over, it tells late: that tenure ends with its last
    such line, and does not go on to the node's next one.
    """
    opened: dict[tuple[str, str, int], Tenure] = {}
    over: dict[tuple[str, str, int], int] = {}  # the epoch of the tenure that was ended last
    tenures: list[Tenure] = []
    ordered = sorted(events, key=lambda e: (e.node, e.incarnation, e.at_ns, e.row))
    for event in ordered:
        key = (event.node, event.group, event.incarnation)
        if event.kind == "acked":
            # What is certain: it began by then, and went on at least until then.
            end_ns = event.bounds_ns("last_ns")[0]
            begin_ns = min(end_ns, event.bounds_ns("first_ns")[1])
            old = opened.get(key)
            if old is not None and event.epoch == old.epoch:
                if end_ns > old.end_ns:
                    opened[key] = _until(old, end_ns)
                continue
            if old is not None:
                # The row's version moved on under one master (a mirror joined): the same tenure in
                # time, kept as a second one so that each epoch has its master.
                late = over.get(key) == old.epoch
                tenures.append(old if late else replace(old, end_ns=begin_ns))
            opened[key] = Tenure(
                event.group, event.node, begin_ns, end_ns, event.epoch, "events", event.row,
                event.incarnation,
            )  # fmt: skip
        elif event.kind == "role" and event.role == "master":
            if over.pop(key, None) is not None and key in opened:
                tenures.append(opened.pop(key))
        else:
            ended = [k for k in opened if k[::2] == key[::2] and ends_tenure(event, k[1])]
            over |= {k: opened[k].epoch for k in ended}
            tenures.extend(opened.pop(k) for k in ended)
    return sorted([*tenures, *opened.values()], key=lambda tenure: (tenure.begin_ns, tenure.node))


def _until(old: Tenure, end_ns: int) -> Tenure:
    """``replace``, which takes five times as long, for what is asked of every acknowledgement."""
    return Tenure(
        old.group, old.node, old.begin_ns, end_ns, old.epoch, old.witness, old.evidence,
        old.incarnation,
    )  # fmt: skip


def acknowledged_tenures(ops: Operations, claims: Sequence[Tenure]) -> list[Tenure]:
    """Observed tenures, narrowed to the writes that were acknowledged through the node that was
    master."""
    acked = ops.f.equal("enqueue") & ops.type.equal("ok")
    tenures = []
    for claim in claims:
        if claim.end_ns <= claim.begin_ns:
            continue
        own = acked & ops.node.equal(claim.node) & ops.key.equal(claim.group)
        own &= (ops.invoke_ns >= claim.begin_ns) & (ops.complete_ns <= claim.end_ns)
        rows = np.flatnonzero(own)
        if len(rows):
            first, last = int(ops.complete_ns[rows].min()), int(ops.complete_ns[rows].max())
            tenures.append(
                replace(claim, begin_ns=first, end_ns=last, evidence=int(ops.index[rows[0]]))
            )
    return tenures


def _not_yet_found(candidates: Iterable[Overlap], known: Sequence[Overlap]) -> list[Overlap]:
    """Those not already told by another witness for the same queue, nodes and time."""

    def same(one: Overlap, other: Overlap) -> bool:
        nodes = {one.first.node, one.second.node} == {other.first.node, other.second.node}
        together = one.begin_ns <= other.end_ns and other.begin_ns <= one.end_ns
        return nodes and together and one.first.group == other.first.group

    return [one for one in candidates if not any(same(one, other) for other in known)]


def shared_epochs(
    acted: Sequence[Tenure], effective: Sequence[Overlap], restarts: Restarts
) -> list[Anomaly]:
    """Two nodes that acknowledged in one epoch, whenever; epoch 0 means that there is none."""
    told = {(o.first.group, frozenset((o.first.node, o.second.node))) for o in effective}
    by_epoch: dict[tuple[str, int], dict[str, Tenure]] = {}
    for tenure in acted:
        if tenure.epoch:
            by_epoch.setdefault((tenure.group, tenure.epoch), {}).setdefault(tenure.node, tenure)
    found = []
    for (group, epoch), by_node in sorted(by_epoch.items()):
        for first, second in combinations(sorted(by_node), 2):
            ends = sorted((by_node[first].end_ns, by_node[second].begin_ns))
            if restarts.all_between(*ends):
                continue
            if (group, frozenset((first, second))) not in told:
                found.append(
                    Anomaly(
                        kind="dual-master-effective",
                        summary=f"{first} and {second} both acknowledged writes of {group} as "
                        f"master in epoch {epoch}",
                        detail={
                            "group": group,
                            "nodes": [first, second],
                            "epoch": epoch,
                            "events": [by_node[first].evidence, by_node[second].evidence],
                        },
                    )  # fmt: skip
                )
    return found


def _overlap_anomalies(kind: str, found: Sequence[Overlap], around: Surroundings) -> list[Anomaly]:
    did = "acknowledged writes" if kind == "dual-master-effective" else "claimed to be master"
    anomalies = []
    for overlap in sorted(found, key=lambda o: o.begin_ns - o.end_ns)[:ANOMALIES_MAX]:
        first, second = overlap.first, overlap.second
        window = window_label(around.injected, overlap.begin_ns)
        seconds = (overlap.end_ns - overlap.begin_ns) / 1e9
        by_operation = first.witness == "observed"
        anomalies.append(
            Anomaly(
                kind=kind,
                summary=f"{first.node} and {second.node} both {did} of {first.group} for "
                f"{seconds:.2f} s from {overlap.begin_ns / 1e9:.1f} s, {window}",
                operations=(first.evidence, second.evidence) if by_operation else (),
                detail={
                    "group": first.group,
                    "nodes": [first.node, second.node],
                    "begin_ns": overlap.begin_ns,
                    "end_ns": overlap.end_ns,
                    "epochs": [first.epoch, second.epoch],
                    "witness": first.witness,
                    "window": window,
                    "events": [] if by_operation else [first.evidence, second.evidence],
                },
            )
        )
    return anomalies


def _tenure_detail(tenure: Tenure) -> dict[str, str | int]:
    return {
        "group": tenure.group,
        "node": tenure.node,
        "begin_ns": tenure.begin_ns,
        "end_ns": tenure.end_ns,
        "epoch": tenure.epoch,
    }


# How long a group waited for its next master after a fault took its master's node away.
#
# Told, not judged: the gate of a plan is on what clients got (``availability``), and a group
# whose old master goes on acknowledging behind a partition has a long takeover and no outage.


def takeovers_ns(held: Sequence[Tenure], faults: Iterable[Fault]) -> Iterator[int]:
    """From each fault's taking hold to the first tenure of another node, while the fault lasts; of
    each group whose master's node it struck, and which got another master."""
    for fault in faults:
        struck = _struck(fault)
        for group in dict.fromkeys(tenure.group for tenure in held):
            own = [tenure for tenure in held if tenure.group == group]
            at_once = [t for t in own if t.begin_ns <= fault.effective_ns <= t.end_ns]
            masters = {tenure.node for tenure in at_once}
            if not masters or not masters <= struck:
                continue
            waited = [
                tenure.begin_ns - fault.effective_ns
                for tenure in own
                if fault.effective_ns < tenure.begin_ns <= fault.end_ns
                and tenure.node not in masters
            ]
            if waited:
                yield min(waited)


def _struck(fault: Fault) -> set[str]:
    """Nodes that it was done to, or that lost a link."""
    return {*fault.nodes, *(node for link in fault.links for node in link)}
