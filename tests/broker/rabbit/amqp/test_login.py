"""Who may come in, from where, how often, and to which topics."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from pamqp import commands

from shalott.broker.rabbit.amqp.login import is_loopback
from shalott.broker.rabbit.metadata.parameters import LIMITS, VHOST_LIMITS, parameter_key
from shalott.broker.rabbit.metadata.permissions import TOPIC_TABLE, topic_key
from shalott.broker.rabbit.metadata.records import ParameterRow, TopicPermissionRow, UserRow
from shalott.broker.rabbit.metadata.users import TABLE, hash_password
from tests.broker.rabbit.amqp.pika_flows import Address
from tests.world.rabbit.node_thread import NodeThread
from tests.world.rabbit.raw_client import PROTOCOL_HEADER, RawClient, opened, raw

pytestmark = pytest.mark.local

START_OK = commands.Connection.StartOk(
    {"capabilities": {"authentication_failure_close": True}}, "PLAIN", "\0guest\0guest"
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def limited(node: NodeThread, **limits: int) -> None:
    named = {name.replace("_", "-"): value for name, value in limits.items()}
    row = UserRow(name="guest", password_hash=hash_password("guest", b"salt"), limits=named)
    node.do(lambda world: world.metadata.put(TABLE, "guest", row))


def refused(address: Address) -> str:
    with raw(address) as client:
        client.send_bytes(PROTOCOL_HEADER)
        client.expect(commands.Connection.Start)
        client.send(0, START_OK)
        client.expect(commands.Connection.Tune)
        client.send(0, commands.Connection.TuneOk(10, 131072, 0), commands.Connection.Open("/"))
        close = client.expect(commands.Connection.Close)
        assert close.reply_code == 530
        return str(close.reply_text)


# -- where from ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("::ffff:127.0.0.1", True)]
    + [("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("fe80::1", False), ("n1", False)],
)
def test_what_this_machine_is(host: str, own: bool) -> None:
    assert is_loopback(host) is own


@pytest.mark.parametrize("users", [("guest",), ()])
def test_guest_comes_from_this_machine_only(users: tuple[str, ...]) -> None:
    """By another address of the machine it would be one from elsewhere."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing, but chooses an address
        host = probe.getsockname()[0]
    if is_loopback(host):
        pytest.skip("this machine has no other address")
    with (
        NodeThread(host=host, loopback_users=users) as node,
        raw(Address(node.host, node.port)) as client,
    ):
        client.send_bytes(PROTOCOL_HEADER)
        client.expect(commands.Connection.Start)
        client.send(0, START_OK)
        if users:
            text = client.expect(commands.Connection.Close).reply_text
            assert text.startswith("ACCESS_REFUSED - Login was refused using")
        else:
            client.expect(commands.Connection.Tune)


@pytest.mark.parametrize("listens", ["::", "::1"])
def test_ipv6(listens: str) -> None:
    with contextlib.ExitStack() as stack:
        try:
            node = stack.enter_context(NodeThread(host=listens, port=free_port()))
        except OSError:
            pytest.skip("this machine has no IPv6")
        if listens == "::":
            stack.enter_context(opened(Address("127.0.0.1", node.port)))
        client = stack.enter_context(opened(Address("::1", node.port)))
        client.declare("q", exclusive=True)
        info = node.do(lambda world: world.listener.connections())[-1]
        assert info.name.startswith("[::1]:") and f" -> [::1]:{node.port}" in info.name


# -- how often -------------------------------------------------------------------------------------


@pytest.fixture
def address(node: NodeThread) -> Iterator[Address]:
    yield Address(node.host, node.port)


def test_a_user_has_so_many_connections(node: NodeThread, address: Address) -> None:
    limited(node, max_connections=2)
    with opened(address), opened(address):
        assert refused(address) == (
            "NOT_ALLOWED - connection refused for user 'guest': user connection limit (2) is"
            " reached"
        )
    node.until(lambda world: world.listener.connection_count == 0)
    with opened(address):
        pass


def test_a_vhost_has_so_many_connections(node: NodeThread, address: Address) -> None:
    value = {"max-connections": 1}
    row = ParameterRow(component=VHOST_LIMITS, vhost="/", name=LIMITS, value=value)
    key = parameter_key(VHOST_LIMITS, LIMITS, "/")
    node.do(lambda world: world.metadata.put("parameter", key, row))
    with opened(address):
        assert refused(address) == (
            "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) is"
            " reached"
        )


def test_a_limit_of_none_at_all(node: NodeThread, address: Address) -> None:
    limited(node, max_connections=0)
    assert refused(address).endswith("user connection limit (0) is reached")
    limited(node, max_connections=-1)
    with opened(address):
        pass


def test_a_user_has_so_many_channels(node: NodeThread, address: Address) -> None:
    limited(node, max_channels=3)
    with opened(address) as one, opened(address) as other:
        one.open_channel(2)
        other.send(2, commands.Channel.Open())
        close = other.expect(commands.Connection.Close)
        assert close.reply_code == 530
        assert close.reply_text == (
            "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum"
            " allowed user limit of (3)"
        )
        one.declare("q", exclusive=True)


# -- topics ----------------------------------------------------------------------------------------


@pytest.fixture
def topics(node: NodeThread, client: RawClient) -> RawClient:
    row = TopicPermissionRow(
        user="guest", vhost="/", exchange="amq.topic", write=r"^{username}\.", read="^news"
    )
    key = topic_key("/", "guest", "amq.topic")
    node.do(lambda world: world.metadata.put(TOPIC_TABLE, key, row))
    client.declare("q")
    return client


def expect_refused(client: RawClient, key: str, exchange: str = "amq.topic") -> None:
    close = client.expect(commands.Channel.Close, 1)
    assert close.reply_text == (
        f"ACCESS_REFUSED - access to topic '{key}' in exchange '{exchange}' in vhost '/' refused"
        " for user 'guest'"
    )


def test_topics_that_a_user_may_write(topics: RawClient) -> None:
    topics.publish("guest.x", b"", exchange="amq.topic")
    topics.publish("other.x", b"", exchange="amq.direct")  # no topics
    topics.publish("other.x", b"", exchange="amq.topic")
    expect_refused(topics, "other.x")


@pytest.mark.parametrize("binds", [commands.Queue.Bind, commands.Queue.Unbind])
def test_topics_that_a_user_may_read(topics: RawClient, binds: type) -> None:
    allowed = binds(queue="q", exchange="amq.topic", routing_key="news.#")
    topics.send(1, allowed)
    topics.receive()
    topics.send(1, binds(queue="q", exchange="amq.topic", routing_key="#"))
    expect_refused(topics, "#")
