"""A node on loopback with nothing behind its AMQP layer but test doubles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.rabbit.amqp.pika_flows import Address
from tests.world.rabbit.node_thread import NodeThread
from tests.world.rabbit.raw_client import RawClient, opened


@pytest.fixture
def node() -> Iterator[NodeThread]:
    with NodeThread() as running:
        yield running


@pytest.fixture
def client(node: NodeThread) -> Iterator[RawClient]:
    with opened(Address(node.host, node.port)) as opened_client:
        yield opened_client
