"""A delivery that a client holds for too long closes its channel."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.broker.rabbit.amqp.pika_flows import Address
from tests.world.rabbit.node_thread import NodeThread
from tests.world.rabbit.raw_client import opened

pytestmark = pytest.mark.local


@pytest.mark.parametrize("by", ["consumer", "get"])
def test_a_delivery_that_is_held_for_too_long(by: str) -> None:
    with (
        NodeThread(consumer_timeout_ms=50) as node,
        opened(Address(node.host, node.port)) as client,
    ):
        client.open_channel(2)  # holds nothing
        client.declare("q")
        client.publish("q", b"x")
        if by == "get":
            client.send(1, commands.Basic.Get(queue="q"))
            client.expect_content(commands.Basic.GetOk)
        else:
            client.send(1, commands.Basic.Consume(queue="q"))
            client.expect(commands.Basic.ConsumeOk, 1)
            client.expect_content(commands.Basic.Deliver)
        close = client.expect(commands.Channel.Close, 1)
        assert close.reply_text == (
            "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value"
            " used: 50 ms. This timeout value can be configured, see consumers doc guide to learn"
            " more"
        )
        node.until(lambda world: world.queue("q").ready[0].redelivered)
        client.declare("other", channel=2)
