"""Policies: what they may say, and the nodes that they want a queue's mirrors on.

Pure functions, after rabbit/rabbit_policies.erl and rabbit_mirror_queue_mode_*.erl. Which policy
applies is told by metadata/policies.py. Exclusive queues are never mirrored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Literal, TypeGuard

import msgspec

from shalott.broker.rabbit.metadata.records import PolicyRow, QueueRow
from shalott.broker.rabbit.processes.messages import Pid

HA_MODES = ("all", "exactly", "nodes")
SYNC_MODES = ("manual", "automatic")
PROMOTE_MODES = ("when-synced", "always")
LOCATORS = ("client-local", "random", "min-masters")
QUEUE_MODES = ("default", "lazy")
OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")


# -- validation ------------------------------------------------------------------------------------


def validate(policy: PolicyRow) -> str | None:
    """What is wrong with ``policy``, as one sentence; None if nothing is."""
    try:
        re.compile(policy.pattern)
    except re.error as error:
        return f"pattern {policy.pattern!r} is not a regular expression: {error}"
    if not policy.definition:
        return "the definition is empty: give at least one key, for instance ha-mode"
    unknown = _unknown(policy, _CHECKS)
    if unknown is not None:
        return unknown
    for key, value in policy.definition.items():
        problem = _CHECKS[key](value)
        if problem is not None:
            return f"{key} {problem}"
    return _validate_mirroring(policy.definition)


def _unknown(policy: PolicyRow, known: Container[str]) -> str | None:
    """In RabbitMQ's words, its terms as Erlang writes them."""
    pairs = [
        f'{{<<"{key}">>,{_term(value)}}}'
        for key, value in policy.definition.items()
        if key not in known
    ]
    if not pairs:
        return None
    return f"Validation failed\n\n[{','.join(pairs)}] are not recognised policy settings\n"


def _term(value: object) -> str:
    return f'<<"{value}">>' if isinstance(value, str) else json.dumps(value)


def validate_operators(policy: PolicyRow) -> str | None:
    """The same of an operator policy, which may say less."""
    unknown = _unknown(policy, OPERATOR_KEYS)
    return validate(policy) if unknown is None else unknown


def _validate_mirroring(definition: Mapping[str, object]) -> str | None:
    mode, params = definition.get("ha-mode"), definition.get("ha-params")
    if mode is None:
        others = [key for key in definition if key.startswith("ha-")]
        return f"{others[0]} needs ha-mode beside it" if others else None
    if mode == "all" and params is not None:
        return "ha-params must not be given with ha-mode all"
    if mode == "exactly" and _at_least(1)(params) is not None:
        return "ha-params must be a number of nodes, at least 1, with ha-mode exactly"
    if mode == "nodes" and not _is_node_list(params):
        return "ha-params must be a list of node names, at least one, with ha-mode nodes"
    return None


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_node_list(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)


def _one_of(allowed: Sequence[str]) -> Callable[[object], str | None]:
    text = f"must be one of {', '.join(allowed)}"
    return lambda value: None if isinstance(value, str) and value in allowed else text


def _at_least(least: int) -> Callable[[object], str | None]:
    text = f"must be a whole number, at least {least}"
    return lambda value: None if _is_int(value) and value >= least else text


def _one_of_numbers(*allowed: int) -> Callable[[object], str | None]:
    text = f"must be {' or '.join(map(str, allowed))}"
    return lambda value: None if _is_int(value) and value in allowed else text


def _string(value: object) -> str | None:
    return None if isinstance(value, str) else "must be a string"


def _anything(value: object) -> str | None:
    return None


_CHECKS: Mapping[str, Callable[[object], str | None]] = {
    "ha-mode": _one_of(HA_MODES),
    "ha-params": _anything,  # depends on ha-mode
    "ha-sync-mode": _one_of((*SYNC_MODES, "manually")),
    "ha-sync-batch-size": _at_least(1),
    "ha-promote-on-failure": _one_of(PROMOTE_MODES),
    "ha-promote-on-shutdown": _one_of(PROMOTE_MODES),
    "queue-master-locator": _one_of(LOCATORS),
    "message-ttl": _at_least(0),
    "expires": _at_least(1),
    "max-length": _at_least(0),
    "max-length-bytes": _at_least(0),
    "overflow": _one_of(OVERFLOWS),
    "queue-mode": _one_of(QUEUE_MODES),
    "dead-letter-exchange": _string,
    "dead-letter-routing-key": _string,
    "alternate-exchange": _string,
    # What RabbitMQ 3.10 takes too and no classic queue reads: for quorum queues and streams, or,
    # queue-version, about files that look otherwise here.
    "queue-version": _one_of_numbers(1, 2),
    "queue-leader-locator": _one_of(("client-local", "balanced")),
    "initial-cluster-size": _at_least(1),
    "delivery-limit": _at_least(0),
    "dead-letter-strategy": _one_of(("at-most-once", "at-least-once")),
    "max-in-memory-length": _at_least(0),
    "max-in-memory-bytes": _at_least(0),
    "max-age": _string,
    "stream-max-segment-size-bytes": _at_least(0),
}
# Those that an operator policy may have.
OPERATOR_KEYS = (
    *("expires", "message-ttl", "max-length", "max-length-bytes", "delivery-limit"),
    *("max-in-memory-length", "max-in-memory-bytes"),
)


def normalise(definition: Mapping[str, object]) -> dict[str, object]:
    """As it is stored: old manuals say "manually" where the broker says "manual"."""
    stored = dict(definition)
    if stored.get("ha-sync-mode") == "manually":
        stored["ha-sync-mode"] = "manual"
    return stored


# -- what the policy in force says -----------------------------------------------------------------


def is_mirrored(row: QueueRow) -> bool:
    return row.exclusive_owner is None and "ha-mode" in row.definition


def syncs_automatically(row: QueueRow) -> bool:
    return row.definition.get("ha-sync-mode") == "automatic"


def promotes_unsynced_on_failure(row: QueueRow) -> bool:
    """RabbitMQ's default is to promote the mirror that is left: availability over messages
    (rmq#1578)."""
    return str(row.definition.get("ha-promote-on-failure", "always")) == "always"


def promotes_unsynced_on_shutdown(row: QueueRow) -> bool:
    return str(row.definition.get("ha-promote-on-shutdown", "when-synced")) == "always"


def sync_batch_size(row: QueueRow, default: int) -> int:
    size = row.definition.get("ha-sync-batch-size", default)
    return size if _is_int(size) and size > 1 else default


def setting(row: QueueRow, key: str) -> object:
    """A queue argument (``x-`` and ``key``) or the policy's ``key``; the smaller if both are
    numbers.
    """
    values = [row.arguments.get(f"x-{key}"), row.definition.get(key)]
    present = [value for value in values if value is not None]
    numbers = [value for value in present if _is_int(value)]
    if len(numbers) == 2:
        return min(numbers)
    return present[0] if present else None


def is_lazy(row: QueueRow) -> bool:
    """Whether the queue keeps its messages on disk. Its argument counts before the policy."""
    return str(setting(row, "queue-mode")) == "lazy"


# -- placement -------------------------------------------------------------------------------------


def suggested_nodes(
    row: QueueRow, running: Sequence[str], choose_index: Callable[[int], int]
) -> tuple[str, list[str]]:
    """The master's node and the mirrors' nodes that the policy in force wants.

    ``choose_index(n)`` draws from n candidates (mode exactly picks its mirrors at random).
    """
    assert row.pid is not None
    master = row.pid.node
    mirrors = list(dict.fromkeys(pid.node for pid in row.slave_pids))
    mode = row.definition.get("ha-mode")
    params = row.definition.get("ha-params")
    if not is_mirrored(row):
        return master, []
    if mode == "all":
        return master, [node for node in running if node != master]
    if mode == "exactly":
        assert isinstance(params, int)
        return master, _exactly(params - 1, master, mirrors, running, choose_index)
    synced = list(dict.fromkeys(pid.node for pid in row.sync_slave_pids))
    assert isinstance(params, (list, tuple))
    return _listed(_called(params, (*running, master)), master, synced, running)


def _called(names: Sequence[str], nodes: Sequence[str]) -> list[str]:
    """As the nodes are called: a policy says rabbit@n1 of one that is called n1, as rabbitmqctl's
    -n does, or the other way round."""
    by_host = {node.rpartition("@")[2]: node for node in nodes}
    called = (n if n in nodes else by_host.get(n.rpartition("@")[2], n) for n in names)
    return list(dict.fromkeys(called))


def _exactly(
    count: int,
    master: str,
    mirrors: list[str],
    running: Sequence[str],
    choose_index: Callable[[int], int],
) -> list[str]:
    chosen = mirrors[:count]
    candidates = [node for node in running if node != master and node not in mirrors]
    while len(chosen) < count and candidates:
        chosen.append(candidates.pop(choose_index(len(candidates))))
    return chosen


def _listed(
    nodes: list[str], master: str, synced: list[str], running: Sequence[str]
) -> tuple[str, list[str]]:
    # The operator asked for a migration, but not for losing messages: with no synchronised mirror
    # the master stays.
    wanted = nodes if synced else [*nodes, master]
    available = [node for node in dict.fromkeys(wanted) if node in running]
    if not available:
        return master, []
    if master in available:
        new_master = master
    else:
        new_master = next((node for node in available if node in synced), master)
    return new_master, [node for node in available if node != new_master]


def changes(
    row: QueueRow, running: Sequence[str], choose_index: Callable[[int], int]
) -> tuple[list[str], list[str]]:
    """(nodes to add a mirror on, nodes to drop). Add before drop: a dropped mirror's death makes
    the

    master look for a replacement, and it must see those that are being added already.
    """
    assert row.pid is not None
    actual = [row.pid.node, *(pid.node for pid in row.slave_pids)]
    master, mirrors = suggested_nodes(row, running, choose_index)
    wanted = [master, *mirrors]
    add = [node for node in wanted if node not in actual]
    drop = [node for node in dict.fromkeys(actual) if node not in wanted]
    return add, drop


# -- placement -------------------------------------------------------------------------------------

# Whether a process of a queue belongs on this node, and as what. Pure.
#
# These are the rules by which a node recovers its queues when it boots and starts crashed processes
# again (rabbit/rabbit_amqqueue.erl recover, rabbit_prequeue.erl restart,
# rabbit_mirror_queue_misc.erl on_vhost_up). The answer is a wish only: the started process checks
# the row again in its first transaction.

Decision = Literal["master", "mirror", "wait", "nothing"]


def decide(
    live: QueueRow | None,
    durable: QueueRow | None,
    node: str,
    is_alive: Callable[[Pid], bool],
    choose_index: Callable[[int], int],
) -> Decision:
    """What to start on ``node``, which has no process of the queue.

    wait: some mirror elsewhere is about to be promoted, look again in a moment.
    """
    if live is None:
        # Only the node that had the last master has all that was confirmed.
        mine = durable is not None and durable.pid is not None and durable.pid.node == node
        return "master" if mine else "nothing"
    if live.pid is None:
        return "nothing"
    has_mirrors = any(pid.node != node and is_alive(pid) for pid in live.slave_pids)
    if live.pid.node == node:
        return "wait" if has_mirrors else "master"
    if is_alive(live.pid):
        return "mirror" if _wants_mirror(live, node, choose_index) else "nothing"
    return "wait" if has_mirrors and _wants_mirror(live, node, choose_index) else "nothing"


def _wants_mirror(row: QueueRow, node: str, choose_index: Callable[[int], int]) -> bool:
    assert row.pid is not None
    # A mirror that was here in a former life doesn't count as present.
    others = tuple(pid for pid in row.slave_pids if pid.node != node)
    present = [row.pid.node, *(pid.node for pid in others)]
    without_me = msgspec.structs.replace(row, slave_pids=others)
    _, mirrors = suggested_nodes(without_me, [*present, node], choose_index)
    return node in mirrors
