"""Replicated tables on three nodes: writes, conflicts, lost leaders, partitions, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shalott.broker.base.errors import MetadataUnavailable
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.messages import SERVER, Committed, Join
from shalott.broker.rabbit.metadata.records import PolicyRow
from shalott.broker.rabbit.metadata.tables import Change
from shalott.broker.rabbit.processes.messages import Failed, Message, Name
from tests.world.rabbit.metadata import NODES, World

pytestmark = pytest.mark.unit


def put(name: str, priority: int = 0) -> Callable[[Transaction], None]:
    def body(transaction: Transaction) -> None:
        row = PolicyRow(vhost="/", name=name, pattern="^", definition={}, priority=priority)
        transaction.write("policy", name, row)

    return body


def increment(name: str) -> Callable[[Transaction], None]:
    def body(transaction: Transaction) -> None:
        row = transaction.read("policy", name)
        priority = row.priority + 1 if isinstance(row, PolicyRow) else 1
        put(name, priority)(transaction)

    return body


def run(body: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        try:
            await world.boot()
            await body(world)
        finally:
            await world.close()

    asyncio.run(main())


def priority(world: World, node: str, name: str) -> int | None:
    row = world.metadata[node].read("policy", name)
    return row.priority if isinstance(row, PolicyRow) else None


def test_a_write_is_on_every_node_when_it_returns() -> None:
    async def body(world: World) -> None:
        for index, node in enumerate(NODES):
            await world.metadata[node].transact(put(f"p{index}", index))
            assert [priority(world, other, f"p{index}") for other in NODES] == [index] * 3

    run(body)


def test_concurrent_increments_from_every_node_are_all_counted() -> None:
    async def body(world: World) -> None:
        writers = [
            world.metadata[node].transact(increment("c")) for node in NODES for _ in range(20)
        ]
        await asyncio.gather(*writers)
        assert [priority(world, node, "c") for node in NODES] == [60] * 3

    run(body)


def test_a_write_through_a_dying_leader_is_not_lost_once_answered() -> None:
    async def body(world: World) -> None:
        leader = world.servers["n1"].participant.leader
        assert leader is not None
        others = [node for node in NODES if node != leader.node]
        done = 0

        async def count() -> None:
            nonlocal done
            for _ in range(50):
                await world.metadata[others[0]].transact(increment("c"), timeout_ms=4000)
                done += 1

        task = asyncio.create_task(count())
        await world.until(lambda: done >= 10)
        await world.kill(leader.node)
        await task
        for node in others:
            counted = priority(world, node, "c")
            assert counted is not None
            assert 50 <= counted <= 51, "one write may have been applied twice: its answer was lost"

    run(body)


def test_a_restarted_node_throws_its_tables_away_and_copies_the_running_ones() -> None:
    async def body(world: World) -> None:
        await world.metadata["n3"].transact(put("old", 1))
        await world.kill("n3")
        await world.until(lambda: "n3" not in world.servers["n1"].members)
        await world.metadata["n1"].transact(put("new", 2))
        await world.metadata["n1"].transact(lambda t: t.delete("policy", "old"))
        assert "n3" in world.journals["n1"].saw_down
        world.make("n3")
        world.board.link_all()
        async with asyncio.timeout(5):
            await world.servers["n3"].boot()
        assert priority(world, "n3", "new") == 2
        assert priority(world, "n3", "old") is None
        await world.until(lambda: "n3" in world.servers["n2"].members)
        await world.metadata["n3"].transact(put("again", 3))
        assert [priority(world, node, "again") for node in NODES] == [3] * 3
        assert not world.journals["n1"].saw_down

    run(body)


def test_both_sides_of_a_partition_write_and_know_afterwards_that_they_ran_apart() -> None:
    async def body(world: World) -> None:
        world.board.isolate("n1")
        await world.until(
            lambda: all(len(world.servers[n].members) == k for n, k in (("n1", 1), ("n2", 2)))
        )
        await world.metadata["n1"].transact(put("x", 1))
        await world.metadata["n2"].transact(put("x", 2))
        world.board.link_all()
        await world.until(lambda: "n1" in world.servers["n2"].participant.partitions)
        await world.until(lambda: list(world.servers["n1"].participant.partitions) == ["n2", "n3"])
        assert [priority(world, node, "x") for node in NODES] == [1, 2, 2]
        server = world.servers["n1"]
        server.leave()
        async with asyncio.timeout(5):
            await server.boot()
        assert priority(world, "n1", "x") == 2
        await world.until(lambda: not any(s.participant.partitions for s in world.servers.values()))

    run(body)


def test_after_all_were_killed_the_last_to_go_decides() -> None:
    async def body(world: World) -> None:
        await world.metadata["n1"].transact(put("x", 1))
        await world.kill("n1")
        await world.until(lambda: "n1" not in world.servers["n2"].members)
        await world.metadata["n2"].transact(put("x", 2))
        await world.kill("n2")
        await world.kill("n3")
        world.journals["n3"].saw_down.pop("n2", None)
        world.journals["n2"].saw_down.pop("n3", None)
        for node in NODES:
            world.make(node)
        world.board.link("n1", "n2")
        booting = [asyncio.create_task(world.servers[node].boot()) for node in NODES]
        await world.until(lambda: "n2" in world.servers["n1"].participant.peers)
        assert not any(task.done() for task in booting[:2])
        world.board.link_all()
        async with asyncio.timeout(5):
            await asyncio.gather(*booting)
        assert [priority(world, node, "x") for node in NODES] == [2, 2, 2]

    run(body)


def test_a_node_that_comes_back_after_a_partition_waits_for_those_that_went_on() -> None:
    """It saw them go, so it could load what it has; they dial it only when a net tick has passed,
    for their last dial hangs."""

    async def body(world: World) -> None:
        world.board.isolate("n3")
        await world.until(lambda: len(world.servers["n3"].members) == 1)
        await world.until(lambda: "n3" not in world.servers["n1"].members)
        await world.kill("n3")
        await world.metadata["n1"].transact(put("x", 1))
        assert list(world.journals["n3"].saw_down) == ["n1", "n2"]
        world.make("n3")
        net_tick_s = world.configs["n3"].net_tick_ms / 1000
        asyncio.get_running_loop().call_later(net_tick_s, world.board.link_all)
        async with asyncio.timeout(5):
            await world.servers["n3"].boot()
        assert list(world.servers["n3"].members) == ["n1", "n2", "n3"]
        assert priority(world, "n3", "x") == 1

    run(body)


def test_a_node_joins_only_when_it_is_linked_to_every_member() -> None:
    async def body(world: World) -> None:
        await world.kill("n3")
        await world.until(lambda: "n3" not in world.servers["n1"].members)
        world.make("n3")
        world.board.link("n1", "n3")
        request = Join(world.servers["n3"].me, ("n1",))
        runtime = world.board.runtimes["n3"]
        answer = await runtime.call(Name("n1", SERVER), request, timeout_ms=1000)
        assert answer == Failed("not_linked", "n2")
        booting = asyncio.create_task(world.servers["n3"].boot())
        world.board.link("n2", "n3")
        async with asyncio.timeout(5):
            await booting
        await world.until(lambda: all(len(s.members) == 3 for s in world.servers.values()))

    run(body)


def test_a_plain_read_may_be_stale_and_a_confirmed_one_is_refused_without_a_majority() -> None:
    async def body(world: World) -> None:
        await world.metadata["n1"].transact(put("x", 1))
        world.board.isolate("n1")
        await world.until(lambda: len(world.servers["n2"].members) == 2)
        await world.metadata["n2"].transact(put("x", 2), timeout_ms=3000)
        assert priority(world, "n1", "x") == 1
        with pytest.raises(MetadataUnavailable):
            await world.metadata["n1"].transact(
                lambda tx: tx.read("policy", "x"), confirmed=True, timeout_ms=100
            )
        row = await world.metadata["n3"].transact(
            lambda tx: tx.read("policy", "x"), confirmed=True, timeout_ms=3000
        )
        assert isinstance(row, PolicyRow) and row.priority == 2

    async def main() -> None:
        world = World("pause_minority")
        try:
            await world.boot()
            await body(world)
        finally:
            await world.close()

    asyncio.run(main())


class LosesAnswers:
    """Stands before a node's commits: does the first, or not, lets others write, and says that the
    leader was lost."""

    def __init__(self, world: World, node: str) -> None:
        self._commit = world.metadata[node]._commit
        self.is_done = True
        self.lost = 1
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        world.metadata[node]._commit = self  # type: ignore[method-assign, assignment]

    async def __call__(self, changes: tuple[Change, ...], deadline: float) -> Message:
        if self.lost == 0:
            return await self._commit(changes, deadline)
        self.lost -= 1
        if self.is_done:
            assert isinstance(await self._commit(changes, deadline), Committed)
        if self.meanwhile is not None:
            await self.meanwhile()
        return Failed("leader_lost")


def row_version(world: World, node: str, name: str) -> int:
    return world.metadata[node].version("policy", name)


@pytest.mark.parametrize("is_done", [True, False])
def test_a_write_whose_answer_was_lost_is_done_once(is_done: bool) -> None:
    async def body(world: World) -> None:
        await world.metadata["n2"].transact(put("x", 1))
        before = world.servers["n2"].tables.version
        answers = LosesAnswers(world, "n2")
        answers.is_done = is_done
        await world.metadata["n2"].transact(put("x", 2), once=True)
        assert [priority(world, node, "x") for node in NODES] == [2] * 3
        # The write, and if it was done the first time a commit that only confirms it.
        assert row_version(world, "n2", "x") == before + 1
        assert world.servers["n2"].tables.version == before + (2 if is_done else 1)

    run(body)


def test_a_delete_whose_answer_was_lost_is_done_once() -> None:
    async def body(world: World) -> None:
        await world.metadata["n2"].transact(put("x", 1))
        LosesAnswers(world, "n2").lost = 2
        await world.metadata["n2"].transact(lambda tx: tx.delete("policy", "x"), once=True)
        assert [priority(world, node, "x") for node in NODES] == [None] * 3

    run(body)


def test_a_write_whose_answer_was_lost_does_not_undo_what_others_wrote_since() -> None:
    async def body(world: World) -> None:
        answers = LosesAnswers(world, "n2")
        answers.meanwhile = lambda: world.metadata["n3"].transact(put("x", 3))
        with pytest.raises(MetadataUnavailable, match="others have written since"):
            await world.metadata["n2"].transact(put("x", 2), once=True)
        assert [priority(world, node, "x") for node in NODES] == [3] * 3

    run(body)
