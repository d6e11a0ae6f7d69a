"""Known bugs of masters and their rows (KB-RMQ-01, 02, 08, 10, 11, 13), and of members that go on
beside their ring (06): each with its switch on, and the same moment with it off.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from shalott.broker.rabbit.gm.group import RecordDead, apply_change
from shalott.broker.rabbit.metadata.records import GroupRow, QueueRow
from shalott.broker.rabbit.mirrored.messages import StopProcess, UpdateMirroring
from shalott.broker.rabbit.queue_process import starting
from shalott.broker.rabbit.queue_process.process import QueueProcess
from shalott.broker.rabbit.replica.instructions import ProcessDeath
from tests.world.clock.latency import Latency
from tests.world.clock.turns import passes
from tests.world.rabbit.queues import Cluster, TestNode, run, until

pytestmark = pytest.mark.unit

MANUAL: dict[str, Any] = {"ha-mode": "all"}
AUTO: dict[str, Any] = {"ha-mode": "all", "ha-sync-mode": "automatic"}
BOTH = pytest.mark.parametrize("on", [True, False], ids=["on", "off"])

Crashes = list[tuple[str, str]]


def bodies(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(start, start + count)]


def watch(node: TestNode, crashes: Crashes) -> None:
    node.runtime.on_crash = lambda process, reason: crashes.append((node.name, reason))


async def mirrored_queue(cluster: Cluster, definition: dict[str, Any] = AUTO) -> Crashes:
    crashes: Crashes = []
    for node in cluster.nodes.values():
        watch(node, crashes)
    await cluster.set_policy(definition)
    await until(lambda: all(node.metadata.rows("policy") for node in cluster.nodes.values()))
    await cluster["a"].declare("q")
    await cluster.mirrored_on("q", cluster.names[1:], synchronised=True)
    return crashes


def process_of(cluster: Cluster, name: str) -> QueueProcess:
    process = cluster[name].process("q")
    assert process is not None
    return process


async def record_master(cluster: Cluster, old: str, new: str) -> None:
    """``new``'s mirror becomes the recorded master, as if a partition had brought this about."""
    row, pid = cluster[old].row("q"), process_of(cluster, new).pid
    assert row is not None
    rest = tuple(p for p in row.slave_pids if p != pid)
    changed = msgspec.structs.replace(row, pid=pid, slave_pids=rest, sync_slave_pids=())
    await cluster[new].metadata.transact(lambda tx: tx.write("queue", row.key, changed))
    await until(lambda: cluster[old].row("q") != row)


# -- KB-RMQ-01 -------------------------------------------------------------------------------------


@BOTH
def test_01_a_master_crashes_where_its_peers_supervisor_is_not_up(on: bool) -> None:
    async def scenario() -> None:
        bugs = ("KB-RMQ-01",) if on else ()
        async with Cluster("ab", bugs=bugs) as cluster:
            await mirrored_queue(cluster)
            await cluster["a"].channel().publish_all("q", bodies(5))
            await cluster.kill_all()
            crashes: Crashes = []
            cluster.boot("b", supervisor=False)
            watch(cluster.boot("a"), crashes)
            await until(lambda: len(crashes) == 6 if on else cluster["a"].role("q") == "master")
            await passes(0.1)
            assert len(crashes) == (6 if on else 0), "after five restarts it is left alone"
            assert all("NoProcess" in reason for _, reason in crashes)
            cluster["b"].start_supervisor()
            if on:  # an empty mirror finds its master dead, and rules
                await until(lambda: cluster.master("q") == "b")
                assert await cluster["b"].channel().drain("q") == []
            else:
                await cluster.mirrored_on("q", "b")
                assert await cluster["b"].channel().drain("q") == bodies(5)

    run(scenario())


# -- KB-RMQ-02 -------------------------------------------------------------------------------------


class Late:
    """Holds the third start of a's master between its look at the row and its write."""

    def __init__(self) -> None:
        self.starts = 0
        self.is_held = asyncio.Event()
        self.may_go = asyncio.Event()

    def __call__(self, site: str) -> bool:
        self.starts += site == "recover.late"
        return site == "recover.late" and self.starts == 3

    async def pause(self, duration_ms: float) -> None:
        self.is_held.set()
        await self.may_go.wait()


def states_of_row(cluster: Cluster) -> list[QueueRow]:
    """Every row of the queue that is stored from now on."""
    states: list[QueueRow] = []
    commit = cluster.store.commit

    def record(stored: Any, latency: Latency) -> int:
        states.extend(s.record for s in stored if s.table == "queue" and s.record is not None)
        return commit(stored, latency)

    cluster.store.commit = record  # type: ignore[method-assign, assignment]
    return states


@BOTH
def test_02_a_restarted_master_stores_the_row_that_it_saw_before_the_promotion(
    on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ten steps of seed 003; a is its A, b its B. Off: KB-RMQ-01 alone, as PR 2273 found it."""

    async def scenario() -> None:
        bugs = ("KB-RMQ-01", "KB-RMQ-02") if on else ("KB-RMQ-01",)
        async with Cluster("ab", bugs=bugs) as cluster:
            await mirrored_queue(cluster)
            await cluster["a"].channel().publish_all("q", bodies(5))
            late = Late()
            monkeypatch.setattr(starting, "pause_ms", late.pause)
            await cluster.kill_all()
            # T1, T2: b has its tables, and no supervisor yet.
            cluster.boot("b", supervisor=False)
            a = cluster.boot("a")
            object.__setattr__(a.env, "buggify", late)
            # T3, T4: M1 and M2 crash on adding their mirror; M3 has decided and not yet written.
            await asyncio.wait_for(late.is_held.wait(), 5)
            snapshot = a.row("q")
            # T5, T6: b's mirror finds the master dead, and is promoted.
            cluster["b"].start_supervisor()
            await until(lambda: cluster["b"].role("q") == "master")
            first = process_of(cluster, "b")
            ring = first.state.ring.gm
            assert snapshot is not None and ring is not None
            channel = cluster["b"].channel()
            await channel.publish_all("q", [b"told to b"])
            states = states_of_row(cluster)
            late.may_go.set()
            if not on:
                await until(lambda: cluster["a"].role("q") == "mirror")
                await until(lambda: cluster["a"].is_synchronised("q"))
                assert all(state.pid == first.pid for state in states)
                assert await channel.drain("q") == [b"told to b"]
                return
            # T7: M3 overwrites the row with its snapshot; S1's ring member is not in it.
            await until(lambda: states and states[0].pid != first.pid)
            assert states[0].pid is not None and states[0].pid.node == "a"
            assert states[0].gm_pids == snapshot.gm_pids
            # T8: a second process of the queue starts on b, beside the first.
            supervisor = cluster["b"].supervisor
            assert supervisor is not None
            await until(lambda: list(supervisor.children.keys.values()).count("q@/") == 2)
            assert first.pid in supervisor.children.keys
            # T9, T10: S1 hears the mirror of another master, ends, and stops all mirrors.
            await until(lambda: any(e.node == "b" for e in cluster.events_of("demoted")))
            await until(lambda: first.pid not in supervisor.children.keys)
            second = next(s for s in states if any(p.node == "b" for p in s.slave_pids))
            after = states[states.index(second) + 1 :]
            robbed = [s for s in after if s.pid == second.pid and not s.slave_pids]
            assert robbed and robbed[0].gm_pids == (), "the row of a master that lives"
            await until(lambda: cluster.master("q") == "a")
            assert b"told to b" not in await cluster["a"].channel().drain("q")

    run(scenario())


# -- KB-RMQ-08 -------------------------------------------------------------------------------------


@BOTH
def test_08_a_master_has_no_clause_for_another_one_that_is_recorded(on: bool) -> None:
    async def scenario() -> None:
        bugs = ("KB-RMQ-08",) if on else ()
        async with Cluster("abc", bugs=bugs) as cluster:
            crashes = await mirrored_queue(cluster)
            old = process_of(cluster, "a")
            await record_master(cluster, "a", "b")
            if on:
                await passes(0.05)
                assert process_of(cluster, "a") is old and old.role is not None
                await cluster.kill("c")
                await passes(0.2)
                old.shell.broadcast(
                    ProcessDeath()
                )  # the ring is lazy: a death is news with the traffic
                await until(lambda: crashes)
                assert crashes[0][0] == "a" and "case_clause in gm_deaths" in crashes[0][1]
            else:
                await until(lambda: cluster["a"].process("q") not in (None, old))
                await cluster.kill("c")
                await passes(0.2)
                assert crashes == []

    run(scenario())


# -- KB-RMQ-10 -------------------------------------------------------------------------------------


@BOTH
def test_10_a_member_crashes_when_it_buries_a_neighbour_of_a_group_that_is_gone(on: bool) -> None:
    async def scenario() -> None:
        bugs = ("KB-RMQ-10",) if on else ()
        async with Cluster("abc", bugs=bugs) as cluster:
            crashes = await mirrored_queue(cluster)
            await cluster["b"].channel().publish_all("q", bodies(5))
            await cluster["b"].metadata.transact(lambda tx: tx.delete("gm_group", "q@/"))
            await cluster.kill("c")
            if on:
                await until(lambda: crashes)
                assert all("badmatch: {error,not_found}" in reason for _, reason in crashes)
            await until(lambda: cluster.master("q") and len(cluster.mirrors("q")) == 1)
            assert bool(crashes) is on

    run(scenario())


# -- KB-RMQ-06 -------------------------------------------------------------------------------------


@BOTH
def test_06_a_member_that_was_recorded_dead_goes_on(on: bool) -> None:
    async def scenario() -> None:
        bugs = ("KB-RMQ-06",) if on else ()
        async with Cluster("abc", bugs=bugs) as cluster:
            crashes = await mirrored_queue(cluster)
            lost = process_of(cluster, "b")
            assert lost.state.ring.gm is not None
            dead = RecordDead(lost.state.ring.gm.member.id, by=None)

            def bury(tx: Any) -> None:
                group = tx.read("gm_group", "q@/")
                assert isinstance(group, GroupRow)
                tx.write("gm_group", "q@/", apply_change(dead, group))

            await cluster["c"].metadata.transact(bury)
            channel = cluster["a"].channel()
            for body in bodies(5):
                channel.publish("q", body)
            if on:
                # Nothing stops it, until it looks for its place in the ring, and finds none.
                await until(lambda: len(channel.confirmed) == 5)
                assert process_of(cluster, "b") is lost
                await cluster.kill("c")
                await until(lambda: crashes)
                assert crashes[0][0] == "b" and "KeyError" in crashes[0][1]
            else:
                await until(lambda: cluster["b"].process("q") not in (None, lost))
                await cluster.mirrored_on("q", "bc")
                await cluster.kill("c")
                await until(lambda: len(channel.confirmed) == 5)
                assert crashes == []

    run(scenario())


# -- KB-RMQ-11 -------------------------------------------------------------------------------------


@BOTH
def test_11_a_master_that_yields_to_another_deletes_the_queue(on: bool) -> None:
    async def scenario() -> None:
        bugs = ("KB-RMQ-11",) if on else ()
        async with Cluster("abc", bugs=bugs) as cluster:
            await mirrored_queue(cluster)
            await cluster["a"].channel().publish_all("q", bodies(5))
            old = process_of(cluster, "a")
            await record_master(cluster, "a", "b")
            await until(lambda: cluster["a"].process("q") is not old)
            if on:
                await until(lambda: all(not n.process("q") for n in cluster.nodes.values()))
                tables = [n.metadata for n in cluster.nodes.values()]
                assert all(t.read("queue", "q@/") is None for t in tables)
                assert all(t.read("durable_queue", "q@/") is None for t in tables)
            else:
                await until(lambda: cluster["a"].role("q") == "mirror")
                row = cluster["c"].row("q")
                assert row is not None and row.pid is not None and row.pid.node == "b"

    run(scenario())


# -- KB-RMQ-13 -------------------------------------------------------------------------------------


@BOTH
def test_13_a_mirror_that_outlives_its_masters_stop_blocks_the_next(on: bool) -> None:
    async def scenario() -> None:
        bugs = ("KB-RMQ-13",) if on else ()
        async with Cluster("ab", bugs=bugs) as cluster:
            crashes: Crashes = []
            await cluster.set_policy(MANUAL)
            await until(lambda: all(n.metadata.rows("policy") for n in cluster.nodes.values()))
            await cluster["a"].declare("q")
            await cluster["a"].channel().publish_all("q", bodies(5))
            await cluster.kill_process("b", "q")  # its successor begins empty: not synchronised
            await cluster.mirrored_on("q", "b", synchronised=False)
            await until(lambda: not cluster["b"].is_synchronised("q"))
            zombie = process_of(cluster, "b")
            stuck = asyncio.Event()

            async def never() -> None:
                await stuck.wait()

            assert zombie.role is not None
            zombie.role.queue.close = never  # type: ignore[method-assign]
            await cluster.stop("a")  # it waits for its mirror, in vain
            row = cluster["b"].row("q")
            assert row is not None and row.slave_pids == ()
            assert row.slave_pids_pending_shutdown == (() if on else (zombie.pid,))
            watch(cluster.boot("a"), crashes)
            await until(lambda: cluster["a"].role("q") == "master")
            if on:
                await passes(0.2)
                assert process_of(cluster, "b") is zombie
                assert cluster["b"].runtime.is_alive(zombie.pid)
            else:
                await until(lambda: cluster["b"].role("q") == "mirror")
                assert not cluster["b"].runtime.is_alive(zombie.pid)
            assert crashes == []

    run(scenario())


def test_stop_process_and_update_mirroring_reach_who_is_in_the_row() -> None:
    """What the switches of the displaced leave alone: who has its place is told of its row."""

    async def scenario() -> None:
        async with Cluster("ab", bugs=("KB-RMQ-06",)) as cluster:
            await mirrored_queue(cluster)
            mirror = process_of(cluster, "b")
            cluster["a"].runtime.send(mirror.pid, UpdateMirroring())
            await passes(0.02)
            assert process_of(cluster, "b") is mirror
            cluster["a"].runtime.send(mirror.pid, StopProcess("shutdown"))
            await until(lambda: cluster["b"].process("q") not in (None, mirror))

    run(scenario())
