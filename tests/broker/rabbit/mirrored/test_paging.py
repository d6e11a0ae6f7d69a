"""Queues whose messages are on disk, through mirrors, synchronisations, promotions and limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shalott.broker.rabbit.amqp import queue_protocol as qp
from shalott.broker.rabbit.storage import pager as pager_module
from shalott.broker.rabbit.storage import read_ahead as read_ahead_module
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from tests.world.clock.turns import passes
from tests.world.rabbit.queues import Cluster, TestNode, run, until

pytestmark = pytest.mark.unit

LAZY = {"ha-mode": "all", "queue-mode": "lazy"}
BODIES = [f"message {number}".encode() for number in range(40)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So few messages as a test has go through all states."""
    monkeypatch.setattr(pager_module, "WRITE_COUNT", 4)
    monkeypatch.setattr(pager_module, "SEGMENT_COUNT", 3)
    monkeypatch.setattr(read_ahead_module, "READ_COUNT", 2)
    yield


def held_by(node: TestNode) -> BackingQueue:
    process = node.process("q")
    assert process is not None and process.role is not None
    return process.role.queue


async def paged(*nodes: TestNode) -> None:
    """Until what may leave memory has left it, so much of it that there is a delta."""
    for node in nodes:
        await until(lambda node=node: not held_by(node).pager.is_working, "nothing moves")
        assert held_by(node).messages.in_delta > len(BODIES) // 2


async def filled(cluster: Cluster, definition: dict[str, Any], **arguments: Any) -> None:
    await cluster.set_policy(definition)
    await cluster["a"].declare("q", arguments=arguments)
    if "ha-mode" in definition:
        await cluster.mirrored_on("q", "".join(n for n in cluster.names if n != "a"))
    await cluster["a"].channel().publish_all("q", BODIES)


def test_a_lazy_queue_hands_out_in_order_what_is_on_disk() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await filled(cluster, LAZY)
            await paged(cluster["a"], cluster["b"])
            assert await cluster["b"].channel().drain("q") == BODIES
            await until(lambda: not held_by(cluster["b"]).messages.depth, "the mirror follows")
            assert held_by(cluster["a"]).ram.bytes == 0

    run(scenario())


def test_a_promoted_mirror_has_what_it_had_on_disk() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await filled(cluster, LAZY)
            channel = cluster["b"].channel()
            got = [await channel.get("q") for _ in range(7)]
            await paged(cluster["a"], cluster["b"])
            channel.settle("q", [one.ack_id for one in got[:3] if one is not None])
            await passes(1)
            await cluster.kill("a")
            await until(lambda: cluster.master("q") == "b", "the mirror is promoted")
            assert await cluster["b"].channel().drain("q") == BODIES[3:]

    run(scenario())


def test_a_new_mirror_is_sent_what_is_on_disk() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await filled(cluster, {"queue-mode": "lazy"})
            channel = cluster["a"].channel()
            first = await channel.get("q")
            await paged(cluster["a"])
            await cluster.set_policy({**LAZY, "ha-sync-mode": "automatic", "ha-sync-batch-size": 7})
            await cluster.mirrored_on("q", "b")
            assert first is not None and held_by(cluster["b"]).messages.depth == len(BODIES)
            await paged(cluster["b"])
            await cluster.kill("a")
            await until(lambda: cluster.master("q") == "b", "the mirror is promoted")
            assert await cluster["b"].channel().drain("q") == BODIES

    run(scenario())


def test_a_purge_forgets_what_is_on_disk_everywhere_and_for_ever() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await filled(cluster, LAZY)
            await paged(cluster["a"], cluster["b"])
            channel = cluster["a"].channel()
            kept = await channel.get("q")
            assert kept is not None
            answer = await channel.ask("q", qp.Purge())
            assert answer == qp.Count(len(BODIES) - 1)
            await until(lambda: held_by(cluster["b"]).messages.depth == 1, "the mirror follows")
            await cluster.kill("b")
            for node in ("a",):
                queue = held_by(cluster[node])
                await queue.index.wait_durable(queue.index.mark)
            await cluster.kill("a")
            cluster.boot("a")
            await until(lambda: cluster.master("q") == "a", "recovered")
            assert await cluster["a"].channel().drain("q") == [BODIES[0]]

    run(scenario())


def test_a_policy_changes_the_mode_of_a_queue_that_holds_messages() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await filled(cluster, {"ha-mode": "all"})
            assert not held_by(cluster["a"]).messages.has_paged
            await cluster.set_policy(LAZY)
            await until(
                lambda: held_by(cluster["b"]).messages.in_delta > 0, "the mirror is lazy too"
            )
            await paged(cluster["a"], cluster["b"])
            await cluster.set_policy({"ha-mode": "all"})
            channel = cluster["a"].channel()
            await channel.publish_all("q", [b"last"])
            assert held_by(cluster["a"]).pager.traffic.held == 1
            assert await channel.drain("q") == [*BODIES, b"last"]

    run(scenario())


def test_dead_letters_have_the_bodies_that_were_on_disk() -> None:
    async def scenario() -> None:
        letters: list[tuple[bytes, str]] = []

        def dead_letters(row: Any) -> Any:
            def take(contents: Any, reason: str, exchange: str, key: str | None) -> None:
                letters.extend((content.body, reason) for content in contents)

            return take

        async with Cluster("a") as cluster:
            await cluster.kill("a")
            node = cluster.boot("a", supervisor=False)
            node.start_supervisor(dead_letters=dead_letters)
            await filled(cluster, {"queue-mode": "lazy", "dead-letter-exchange": "x"})
            await paged(node)
            channel = node.channel()
            rejected = await channel.get("q")
            assert rejected is not None
            channel.settle("q", [rejected.ack_id], "reject")
            await until(lambda: letters == [(BODIES[0], "rejected")], "rejected")
            more = {"max-length": 25}
            await cluster.set_policy({"queue-mode": "lazy", "dead-letter-exchange": "x", **more})
            await until(lambda: held_by(node).messages.ready == 25, "trimmed")
            assert letters[1:] == [(body, "maxlen") for body in BODIES[1:15]]
            assert await channel.drain("q") == BODIES[15:]

    run(scenario())


def test_a_consumer_is_given_what_is_on_disk_and_others_have_their_turn() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await filled(cluster, {}, **{"x-queue-mode": "lazy", "x-max-priority": 2})
            await paged(cluster["a"])
            channel = cluster["a"].channel()
            channel.publish("q", b"urgent", priority=2)
            consume = qp.Consume(channel.pid, "c", False, False, prefetch=0)
            await channel.ask("q", consume)
            await until(lambda: not held_by(cluster["a"]).messages.ready, "all were delivered")
            given = [each.content.body for each in channel.deliveries]
            assert given == [b"urgent", *BODIES]

    run(scenario())
