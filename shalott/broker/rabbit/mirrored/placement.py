"""Whether a process of a queue belongs on this node, and as what. Pure.

These are the rules by which a node recovers its queues when it boots and starts crashed processes
again (rabbit/rabbit_amqqueue.erl recover, rabbit_prequeue.erl restart, rabbit_mirror_queue_misc.erl
on_vhost_up). The answer is a wish only: the started process checks the row again in its first
transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import policy
from shalott.broker.rabbit.processes.messages import Pid

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
    _, mirrors = policy.suggested_nodes(without_me, [*present, node], choose_index)
    return node in mirrors
