"""Targets: which nodes a fault hits. Pure functions of their arguments.

``one``, ``minority``, ``majority``, ``all`` and node names joined by ``+`` are known when the
schedule is made. ``master``, ``mirrors`` and ``slaves`` (which are the same: who copies a master)
and ``controller`` (the controllers' leader) are roles: they are resolved when the fault fires, from
what the nodes say of themselves. With several queues one of them is drawn first. ``there`` is the
node where the fault's trigger fired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shalott.cluster.system import Observation
from shalott.core.errors import UsageError
from shalott.core.rng import Stream

ROLES = ("master", "mirrors", "slaves", "controller")
THERE = "there"
COPIES = ("mirror", "slave")  # what a node says that it is
COUNTS = ("one", "minority", "majority", "all")


def is_role(target: str) -> bool:
    return target in (*ROLES, THERE)


def is_single(target: str) -> bool:
    """Whether the target is never more than one node."""
    if target in ("one", "master", "controller", THERE):
        return True
    return target not in (*ROLES, *COUNTS) and "+" not in target


def is_named(target: str, nodes: Sequence[str]) -> bool:
    """Whether the target names nodes."""
    return all(name in nodes for name in target.split("+"))


def minority_of(nodes: Sequence[str]) -> int:
    """How many nodes are a minority; one where there is none."""
    return max(1, (len(nodes) - 1) // 2)


def check_target(target: str, nodes: Sequence[str]) -> None:
    """Raise UsageError, naming what there is, unless the target makes sense."""
    if is_role(target) or target in COUNTS:
        return
    unknown = [name for name in target.split("+") if name not in nodes]
    if unknown:
        raise UsageError(
            f"unknown target {target}: {', '.join((*COUNTS, *ROLES, THERE))}, "
            f"or nodes joined by + ({', '.join(nodes)})"
        )


def draw_nodes(target: str, nodes: Sequence[str], rng: Stream) -> tuple[str, ...]:
    """The nodes of a target that is no role, in the cluster's order."""
    count = {
        "one": 1,
        "minority": minority_of(nodes),
        "majority": len(nodes) // 2 + 1,
        "all": len(nodes),
    }.get(target)
    chosen = target.split("+") if count is None else rng.sample(nodes, min(count, len(nodes)))
    return tuple(node for node in nodes if node in chosen)


def role_nodes(target: str, answers: Mapping[str, Observation], rng: Stream) -> tuple[str, ...]:
    """The nodes that play a role for one drawn queue; () if no node says that it does.

    ``answers``: by node, what ``System.observe`` returned. Of several masters of a queue the one
    with the highest epoch is taken.
    """
    if target == "controller":
        return _leader(answers)
    wanted = ("master",) if target == "master" else COPIES
    claims = [
        (str(claim["group"]), node, int(claim.get("epoch") or 0))
        for node, answer in sorted(answers.items())
        for claim in answer.get("claims") or ()
        if str(claim["role"]) in wanted
    ]
    groups = sorted({group for group, _, _ in claims})
    if not groups:
        return ()
    group = rng.choice(groups)
    own = [(epoch, node) for name, node, epoch in claims if name == group]
    if target == "master":
        return (max(own)[1],)
    return tuple(sorted(node for _, node in own))


def _leader(answers: Mapping[str, Observation]) -> tuple[str, ...]:
    """The controller that leads, of several the one with the highest term."""
    leaders = [
        (int(controller.get("epoch") or 0), node)
        for node, answer in sorted(answers.items())
        for controller in [answer.get("controller") or {}]
        if controller.get("role") in ("leader", "master")
    ]
    return (max(leaders)[1],) if leaders else ()
