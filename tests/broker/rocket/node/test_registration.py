"""What a broker tells name servers, and what a slave copies: on the real wire, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shalott.broker.rocket.config import AddressBook, BrokerConfig, RocketConfig, RocketPeer
from shalott.broker.rocket.nameserver.server import NameServer
from shalott.broker.rocket.node.registration import Registration
from shalott.broker.rocket.node.slave_sync import SlaveSync
from shalott.broker.rocket.remoting.command import Command, RequestCode
from shalott.broker.rocket.remoting.route_data import TopicConfig
from tests.world.clock.turns import passes, until
from tests.world.clock.virtual import HOST, env
from tests.world.rocket.broker import World, in_world, world

pytestmark = pytest.mark.unit

INTERVAL_MS = 30_000


def config_of(world: World, ports: tuple[int, ...]) -> RocketConfig:
    """Of n1, with a name server on each port: its own, n2's, n3's."""
    peers = tuple(
        RocketPeer(
            name=f"n{2 + place}",
            services=("nameserver",),
            advertised={"nameserver": f"{HOST}:{port}", "remoting": world.address},
            dial={"nameserver": f"{HOST}:{port}", "remoting": world.address},
        )
        for place, port in enumerate(ports[1:])
    )
    return RocketConfig(
        system="master-slave",
        name="n1",
        data_dir="unused",
        services=("broker", "nameserver"),
        ports={"nameserver": ports[0], "remoting": 10911},
        advertised={"nameserver": f"{HOST}:{ports[0]}", "remoting": world.broker.address},
        peers=peers,
        bind_host=HOST,
        broker=BrokerConfig(register_interval_ms=INTERVAL_MS),
    )


def registration_of(world: World, config: RocketConfig) -> Registration:
    return Registration(config, AddressBook(config), world.broker, world.client)


def test_name_servers_hear_of_every_change_at_once_also_when_one_is_dead() -> None:
    async def test(broker: World) -> None:
        config = config_of(broker, (9876, 9999))  # no server listens on the second
        server = NameServer(env(), config)
        await server.start()
        registration = registration_of(broker, config)
        running = asyncio.create_task(registration.run())
        routes = server.routes
        await until(lambda: routes.master("shalott") == broker.broker.address)
        assert routes.route("young") is None

        broker.broker.tables.put_topic(TopicConfig(topic_name="young"))
        registration.wake()
        await until(lambda: routes.route("young") is not None)

        broker.replica.broker_id, broker.replica.role = 2, "slave"
        registration.wake()
        await until(lambda: routes.master("shalott") is None)
        assert routes.live_addresses() == [broker.broker.address]

        broker.replica.broker_id, broker.replica.role = -1, "none"
        registration.wake()
        await until(lambda: routes.live_addresses() == [])

        broker.replica.broker_id, broker.replica.role = 0, "master"
        await passes(INTERVAL_MS / 1000 + 1)  # nobody wakes it: the interval does
        assert routes.master("shalott") == broker.broker.address
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await registration.unregister()
        assert routes.live_addresses() == []
        await server.stop()

    in_world(test)


def test_a_registration_bears_the_epoch() -> None:
    async def test(broker: World) -> None:
        config = config_of(broker, (9876,))
        server = NameServer(env(), config)
        await server.start()
        broker.replica.epoch = 7
        registration = registration_of(broker, config)
        running = asyncio.create_task(registration.run())
        await until(lambda: server.routes.live_addresses())
        version = server.routes.data_version(("shalott", broker.broker.address))
        assert version is not None and version.state_version == 7
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.stop()

    in_world(test)


class Reelecting:
    """A client whose every answer comes when its broker follows another epoch already."""

    def __init__(self, master: World, slave: World) -> None:
        self._master = master
        self._slave = slave
        self.asked: list[int] = []

    async def invoke(self, address: str, command: Command, timeout_ms: float) -> Command:
        answer = await self._master.client.invoke(self._master.address, command, timeout_ms)
        self.asked.append(command.code)
        self._slave.replica.epoch += 1
        return answer


async def sync_for_a_while(master: World, slave: World, client: Any) -> list[None]:
    told: list[None] = []
    sync = SlaveSync(
        slave.broker,
        AddressBook(config_of(master, (9876, 9877))),
        client,
        interval_ms=10_000,
        topics_changed=lambda: told.append(None),
    )
    running = asyncio.create_task(sync.run())
    await passes(15)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return told


def test_a_slave_copies_its_masters_tables_but_nothing_of_a_master_that_it_left() -> None:
    async def test(master: World) -> None:
        await master.send(topic="new")
        asked = {"consumerGroup": "g", "topic": "new", "queueId": 0, "commitOffset": 1}
        await master.ask(RequestCode.UPDATE_CONSUMER_OFFSET, asked)
        async with world() as slave:
            slave.replica.role, slave.replica.master = "slave", "n2"
            late = Reelecting(master, slave)
            assert await sync_for_a_while(master, slave, late) == []
            assert late.asked and "new" not in slave.broker.tables.topics

            assert len(await sync_for_a_while(master, slave, master.client)) == 1
            assert "new" in slave.broker.tables.topics
            assert slave.broker.tables.offset("g", "new", 0) == 1

            await master.send(topic="newer")
            slave.replica.role = "master"
            assert await sync_for_a_while(master, slave, master.client) == []
            assert "newer" not in slave.broker.tables.topics

    in_world(test)
