"""Members of consumer groups against a real broker's port, in virtual time, and what they record.

A name server that says one thing stands beside the broker: all its topics, and where it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec

from shalott.broker.rocket.config import parse_address
from shalott.broker.rocket.processor.delays import deliver_delayed
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode, response
from shalott.broker.rocket.remoting.route_data import BrokerData, QueueData, TopicRoute, encode_body
from shalott.broker.rocket.remoting.server import Caller, RemotingServer
from shalott.checkers.groups.group_rules import Group
from shalott.clients.rocketmq.consumption import Listener, MemberSettings, Membership
from shalott.clients.rocketmq.member import Member
from shalott.core.client import ClientRows
from shalott.core.memory_recording import MemoryRecorder
from shalott.core.message_body import encode_body as encode_value
from tests.world.clock.turns import until
from tests.world.clock.virtual import HOST
from tests.world.rocket.broker import World, in_world

T = TypeVar("T")
SETTINGS = MemberSettings(
    heartbeat_ms=1000,
    rebalance_ms=1000,
    persist_ms=500,
    lock_ms=5000,
    route_poll_ms=1000,
    pull_wait_ms=1000,
    suspend_ms=200,
    parallel=4,
    retry_level=1,
)


class Groups:
    """Members of one run's groups, their rows and the broker they talk to."""

    def __init__(self, world: World, name_server: str) -> None:
        loop = asyncio.get_running_loop()
        self.world = world
        self.name_server = name_server
        self.recorder = MemoryRecorder(lambda: int(loop.time() * 1e9), lambda: 0)
        self.listener = Listener(
            seed=1, process_ms=10, slow_ms=1000, slow=0, later=0, suspend=0, poison=0
        )
        self.members: list[Member] = []

    async def make_topic(self, name: str, queues: int) -> None:
        ext = {"topic": name, "readQueueNums": queues, "writeQueueNums": queues}
        await self.world.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)

    def join(self, group: Group, settings: MemberSettings = SETTINGS) -> Member:
        member = Member(
            Membership(
                name=f"{group.name}-{len(self.members)}",
                group=group,
                settings=settings,
                name_server=self.name_server,
                dial=parse_address,
                listener=self.listener,
                rows=ClientRows(self.recorder, 0, "n1"),
            )
        )
        self.members.append(member)
        return member

    async def send(self, value: int, topic: str = "t", queue: int = 0, tag: str = "") -> None:
        properties = f"TAGS\x01{tag}\x02" if tag else ""
        body = encode_value(value, 12)
        await self.world.send(body, topic, queue, properties=properties)

    def rows(self, f: str = "") -> list[dict[str, Any]]:
        """What was recorded, ``extra`` as an object."""
        found: list[dict[str, Any]] = self.recorder.history().ops.to_pylist()
        return [
            row | {"extra": msgspec.json.decode(row["extra"] or "{}")}
            for row in found
            if not f or row["f"] == f
        ]

    def delivered(self, **wanted: Any) -> list[int]:
        """Values, in the order in which their listener got them."""
        return [
            row["value"]
            for row in self.rows("deliver")
            if all(row["extra"].get(key) == value for key, value in wanted.items())
        ]

    def owners(self) -> dict[str, str]:
        """The member that has each queue now, by key."""
        open_rows = [row for row in self.rows("assignment") if row["complete_ns"] is None]
        return {row["key"]: row["extra"]["member"] for row in open_rows}

    async def until(self, condition: Callable[[], object]) -> None:
        """Let the loop's time, which is virtual, pass until it is so."""
        await until(condition, step_s=0.05, within_s=60)

    def committed(self, group: str, topic: str = "t", queue: int = 0) -> int | None:
        return self.world.broker.tables.offset(group, topic, queue)


def with_groups(
    test: Callable[[Groups], Coroutine[Any, Any, T]], topics: Mapping[str, int] | None = None
) -> T:
    """A test's body with a broker that has these topics, by default "t" with two queues."""

    async def body(world: World) -> T:
        def route(request: Command, caller: Caller) -> Command:
            config = world.broker.tables.topics.get(request.ext["topic"])
            if config is None:
                return response(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
            name = world.broker.config.broker_name
            place = BrokerData(cluster="c", broker_name=name, broker_addrs={0: world.address})
            queues = QueueData(
                broker_name=name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
            )
            found = TopicRoute(queue_datas=[queues], broker_datas=[place])
            return response(ResponseCode.SUCCESS, body=encode_body(found))

        server = RemotingServer({RequestCode.GET_ROUTEINFO_BY_TOPIC: route}, host=HOST, port=0)
        await server.start()
        groups = Groups(world, f"{HOST}:{server.port}")
        delays = asyncio.create_task(deliver_delayed(world.broker))
        try:
            for name, queues in (topics or {"t": 2}).items():
                await groups.make_topic(name, queues)
            return await test(groups)
        finally:
            for member in groups.members:
                await member.end("closed")
            delays.cancel()
            await server.stop()

    return in_world(body)
