"""Queue q with mirrors that confirm when they are told to, and ways to hurt it."""

from __future__ import annotations

from pamqp import commands

from shalott.broker.rabbit.metadata.records import QueueRow
from tests.world.rabbit.node_thread import NodeThread, World
from tests.world.rabbit.raw_client import RawClient


def mirrored_queue(node: NodeThread, client: RawClient, mirrors: int = 2) -> None:
    """Queue q with mirrors; the channel confirms."""
    node.do(lambda world: world.queues.mirrored.update(q=mirrors))
    client.declare("q", durable=True)
    client.send(1, commands.Confirm.Select())
    client.expect(commands.Confirm.SelectOk, 1)


def hold(node: NodeThread) -> None:
    """No process confirms until told to."""

    def action(world: World) -> None:
        world.queue("q").holding = True
        for mirror in world.mirrors("q"):
            mirror.holding = True

    node.do(action)


def round_trip(client: RawClient) -> None:
    """Everything sent before is done, and nothing came back for it."""
    client.send(1, commands.Basic.Qos(prefetch_count=0))
    client.expect(commands.Basic.QosOk, 1)


def await_published(node: NodeThread, count: int) -> None:
    def arrived(world: World) -> bool:
        everywhere = [len(mirror.received) for mirror in world.mirrors("q")]
        return all(received == count for received in everywhere)

    node.until(arrived)


def kill(node: NodeThread, choose: str) -> None:
    row = node.do(lambda world: world.queues.lookup("/", "q"))
    assert isinstance(row, QueueRow) and row.pid is not None
    pids = {"master": (row.pid,), "mirrors": row.slave_pids, "all": (row.pid, *row.slave_pids)}
    for pid in pids[choose]:
        node.run(node.world.runtime.kill(pid))
