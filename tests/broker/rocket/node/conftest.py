"""RocketMQ itself beside a broker of ours, once for all tests here that ask both: a broker that
nobody asks still takes a third of a core."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import msgspec
import pytest

from shalott.broker.rocket.config import RocketConfig, RocketPeer
from shalott.cluster.local.backend import HOST, port_of, reserve_port
from tests.world.processes.rocket import rocket_nodes
from tests.world.rocket import original
from tests.world.rocket.original import JAVA, OURS, Both, topics_of


@pytest.fixture(scope="package")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """An original's name server and master, and a master of ours that registers there too."""
    home = tmp_path_factory.mktemp("original")
    with contextlib.ExitStack() as stack:
        ns, ha = (
            port_of(stack.enter_context(contextlib.closing(reserve_port()))) for _ in range(2)
        )
        port = stack.enter_context(original.held_broker_ports())
        name_server = f"{HOST}:{ns}"
        master = original.broker(home / "broker", port, ha, name_server)
        stack.enter_context(original.originals(original.name_server(home / "ns", ns), master))
        peer = RocketPeer(
            name="java-ns",
            services=("nameserver",),
            advertised={"nameserver": name_server},
            dial={"nameserver": name_server},
        )

        def registered_there(config: RocketConfig) -> RocketConfig:
            return msgspec.structs.replace(config, peers=(peer,), services=("broker",))

        [node] = stack.enter_context(rocket_nodes(home, change=registered_there))
        node.start()
        node.await_running()
        brokers = {JAVA: f"{HOST}:{port}", OURS: node.address("remoting")}
        fresh = {name: asyncio.run(topics_of(address)) for name, address in brokers.items()}
        yield Both(name_server, brokers, master, f"{HOST}:{ha}", peer, fresh)
