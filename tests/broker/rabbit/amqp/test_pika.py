"""Unmodified pika against the listener. The flows themselves know only an address."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker.rabbit.amqp import pika_flows, pika_topology_flows
from tests.broker.rabbit.amqp.pika_flows import Address
from tests.world.rabbit.node_thread import NodeThread

pytestmark = pytest.mark.local

FLOWS = (*pika_flows.FLOWS, *pika_topology_flows.FLOWS)


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_flow(node: NodeThread, flow: Callable[[Address], None]) -> None:
    flow(Address(node.host, node.port))
    node.until(lambda world: world.listener.connection_count == 0)
