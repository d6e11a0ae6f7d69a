"""What the faults of a plan require of nodes, world and system; each refusal is one sentence.

It is all known before anything is booted: a fault that can't be made is no fault of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shalott.cluster.capabilities import Capability
from shalott.cluster.system import ChangesMembers, System
from shalott.core.errors import UsageError
from shalott.core.parameters import make_parameters
from shalott.core.plan import FaultAction
from shalott.nemesis.record import FAULTS, FaultRecord
from shalott.nemesis.targets import is_named, is_single, minority_of
from shalott.nemesis.trigger_words import check_order, check_told, check_triggers, needs_of


def required_capabilities(actions: Iterable[FaultAction]) -> frozenset[Capability]:
    """What a cluster must be able to do to run these. Raises UsageError for an unknown kind."""
    return frozenset(
        need for action in actions for need in (*FAULTS.find(action.kind).needs, *needs_of(action))
    )


def required_protocols(actions: Iterable[FaultAction]) -> tuple[type, ...]:
    """What a system must offer besides ``System``. Raises UsageError for an unknown kind."""
    asked = (protocol for action in actions for protocol in FAULTS.find(action.kind).asks)
    return tuple(dict.fromkeys(asked))


def check_system(actions: Sequence[FaultAction], system: System, nodes: Sequence[str] = ()) -> None:
    """Raise UsageError if the faults ask of the system what it does not offer, or wait for what it
    does not tell. ``nodes``: all."""
    check_told(actions, system)
    for protocol in required_protocols(actions):
        if isinstance(system, protocol):
            continue
        kinds = [action.kind for action in actions if protocol in FAULTS.find(action.kind).asks]
        names = " and ".join(dict.fromkeys(kinds))
        raise UsageError(
            f"the system {system.name} can't be asked for {names}: it does not offer"
            f" {protocol.__name__} (shalott/cluster/system.py); choose another --nemesis, or a"
            " --system that does"
        )
    if isinstance(system, ChangesMembers):
        _check_leaving(actions, system, nodes)


def _check_leaving(
    actions: Sequence[FaultAction], system: ChangesMembers, nodes: Sequence[str]
) -> None:
    """Refuse faults of membership where no node can leave. Where some can, a fault that hits
    another one is skipped."""
    asking = [a.kind for a in actions if ChangesMembers in FAULTS.find(a.kind).asks]
    reasons = dict.fromkeys(system.why_not_leave(node) for node in nodes)
    if asking and reasons and "" not in reasons:
        raise UsageError(
            f"no node can leave the cluster, as {' and '.join(dict.fromkeys(asking))} would have"
            f" it: of each {'; '.join(reasons)}: choose --layout separate, or another --nemesis"
        )


def check_actions(actions: Sequence[FaultAction], nodes: Sequence[str]) -> None:
    """Refuse what no run can do with these faults, in any world. Raises UsageError."""
    for action in actions:
        if not FAULTS.has(action.kind):
            raise UsageError(
                f"fault {action.id} is of the unknown kind {action.kind}: choose one of"
                f" {', '.join(FAULTS.names())}"
            )
        record = FAULTS.find(action.kind)
        _check_targets(action, record, nodes)
        _check_amount(action, record)
        make_parameters(record.parameters, action.parameters)
        check_triggers(action, nodes, [each.id for each in actions])
        for name, flag in record.must_tell.items():
            if not action.parameters.get(name):
                raise UsageError(
                    f"fault {action.id} is {action.kind}, which must be told more: give {flag}, or"
                    f" the parameter {name} in a plan"
                )
    check_order(actions)
    _check_lasting(actions, nodes)


def _check_lasting(actions: Sequence[FaultAction], nodes: Sequence[str]) -> None:
    """What does not heal hits one node, or a minority where a fault may; or those that were
    named."""
    hit: dict[str, int] = {}
    alone: dict[str, int] = {}
    meant: dict[str, None] = {}
    for action in actions:
        record = FAULTS.find(action.kind)
        if not record.does_not_heal:
            continue
        own = dict.fromkeys(action.nodes or (), action.id)
        hit |= own
        if not record.may_hit_minority:
            alone |= own
        elif is_named(action.target, nodes):
            meant |= dict.fromkeys(own)
    harmed, most = (alone, 1) if len(alone) > 1 else (hit, minority_of(nodes))
    if len(harmed) > most and not (harmed is hit and hit.keys() == meant.keys()):
        which = "a second node" if most == 1 else "a majority"
        kept = "one node" if most == 1 else f"{most} nodes"
        raise UsageError(
            f"fault {max(harmed.values())} would do lasting harm to {which}"
            f" ({' and '.join(harmed)}), and with it perhaps to the last copy: in a plan such"
            f" faults may hit {kept} only"
        )


def _check_targets(action: FaultAction, record: FaultRecord, nodes: Sequence[str]) -> None:
    hit = action.nodes or ()
    ends = [node for link in action.links or () for node in link]
    for node in (*hit, *ends):
        if node not in nodes:
            raise UsageError(f"fault {action.id} names {node}, which is no node of the plan")
    if any(source == destination for source, destination in action.links or ()):
        raise UsageError(f"fault {action.id} has a link from a node to itself")
    if record.does_not_heal and (not hit or (len(hit) > 1 and not record.may_hit_minority)):
        several = "nodes" if record.may_hit_minority else "exactly one node"
        raise UsageError(
            f"fault {action.id} is {action.kind}, which needs {several}, named in the plan"
        )
    if record.is_single and record.links is None:
        too_many = len(hit) > 1 if action.nodes is not None else not is_single(action.target)
        if too_many:
            raise UsageError(
                f"fault {action.id} is {action.kind}, which hits one node at a time, not"
                f" {' and '.join(hit) or action.target}: make a fault for each"
            )


def _check_amount(action: FaultAction, record: FaultRecord) -> None:
    amount = record.amount
    if amount is None:
        if action.amount:
            raise UsageError(f"fault {action.id} is of kind {action.kind}, which has no amount")
        return
    if action.amount == 0 or not amount.least <= action.amount <= amount.most:
        raise UsageError(
            f"fault {action.id} ({action.kind}) needs an amount in {amount.unit}, not 0 and between"
            f" {amount.least:g} and {amount.most:g}; it has {action.amount:g}"
        )
