"""A queue as a register of the tables: declared once, deleted once, and answered for only when the
tables' majority has it so. Each test is a way in which queues were not linearizable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shalott.broker.base.errors import MetadataUnavailable, NoProcess
from shalott.broker.rabbit.metadata.records import QueueRow, queue_key
from shalott.broker.rabbit.metadata.tables import StoredRow
from shalott.broker.rabbit.mirrored import rows
from shalott.broker.rabbit.mirrored.messages import SUPERVISOR, Declared
from shalott.broker.rabbit.processes.messages import Failed, Message, Pid
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller
from tests.world.rabbit.queues import Cluster, TestNode, run, until

pytestmark = pytest.mark.unit

KEY = queue_key("/", "q")


async def mirrored_queue(cluster: Cluster) -> QueueRow:
    """``q`` with its master on a, and a mirror on every other node. The row as all have it."""
    await cluster.set_policy({"ha-mode": "all"})
    await until(lambda: all(node.metadata.rows("policy") for node in cluster.nodes.values()))
    await cluster["a"].declare("q")
    await cluster.mirrored_on("q", cluster.names[1:])
    row = cluster["a"].row("q")
    assert row is not None
    await until(lambda: all(node.row("q") == row for node in cluster.nodes.values()))
    return row


async def delete_rows(node: TestNode) -> None:
    """As another client has it deleted while no master can be asked."""
    row = node.row("q")
    assert row is not None
    await node.metadata.transact(lambda tx: rows.delete(tx, row))
    await node.metadata.transact(lambda tx: rows.forget_group(tx, KEY))


async def is_quiet(task: asyncio.Task[Any]) -> bool:
    await asyncio.wait([task], timeout=0.2)
    return not task.done()


def masters(cluster: Cluster) -> list[str]:
    return [event.node for event in cluster.events_of("role") if event.role == "master"]


# -- declare ---------------------------------------------------------------------------------------


def test_a_queue_that_is_deleted_while_it_gets_its_mirrors_is_not_declared_again() -> None:
    """Seeds 102 and 105 of the metadata workload: the declare went on until it found its queue,
    over another client's delete.
    """

    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await cluster.set_policy({"ha-mode": "all"})
            await until(lambda: cluster["a"].metadata.rows("policy"))
            declaring = asyncio.create_task(cluster["a"].declare("q"))
            await until(lambda: cluster["b"].row("q") is not None)
            await delete_rows(cluster["b"])
            assert (await declaring).name == "q"
            await until(lambda: all(n.process("q") is None for n in cluster.nodes.values()))
            assert all(node.row("q") is None for node in cluster.nodes.values())
            assert masters(cluster) == ["a"]

    run(scenario())


class Supervisor(Process):
    """Answers a declare with one thing after the other."""

    def __init__(self, answers: list[Message]) -> None:
        super().__init__()
        self.answers = answers

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("refusal", "is_asked_again"), [("ending", True), ("stopping", True), ("ended", False)]
)
def test_only_a_declare_that_has_not_begun_is_tried_again(
    refusal: str, is_asked_again: bool
) -> None:
    async def scenario() -> None:
        async with Cluster("") as cluster:
            node = cluster.boot("a", supervisor=False)
            row = QueueRow(vhost="/", name="q", durable=True, auto_delete=False)
            supervisor = Supervisor([Failed(refusal, "why"), Declared(row, created=True)])
            node.inside(lambda: node.runtime.spawn(supervisor, name=SUPERVISOR))
            if is_asked_again:
                assert await node.declare("q") == row
            else:
                with pytest.raises(MetadataUnavailable, match="why"):
                    await node.declare("q")
            assert len(supervisor.answers) == (0 if is_asked_again else 1)

    run(scenario())


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_declare_of_what_this_node_alone_still_has_declares_it(is_settled: bool) -> None:
    """A node that was cut off said ok to what the others had deleted, or never had."""

    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await mirrored_queue(cluster)
            behind = cluster["b"].metadata
            behind.needs_majority = True
            behind.is_settled = lambda *row: is_settled  # type: ignore[method-assign]
            late: list[list[StoredRow]] = []
            take = behind.take
            behind.take = late.append  # type: ignore[method-assign, assignment]
            await delete_rows(cluster["a"])
            assert cluster["b"].row("q") is not None
            declaring = asyncio.create_task(cluster["b"].declare("q"))
            assert await is_quiet(declaring)
            behind.take = take  # type: ignore[method-assign]
            for stored in late:
                behind.take(stored)
            row = await declaring
            assert row.pid is not None and row.pid.node == "b"
            assert cluster["a"].row("q") is not None

    run(scenario())


def test_a_declare_of_what_is_there_asks_nobody_where_no_majority_is_needed() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            row = await mirrored_queue(cluster)
            cluster["b"].metadata.transact = None  # type: ignore[method-assign, assignment]
            assert await cluster["b"].declare("q") == row

    run(scenario())


def doubt_first_write(node: TestNode, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """The first of ``node``'s transactions is done, and then said to be in doubt."""
    transact = node.metadata.transact

    async def doubtful(body: Any, **more: Any) -> Any:
        node.metadata.transact = transact  # type: ignore[method-assign]
        await transact(body, **more)
        await meanwhile()
        raise MetadataUnavailable("the leader was lost")

    node.metadata.transact = doubtful  # type: ignore[method-assign]


def test_a_declare_in_doubt_is_not_made_again_over_a_delete() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            doubt_first_write(cluster["a"], lambda: delete_rows(cluster["b"]))
            with pytest.raises(MetadataUnavailable, match="the leader was lost"):
                await cluster["a"].declare("q")
            await until(lambda: cluster["a"].process("q") is None)
            assert masters(cluster) == [] and cluster["b"].row("q") is None

    run(scenario())


def test_a_declare_in_doubt_that_was_made_has_its_master() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:

            async def nothing() -> None:
                pass

            doubt_first_write(cluster["a"], nothing)
            with pytest.raises(MetadataUnavailable, match="the leader was lost"):
                await cluster["a"].declare("q")
            await until(lambda: cluster["a"].role("q") == "master")
            assert (await cluster["b"].declare("q")).pid == cluster["a"].process("q").pid  # type: ignore[union-attr]

    run(scenario())


# -- delete ----------------------------------------------------------------------------------------


def seem_deleted(node: TestNode) -> None:
    """To ``node`` alone, as an unsettled row of a leader that is about to be deposed."""
    tables = node.metadata.tables
    tables.store(StoredRow(table, KEY, 1000, None) for table in (rows.QUEUE, rows.DURABLE))


@pytest.mark.parametrize("deluded", ["a", "b"])
def test_a_delete_of_what_only_seems_to_be_gone_is_not_answered(deluded: str) -> None:
    """``a`` is the master, which finds no row of its own any more; b is who has to ask it."""

    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            row = await mirrored_queue(cluster)
            seem_deleted(cluster[deluded])
            removing = asyncio.create_task(cluster["b"].queues.remove(row))
            assert await is_quiet(removing)
            removing.cancel()
            assert cluster.store.leader.read(rows.QUEUE, KEY) is not None

    run(scenario())


def lose_answer(node: TestNode, instead: Callable[[Callable[[], Any]], Awaitable[None]]) -> None:
    """The next call of ``node`` has no answer; ``instead`` is given the call."""
    call = node.runtime.call

    async def lost(to: Pid, request: Message, **more: Any) -> Message:
        node.runtime.call = call  # type: ignore[method-assign]
        await instead(lambda: call(to, request, **more))
        raise NoProcess("its node was lost")

    node.runtime.call = lost  # type: ignore[method-assign, assignment]


def test_a_delete_in_doubt_spares_the_queue_that_was_declared_since() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            row = await mirrored_queue(cluster)

            async def deleted_and_declared(call: Callable[[], Any]) -> None:
                await call()
                await cluster["c"].declare("q")
                await until(lambda: masters(cluster) == ["a", "c"])
                await cluster.mirrored_on("q", "ab")

            lose_answer(cluster["b"], deleted_and_declared)
            with pytest.raises(MetadataUnavailable, match="another master"):
                await cluster["b"].queues.remove(row)
            assert cluster.master("q") == "c"

    run(scenario())


def test_a_delete_in_doubt_is_done_when_a_mirror_has_been_promoted() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            row = await mirrored_queue(cluster)

            async def promoted(call: Callable[[], Any]) -> None:
                await cluster.kill("a")
                await until(lambda: cluster.master("q") == "b")

            lose_answer(cluster["c"], promoted)
            await until(lambda: cluster["c"].queues.is_available(row))
            assert await cluster["c"].queues.remove(row) == 0
            assert all(node.row("q") is None for node in cluster.nodes.values())

    run(scenario())


def test_a_delete_in_doubt_that_was_done_is_answered() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            row = await mirrored_queue(cluster)
            lose_answer(cluster["b"], lambda call: call())
            assert await cluster["b"].queues.remove(row) == 0
            assert all(node.row("q") is None for node in cluster.nodes.values())

    run(scenario())
