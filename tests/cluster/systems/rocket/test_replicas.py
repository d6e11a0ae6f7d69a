"""Logs are compared over the management API: equal ones, the first byte that differs, and nodes
that lag, can't be read or don't answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest

from shalott.broker.base.errors import StorageError
from shalott.broker.base.http_api import Request, Response
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import StoreConfig
from shalott.broker.rocket.node import log_digest
from shalott.broker.rocket.node.management import respond
from shalott.broker.rocket.node.node import RocketNode
from shalott.broker.rocket.processor.tables import Tables
from shalott.broker.rocket.processor.topics import SubscriptionGroup
from shalott.broker.rocket.remoting.route_data import TopicConfig
from shalott.checkers.checker import Result
from shalott.checkers.runs.convergence import Convergence
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.systems.rocket.replicas import STEP_TIMEOUT_S, record_logs
from shalott.core.errors import Indefinite
from shalott.core.history import History
from shalott.core.memory_recording import MemoryRecorder
from tests.world.clock.turns import passes
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.rocket.stores import env_of, message, opened

pytestmark = pytest.mark.unit

CONFIG = StoreConfig(segment_bytes=1 << 16, queue_segment_units=1000)
COUNT = 900  # messages: two files and a bit, many blocks


@dataclass
class Brokers:
    """What the harness can ask: real stores behind the real management handlers."""

    loop: SimLoop
    stores: dict[str, MessageStore] = field(default_factory=dict)
    tables: dict[str, Tables] = field(default_factory=dict)
    silent: dict[str, None] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def add(
        self, name: str, bodies: Mapping[int, str] | None = None, *, count: int = COUNT
    ) -> MessageStore:
        """``bodies``: messages that are others than everybody's."""
        store = await opened(self.loop, MemoryDisk(), config=CONFIG)
        self.stores[name] = store
        others, end = bodies or {}, 0
        for number in range(count):
            end = store.append([message(others.get(number, f"{number:0100}"))]).end
        await store.log.written(end)
        await store.dispatched(end)
        return store

    async def observe(self, node: str) -> Mapping[str, Any]:
        if node not in self.stores:
            return {"claims": []}
        is_master = node == "n1"
        names = [name for name in self.stores if name != "n1"] if is_master else []
        role = "master" if is_master else "slave"
        return {"claims": [{"group": "g", "role": role, "epoch": 3, "synchronised": names}]}

    async def get(self, node: str, path: str) -> Any:
        if node in self.silent:
            raise Indefinite("no answer")
        self.asked.append(node)
        answer = await self.respond(node, path)
        assert answer.status == 200, answer.body
        return msgspec.json.decode(answer.body)

    async def respond(self, node: str, path: str) -> Response:
        address, _, query = path.partition("?")
        pairs = dict(pair.split("=", 1) for pair in query.split("&") if pair)
        asked = Request("GET", tuple(address.strip("/").split("/")), pairs)
        own = _Node(self.stores.get(node), self.tables.get(node))
        return await respond(cast("RocketNode", own), asked)


@dataclass
class _Node:
    """As much of a node as the digests' handlers look at."""

    store: MessageStore | None
    tables: Tables | None = None
    phase: str = "running"


Tell = Callable[[Brokers], Awaitable[None]]


def in_world(tell: Tell) -> None:
    loop = SimLoop()

    async def body() -> None:
        brokers = Brokers(loop)
        try:
            await tell(brokers)
        finally:
            for store in brokers.stores.values():
                await store.close()

    loop.run(body(), SimProcess("machine"))


async def compared(brokers: Brokers) -> tuple[History, Result]:
    recorder = MemoryRecorder(lambda: brokers.loop.now_ns, lambda: brokers.loop.now_ns)
    await record_logs(
        recorder,
        ("n1", "n2", "n3"),
        brokers.observe,
        brokers.get,
        have_tables=bool(brokers.tables),
    )
    recorder.close()
    history = recorder.history()
    return history, Convergence().check(history)


@pytest.mark.parametrize("slaves_retries", [3, 4])
def test_tables_are_compared_but_not_their_versions(slaves_retries: int) -> None:
    async def tell(brokers: Brokers) -> None:
        for node in ("n1", "n2"):
            await brokers.add(node, count=3)
            env = env_of(brokers.loop, MemoryDisk())
            own = brokers.tables[node] = await Tables.open(env, own=[])
            own.put_topic(TopicConfig(topic_name="t"))
        slave = brokers.tables["n2"]
        slave.put_topic(TopicConfig(topic_name="t"))  # its version counts on
        brokers.tables["n1"].put_group(SubscriptionGroup(group_name="g", retry_max_times=3))
        slave.put_group(SubscriptionGroup(group_name="g", retry_max_times=slaves_retries))
        _, result = await compared(brokers)
        assert result.valid is (slaves_retries == 3)
        assert result.counts["replica-count"] == 6
        assert all("g tables" in anomaly.summary for anomaly in result.anomalies)

    in_world(tell)


def test_equal_logs_have_converged() -> None:
    async def tell(brokers: Brokers) -> None:
        for node in ("n1", "n2", "n3"):
            await brokers.add(node)
        history, result = await compared(brokers)
        assert result.valid is True and not result.notes
        assert result.counts == {
            "diverged-count": 0, "replica-count": 6, "synchronised-count": 6,
        }  # fmt: skip
        depths = [msgspec.json.decode(extra)["depth"] for extra in history.ops["extra"].to_pylist()]
        assert depths == 3 * [brokers.stores["n1"].log.max_offset, COUNT]

    in_world(tell)


def test_brokers_that_removed_old_files_are_compared_from_where_the_last_begins() -> None:
    async def tell(brokers: Brokers) -> None:
        for node in ("n1", "n2", "n3"):
            await brokers.add(node)
        trimmed = brokers.stores["n2"]
        await trimmed.log.flushed(trimmed.log.max_offset)
        await trimmed.remove_before(CONFIG.segment_bytes)
        assert trimmed.log.min_offset == CONFIG.segment_bytes
        _, result = await compared(brokers)
        assert result.valid is True and not result.notes
        assert result.counts["synchronised-count"] == 6

    in_world(tell)


@pytest.mark.explore
@pytest.mark.parametrize("number", [0, 1, 450, COUNT - 1])
def test_the_first_byte_that_differs_is_found(number: int) -> None:
    """KB-RKT-A's: as long, whole messages, of another's tenure. The checksum of the body is the
    first thing that differs."""

    async def tell(brokers: Brokers) -> None:
        await brokers.add("n1")
        await brokers.add("n2")
        await brokers.add("n3", {number: "x" + f"{number:0100}"[1:]})
        history, result = await compared(brokers)
        at = await _first_difference(brokers.stores["n1"], brokers.stores["n3"])
        log, queues = result.anomalies
        assert result.valid is False and log.kind == queues.kind == "diverged"
        held = brokers.stores["n1"].log.max_offset
        assert log.summary == (
            f"n3 holds other bytes than the {held} that n1 holds of g; the first byte that differs"
            f" is at {at}"
        )
        assert log.detail["differs_at"] == at and log.detail["nodes"] == ["n1", "n3"]
        nodes = history.ops["node"].to_pylist()
        assert [nodes[index] for index in log.operations] == ["n1", "n3"]

    in_world(tell)


async def _first_difference(one: MessageStore, other: MessageStore) -> int:
    """By reading everything."""
    contents = []
    for store in (one, other):
        data = b""
        while piece := await store.log.read(len(data), 1 << 20):
            data += piece
        contents.append(data)
    return next(at for at, (a, b) in enumerate(zip(*contents, strict=True)) if a != b)


def test_who_lags_is_waited_for() -> None:
    async def tell(brokers: Brokers) -> None:
        await brokers.add("n1")
        behind = await brokers.add("n2", count=COUNT - 3)

        async def catch_up() -> None:
            await passes(STEP_TIMEOUT_S / 2)
            log, at = brokers.stores["n1"].log, behind.log.max_offset
            behind.append_raw(at, await log.read(at, log.max_offset - at))

        catching_up = asyncio.create_task(catch_up())
        _, result = await compared(brokers)
        assert catching_up.done() and result.valid is True

    in_world(tell)


def test_who_still_lags_has_diverged_without_a_byte_that_differs() -> None:
    async def tell(brokers: Brokers) -> None:
        await brokers.add("n1")
        await brokers.add("n2", count=COUNT - 3)
        _, result = await compared(brokers)
        log, queues = result.anomalies
        assert log.detail["differs_at"] is None and log.detail["is_prefix"]
        assert queues.summary.startswith(f"n2 holds {COUNT - 3} messages, not the {COUNT} that n1")

    in_world(tell)


def test_a_node_that_does_not_answer_leaves_it_open() -> None:
    async def tell(brokers: Brokers) -> None:
        await brokers.add("n1")
        await brokers.add("n2")
        brokers.silent["n2"] = None
        _, result = await compared(brokers)
        assert result.valid == "unknown"
        assert result.notes == ("n2 did not say what it holds: no answer.",)

    in_world(tell)


def test_a_log_that_cannot_be_read_has_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(brokers: Brokers) -> None:
        await brokers.add("n1")
        await brokers.add("n2")

        async def rotten(offset: int, size: int) -> bytes:
            raise StorageError("the segment is damaged")

        monkeypatch.setattr(brokers.stores["n2"].log, "read", rotten)
        _, result = await compared(brokers)
        log = result.anomalies[0]
        assert "is unreadable on n2: the segment is damaged" in log.summary
        assert result.valid is False and not log.detail["is_prefix"]

    in_world(tell)


# -- the node's side -------------------------------------------------------------------------------


def test_an_answer_is_bounded_and_says_where_to_go_on() -> None:
    async def tell(brokers: Brokers) -> None:
        store = await brokers.add("n1", count=10)
        path = "/api/shalott/log-digest?block=1&from=5"
        answer = await brokers.get("n1", path)
        assert len(answer["digests"]) == log_digest.BLOCKS_MAX
        assert (answer["from"], answer["next"]) == (5, 5 + log_digest.BLOCKS_MAX)
        assert answer["max_offset"] == answer["readable_offset"] == store.log.max_offset
        rest = await brokers.get("n1", f"{path}&to=300")
        assert rest["next"] == 5 + log_digest.BLOCKS_MAX
        beyond = await brokers.get("n1", f"/api/shalott/log-digest?to={1 << 40}")
        assert beyond["next"] == store.log.max_offset

    in_world(tell)


def test_blocks_have_the_same_borders_wherever_one_begins() -> None:
    async def tell(brokers: Brokers) -> None:
        await brokers.add("n1", count=100)
        whole = await brokers.get("n1", "/api/shalott/log-digest?block=1000")
        later = await brokers.get("n1", "/api/shalott/log-digest?block=1000&from=3000")
        assert later["digests"] == whole["digests"][3:] and len(later["digests"]) > 3

    in_world(tell)


@pytest.mark.parametrize(
    ("query", "status"),
    [("from=-1", 400), ("to=x", 400), ("block=0", 400), (f"block={2 << 20}", 400), ("", 503)],
)
def test_what_cannot_be_answered_is_refused(query: str, status: int) -> None:
    async def tell(brokers: Brokers) -> None:
        await brokers.add("n1", count=1)
        node = "n2" if status == 503 else "n1"  # n2 has no broker
        answer = await brokers.respond(node, f"/api/shalott/log-digest?{query}")
        assert answer.status == status

    in_world(tell)
