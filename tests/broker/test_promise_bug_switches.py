"""What a broker promises with a confirm or a write, broken by a switch, and kept without it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from shalott.broker.base.env import Env, SystemClock, seeded_rng
from shalott.broker.rabbit.amqp.alarms import Alarms
from shalott.broker.rabbit.amqp.publishing import Publisher
from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.amqp.verdicts import Verdicts
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.messages import SERVER, Commit, Committed, Conflicted
from shalott.broker.rabbit.metadata.records import PolicyRow, QueueRow
from shalott.broker.rabbit.metadata.tables import Change
from shalott.broker.rabbit.node.application import Application, Host
from shalott.broker.rabbit.node.node import MESSAGES
from shalott.broker.rabbit.processes.messages import Codec, Name, Pid
from shalott.broker.rabbit.processes.runtime import Runtime
from shalott.broker.rabbit.storage import lazy_sync
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from shalott.broker.rabbit.storage.lazy_sync import LazySyncDisk
from shalott.broker.rabbit.storage.memory import MemoryMonitor
from tests.world.clock.turns import turns
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.env import NoEvents
from tests.world.rabbit.metadata import World

pytestmark = pytest.mark.unit

both = pytest.mark.parametrize("on", [True, False], ids=["switched on", "off"])

MASTER, SYNCED, BEHIND = Pid("a", 1, 1), Pid("b", 1, 1), Pid("c", 1, 1)


def env_with(*bugs: str, disk: Any = None) -> Env:
    return Env("a", 1, SystemClock(), seeded_rng(1, 1), disk, NoEvents(), bugs=bugs)


# -- a channel's confirms --------------------------------------------------------------------------


def one_publish(*bugs: str) -> Verdicts:
    """A publish to a master, a synchronised mirror and one that is behind."""
    services = SimpleNamespace(
        env=env_with(*bugs),
        runtime=SimpleNamespace(send=lambda to, message: None),
        metadata=SimpleNamespace(needs_majority=False),
    )
    context: Any = SimpleNamespace(
        services=services, pid=Pid("d", 1, 1), watch=lambda process: None
    )
    replies: Any = None
    verdicts = Verdicts(context)
    publisher = Publisher(context, replies, verdicts)
    row = QueueRow(
        vhost="/",
        name="q",
        durable=True,
        auto_delete=False,
        exclusive_owner=None,
        arguments={},
        pid=MASTER,
        slave_pids=(SYNCED, BEHIND),
        sync_slave_pids=(SYNCED,),
    )
    publisher._send_to_queues([row], 1, Content(1, "", "q", b"", b"body", True))
    return verdicts


def verdict(verdicts: Verdicts) -> str:
    if verdicts._unconfirmed.take_nacks():
        return "nack"
    return "ack" if verdicts._unconfirmed.take_acks() else "undecided"


@both
@pytest.mark.parametrize("end", ["noconnection", "noproc", "shutdown", "dropped"])
def test_kb_rmq_24_a_publish_that_no_process_has_is_confirmed(on: bool, end: str) -> None:
    verdicts = one_publish(*(["KB-RMQ-24"] if on else []))
    for process in (MASTER, SYNCED):
        verdicts.on_down(process, end)
    assert verdict(verdicts) == "undecided"
    verdicts.on_down(BEHIND, end)
    assert verdict(verdicts) == ("ack" if on else "nack")


@both
def test_kb_rmq_24_is_about_ends_that_look_benign(on: bool) -> None:
    for end, expected in (("crash: KeyError: 1", "nack"), ("normal", "ack")):
        verdicts = one_publish(*(["KB-RMQ-24"] if on else []))
        for process in (MASTER, SYNCED, BEHIND):
            verdicts.on_down(process, end)
        assert verdict(verdicts) == expected


@both
def test_our_01_a_mirror_that_is_behind_vouches_for_a_dead_master(on: bool) -> None:
    verdicts = one_publish(*(["OUR-01"] if on else []))
    verdicts._unconfirmed.confirm(BEHIND, [1])
    for process in (MASTER, SYNCED):
        verdicts.on_down(process, "noconnection")
    assert verdict(verdicts) == ("ack" if on else "nack")


# -- the disk --------------------------------------------------------------------------------------


def persistent(number: int) -> Content:
    return Content(number, "", "q", b"", b"body", True)


@both
def test_our_03_what_is_confirmed_survives_a_kill_but_not_a_power_loss(on: bool) -> None:
    async def body() -> None:
        disk = MemoryDisk()
        queue = await BackingQueue.create(LazySyncDisk(disk) if on else disk, "q")
        await queue.index.wait_durable(queue.publish(persistent(1)))
        killed = await BackingQueue.recover(disk.after_kill(), "q")
        dark = await BackingQueue.recover(disk.after_power_loss(lambda: False), "q")
        assert (killed.messages.depth, dark.messages.depth) == (1, 0 if on else 1)
        await queue.close()
        closed = await BackingQueue.recover(disk.after_power_loss(lambda: False), "q")
        assert closed.messages.depth == 1

    asyncio.run(body())


def test_our_03_the_sync_comes_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        disk, synced = MemoryDisk(), asyncio.Event()
        queue = await BackingQueue.create(LazySyncDisk(disk), "q")
        disk.fault = lambda operation, path: synced.set() if operation == "sync" else None
        await queue.index.wait_durable(queue.publish(persistent(1)))
        await asyncio.wait_for(synced.wait(), 5)
        await turns()
        dark = await BackingQueue.recover(disk.after_power_loss(lambda: False), "q")
        assert dark.messages.depth == 1
        await queue.abandon()

    monkeypatch.setattr(lazy_sync, "SYNC_EVERY_MS", 1)
    asyncio.run(body())


@both
def test_our_03_queues_get_the_lazy_disk_only_if_it_is_on(on: bool) -> None:
    async def body() -> None:
        disk: Any = MemoryDisk()
        env = env_with(*(["OUR-03"] if on else []), disk=disk)
        runtime = Runtime("a", 1, Codec(MESSAGES))
        host = Host(
            env,
            NodeConfig(name="a", data_dir=""),
            runtime,
            None,  # type: ignore[arg-type]
            MemoryMonitor(env.clock),
            Alarms(),
        )
        application = Application(host, may_confirm=lambda: True, fail=lambda reason: None)
        assert isinstance(application._context.storage._disk, LazySyncDisk) is on

    asyncio.run(body())


# -- the tables ------------------------------------------------------------------------------------


@both
def test_our_04_a_change_to_a_row_that_has_moved_on_is_written_blindly(on: bool) -> None:
    def row(priority: int) -> PolicyRow:
        return PolicyRow(vhost="/", name="p", pattern="^", definition={}, priority=priority)

    async def body() -> None:
        world = World(bugs=("OUR-04",) if on else ())
        try:
            await world.boot()
            member = world.servers["n2"].me
            leader = world.servers["n2"].participant.leader
            assert leader is not None
            runtime = world.board.runtimes["n2"]

            async def commit(priority: int) -> object:
                stale = Commit(member, (Change("policy", "p", 0, row(priority)),))
                return await runtime.call(Name(leader.node, SERVER), stale, timeout_ms=1000)

            assert isinstance(await commit(1), Committed)
            assert isinstance(await commit(2), Committed if on else Conflicted)
            for server in world.servers.values():
                assert server.tables.read("policy", "p") == row(2 if on else 1)
        finally:
            await world.close()

    asyncio.run(body())
