"""Unmodified aio-pika against the listener. The flows themselves know only an address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.broker.rabbit.amqp.aio_pika_flows import FLOWS
from tests.broker.rabbit.amqp.pika_flows import Address
from tests.world.rabbit.node_thread import NodeThread

pytestmark = pytest.mark.local


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_flow(node: NodeThread, flow: Callable[[Address], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(flow(Address(node.host, node.port)))
    node.until(lambda world: world.listener.connection_count == 0)
