"""Unmodified pika and aio-pika against real nodes: one alone, and one of three whose queues have
their masters elsewhere. All that a client can do at the one it can do through the other."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.broker.rabbit.amqp import aio_pika_flows, pika_flows, pika_topology_flows
from tests.broker.rabbit.amqp.pika_flows import Address, connected, queue
from tests.broker.rabbit.amqp.test_protocol import BAD_BYTES, expect_close
from tests.world.processes.rabbit import NodeProcess, running_nodes
from tests.world.rabbit.raw_client import opened

pytestmark = pytest.mark.local

PIKA_FLOWS = (*pika_flows.FLOWS, *pika_topology_flows.FLOWS)
CLIENTS_GONE_S = 20.0
# More queues than any flow has at once, so that n1 stays the node with the fewest masters.
BALLAST = 8


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_nodes(tmp_path_factory.mktemp("single")) as (node,):
        yield node


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NodeProcess]]:
    """Three nodes; the flows' queues are mirrored on all, with their masters on n1."""
    with running_nodes(tmp_path_factory.mktemp("cluster"), ("n1", "n2", "n3")) as nodes:
        for node in nodes[1:]:
            with connected(node.address) as connection:
                for number in range(BALLAST):
                    connection.channel().queue_declare(f"ballast.{node.name}.{number}")
        definition = {
            "ha-mode": "all",
            "ha-sync-mode": "automatic",
            "queue-master-locator": "min-masters",
        }
        policy = {"pattern": "^(pika|aio)[.]", "definition": definition, "apply-to": "queues"}
        asyncio.run(nodes[0].management.put("/api/policies/%2F/flows", policy))
        yield nodes


@pytest.fixture(params=["alone", "n2-of-three"])
def node(request: pytest.FixtureRequest) -> Iterator[NodeProcess]:
    """The node that the clients use. When a flow has ended it has no clients left."""
    if request.param == "alone":
        used: NodeProcess = request.getfixturevalue("single")
    else:
        used = request.getfixturevalue("cluster")[1]
    yield used
    await_no_clients(used)


def await_no_clients(node: NodeProcess) -> None:
    deadline = time.monotonic() + CLIENTS_GONE_S
    while connections := asyncio.run(node.management.get("/api/connections")):
        assert time.monotonic() < deadline, connections
        time.sleep(0.02)


@pytest.mark.parametrize("flow", PIKA_FLOWS, ids=lambda flow: flow.__name__)
def test_pika(node: NodeProcess, flow: Callable[[Address], None]) -> None:
    flow(node.address)


@pytest.mark.parametrize("flow", aio_pika_flows.FLOWS, ids=lambda flow: flow.__name__)
def test_aio_pika(node: NodeProcess, flow: Callable[[Address], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(flow(node.address))


def test_the_flows_through_n2_are_served_by_a_master_on_n1(cluster: list[NodeProcess]) -> None:
    """What the tests above rest on: without it they would prove nothing about proxying."""
    names = ["pika.where1", "pika.where2", "pika.where3"]
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(queue(cluster[1].address, name))
        listed = asyncio.run(cluster[2].management.get("/api/queues"))
        masters = {each["name"]: each["node"] for each in listed}
        assert [masters[name] for name in names] == ["n1"] * 3
        where = {each["name"]: sorted(each["slave_nodes"]) for each in listed}
        assert [where[name] for name in names] == [["n2", "n3"]] * 3


def test_what_no_client_should_send_ends_its_connection_and_nothing_else(
    node: NodeProcess,
) -> None:
    def offend(case: tuple[bytes, int]) -> str:
        data, code = case
        with opened(node.address) as client:
            client.send_bytes(data)
            return str(expect_close(client, code).reply_text)

    assert node.process is not None
    with (
        queue(node.address, "pika.bystander") as bystander,
        ThreadPoolExecutor(len(BAD_BYTES)) as offenders,
    ):
        texts = dict(zip(BAD_BYTES, offenders.map(offend, BAD_BYTES.values()), strict=True))
        assert all(texts.values()), texts
        assert node.process.poll() is None
        pika_flows.publish(bystander, "pika.bystander", b"unharmed")
        assert pika_flows.drain(bystander, "pika.bystander") == [b"unharmed"]
    assert "Traceback" not in node.last_words()
