"""Stores that change hands between RocketMQ itself and our broker, killed in between: every message
is there, what was deleted stays away, and what waits comes when it is due.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shalott.broker.rocket.config import RocketConfig, parse_address
from shalott.broker.rocket.remoting.command import RequestCode
from shalott.broker.rocket.remoting.headers import RouteOfTopic, SendMessageV2
from shalott.clients.rocketmq.rocket_client import Queue, Refused, RocketClient, RocketError
from shalott.clients.rocketmq.stored_messages import encode_properties
from shalott.cluster.local.backend import HOST, port_of, reserve_port
from tests.world.clock.turns import answered
from tests.world.processes.rocket import rocket_nodes
from tests.world.rocket import original
from tests.world.rocket.original import JAVA

pytestmark = [pytest.mark.local, pytest.mark.nightly("originals start six times")]

COUNT = 60
DELAYS = {"level": {"DELAY": "4"}, "timer": {"TIMER_DELAY_SEC": "30"}}  # both 30 s
SLACK_MS = 8000  # of an original that starts meanwhile


@contextlib.contextmanager
def java_on(home: Path, **more: object) -> Iterator[str]:
    """An original on the store in ``home``; it is killed."""
    with contextlib.ExitStack() as stack:
        ha = port_of(stack.enter_context(contextlib.closing(reserve_port())))
        port = stack.enter_context(original.held_broker_ports())
        stack.enter_context(original.originals(original.broker(home, port, ha, "", **more)))
        yield f"{HOST}:{port}"


@contextlib.contextmanager
def ours_on(home: Path, store: Path) -> Iterator[str]:
    """A broker of ours on the store; it is killed."""

    def there(config: RocketConfig) -> RocketConfig:
        kept = msgspec.structs.replace(config.store, preallocate=True)
        broker = msgspec.structs.replace(config.broker, broker_name=JAVA, cluster_name=JAVA)
        return msgspec.structs.replace(config, data_dir=str(store), store=kept, broker=broker)

    with rocket_nodes(home, change=there) as [node]:
        node.start()
        node.await_running()
        yield node.address("remoting")


async def fill(address: str, first: int) -> dict[str, int]:
    """Messages, a topic that is deleted, and some that wait; returns when those are due."""
    client = RocketClient([], dial=parse_address, timeout_ms=10_000)
    due = {}
    try:
        for topic in ("kept", "gone", "waits"):
            await client.create_topic(address, topic, 1)
        for number in range(first, first + COUNT):
            for topic in ("kept", "gone"):
                queue = Queue(topic, JAVA, 0)
                await client.send(address, queue, b"%d" % number, unique_key=f"K{number}")
        deletion = await client.ask(
            address, RequestCode.DELETE_TOPIC_IN_BROKER, RouteOfTopic(topic="gone")
        )
        assert deletion.code == 0, deletion.remark
        for key, properties in DELAYS.items():
            header = SendMessageV2(
                producer_group="p",
                topic="waits",
                queue_id=0,
                born_timestamp=int(time.time() * 1000),
                properties=encode_properties({"UNIQ_KEY": f"{key}{first}", **properties}),
            )
            due[f"{key}{first}"] = int(time.time() * 1000) + 30_000
            answer = await client.ask(address, RequestCode.SEND_MESSAGE_V2, header, body=b"m")
            assert answer.code == 0, answer.remark
    finally:
        await client.close()
    return due


async def all_of(client: RocketClient, address: str, topic: str) -> list[Any]:
    found: list[Any] = []
    with contextlib.suppress(RocketError, Refused):
        while True:
            got = await client.pull(address, Queue(topic, JAVA, 0), len(found), wait_ms=100)
            if not got.messages:
                break
            found += got.messages
    return found


async def verify(address: str, count: int, due: dict[str, int]) -> None:
    """A timer may come twice, once from each; none comes early, late, or never."""
    client = RocketClient([], dial=parse_address, timeout_ms=10_000)
    try:

        async def are_there() -> bool:
            came = {one.properties["UNIQ_KEY"] for one in await all_of(client, address, "waits")}
            return due.keys() <= came and len(await all_of(client, address, "kept")) >= count

        await answered(are_there, "everything is there", step_s=0.3, within_s=60)
        kept = await all_of(client, address, "kept")
        assert [one.body for one in kept] == [b"%d" % number for number in range(count)]
        with pytest.raises(Refused):
            await client.pull(address, Queue("gone", JAVA, 0), 0, wait_ms=100)
        at: dict[str, int] = {}
        for one in await all_of(client, address, "waits"):
            at.setdefault(one.properties["UNIQ_KEY"], one.stored_ms)
        late = {key: at[key] - due[key] for key in due}
        assert all(-1000 <= ms <= SLACK_MS for ms in late.values()), late
    finally:
        await client.close()


def test_ours_takes_over_an_originals_store_and_gives_it_back(tmp_path: Path) -> None:
    home, store = tmp_path / "java", tmp_path / "java" / "store"
    with java_on(home) as address:
        due = asyncio.run(fill(address, 0))
        time.sleep(6)  # it writes its tables every five seconds
    with ours_on(tmp_path / "ours", store) as address:
        asyncio.run(verify(address, COUNT, due))
        due = asyncio.run(fill(address, COUNT))
    with java_on(home) as address:
        asyncio.run(verify(address, 2 * COUNT, due))


def test_an_original_takes_over_a_store_of_ours(tmp_path: Path) -> None:
    home, store = tmp_path / "java", tmp_path / "java" / "store"
    store.mkdir(parents=True)
    with ours_on(tmp_path / "ours", store) as address:
        due = asyncio.run(fill(address, 0))
        time.sleep(6)
    with java_on(home) as address:
        asyncio.run(verify(address, COUNT, due))
