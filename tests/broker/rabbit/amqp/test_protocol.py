"""The conversation frame by frame: handshakes, heartbeats, closes, what no client should send."""

from __future__ import annotations

import struct
from typing import Any

import pamqp.frame
import pytest
from pamqp import body, commands, encode, header, heartbeat

from shalott.broker.base.errors import ConfigError
from shalott.broker.rabbit.amqp import connection as connection_module
from shalott.broker.rabbit.amqp.listener import Listener
from tests.broker.rabbit.amqp.pika_flows import Address
from tests.world.rabbit.node_thread import NodeThread
from tests.world.rabbit.raw_client import PROTOCOL_HEADER, RawClient, opened, raw

pytestmark = pytest.mark.local


@pytest.fixture
def address(node: NodeThread) -> Address:
    return Address(node.host, node.port)


def frame_bytes(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([end])


def expect_close(client: RawClient, code: int, text: str = "") -> commands.Connection.Close:
    close = client.expect(commands.Connection.Close)
    assert close.reply_code == code, close.reply_text
    assert text in close.reply_text
    client.send(0, commands.Connection.CloseOk())
    assert client.at_end()
    return close


def assert_lives(address: Address) -> None:
    with opened(address) as client:
        client.declare("alive", exclusive=True)


# -- handshake -------------------------------------------------------------------------------------


def test_wrong_protocol_header_is_answered_with_ours(address: Address) -> None:
    with raw(address) as client:
        client.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        assert client.receive_bytes(8) == PROTOCOL_HEADER
        assert client.at_end()
    assert_lives(address)


def test_start_offers_what_the_node_can_do(address: Address) -> None:
    with raw(address) as client:
        client.send_bytes(PROTOCOL_HEADER)
        start = client.expect(commands.Connection.Start)
        assert start.mechanisms == "PLAIN AMQPLAIN"
        assert start.locales == "en_US"
        capabilities = start.server_properties["capabilities"]
        assert isinstance(capabilities, dict)
        for name in ("publisher_confirms", "basic.nack", "consumer_cancel_notify"):
            assert capabilities[name] is True


def test_amqplain(address: Address) -> None:
    table = encode.field_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:]
    with raw(address) as client:
        client.send_bytes(PROTOCOL_HEADER)
        client.expect(commands.Connection.Start)
        response = table.decode("latin-1")
        client.send(0, commands.Connection.StartOk(mechanism="AMQPLAIN", response=response))
        tune = client.expect(commands.Connection.Tune)
        assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


def test_refused_login_is_told_only_to_those_who_understand(address: Address) -> None:
    for told in (True, False):
        with raw(address) as client:
            client.send_bytes(PROTOCOL_HEADER)
            client.expect(commands.Connection.Start)
            properties: dict[str, Any] = {"capabilities": {"authentication_failure_close": told}}
            start_ok = commands.Connection.StartOk(properties, "PLAIN", "\0guest\0wrong")
            client.send(0, start_ok)
            if told:
                expect_close(client, 403, "Login was refused using authentication mechanism PLAIN.")
            else:
                assert client.at_end()


@pytest.mark.parametrize("mechanism", ["EXTERNAL", ""])
def test_unknown_mechanism_is_503(address: Address, mechanism: str) -> None:
    with raw(address) as client:
        client.send_bytes(PROTOCOL_HEADER)
        client.expect(commands.Connection.Start)
        client.send(0, commands.Connection.StartOk(mechanism=mechanism))
        expect_close(client, 503, "unknown authentication mechanism")


@pytest.mark.parametrize("limits", [(0, 100), (2047, 1 << 20), (5000, 131072)])
def test_limits_that_cannot_be_are_530(address: Address, limits: tuple[int, int]) -> None:
    with raw(address) as client:
        client.send_bytes(PROTOCOL_HEADER)
        client.expect(commands.Connection.Start)
        client.send(0, commands.Connection.StartOk(response="\0guest\0guest"))
        client.expect(commands.Connection.Tune)
        client.send(0, commands.Connection.TuneOk(*limits, 0))
        expect_close(client, 530)


def test_out_of_turn_during_the_handshake_is_503(address: Address) -> None:
    with raw(address) as client:
        client.send_bytes(PROTOCOL_HEADER)
        client.expect(commands.Connection.Start)
        client.send(0, commands.Connection.Open())
        expect_close(client, 503, "expected Connection.StartOk, got Connection.Open")


def test_silent_client_is_dropped(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HANDSHAKE_TIMEOUT_MS", 50)
    with raw(address) as client:
        client.send_bytes(b"AMQP")
        assert client.at_end()


# -- frames that are none --------------------------------------------------------------------------

METHOD, HEADER, BODY = 1, 2, 3
PUBLISH = pamqp.frame.marshal(commands.Basic.Publish(routing_key="q"), 1)
ACK = commands.Basic.Ack.index.to_bytes(4, "big")
DECLARE = commands.Queue.Declare.index.to_bytes(4, "big")

BAD_BYTES: dict[str, tuple[bytes, int]] = {
    "unknown frame type": (frame_bytes(4, 1, b"x"), 501),
    "wrong end octet": (frame_bytes(METHOD, 1, ACK + bytes(9), end=0x00), 501),
    "over frame_max": (struct.pack(">BHI", BODY, 1, 131072 + 1), 501),
    "huge size": (struct.pack(">BHI", METHOD, 1, 0xFFFFFFFF), 501),
    "method too short": (frame_bytes(METHOD, 1, b"\x00\x0a"), 501),
    "heartbeat with a payload": (frame_bytes(8, 0, b"x"), 501),
    "heartbeat on a channel": (frame_bytes(8, 1, b""), 501),
    "unknown method": (frame_bytes(METHOD, 1, b"\x00\x3c\x00\xff"), 503),
    "truncated fields": (frame_bytes(METHOD, 1, ACK + bytes(3)), 502),
    "string past the end": (frame_bytes(METHOD, 1, DECLARE + b"\0\0\xffq"), 502),
    "not UTF-8": (frame_bytes(METHOD, 1, DECLARE + b"\0\0\x01\xff" + bytes(5)), 502),
    "table past the end": (frame_bytes(METHOD, 1, DECLARE + b"\0\0\0\0\0\0\xff\xff"), 502),
    "unknown field type": (frame_bytes(METHOD, 1, DECLARE + b"\0\0\0\0\0\0\0\3\1k?"), 502),
    "header without publish": (frame_bytes(HEADER, 1, b"\0\x3c" + bytes(12)), 505),
    "body without publish": (frame_bytes(BODY, 1, b"x"), 505),
    "method within content": (PUBLISH + PUBLISH, 505),
    "body within header": (PUBLISH + frame_bytes(BODY, 1, b"x"), 505),
    "header of another class": (PUBLISH + frame_bytes(HEADER, 1, b"\0\x32" + bytes(12)), 505),
    "header too short": (PUBLISH + frame_bytes(HEADER, 1, b"\0\x3c"), 501),
    "body too long": (
        PUBLISH
        + pamqp.frame.marshal(header.ContentHeader(body_size=1), 1)
        + frame_bytes(BODY, 1, b"xx"),
        501,
    ),
    "malformed properties": (
        PUBLISH + frame_bytes(HEADER, 1, b"\0\x3c" + bytes(10) + b"\xff\xfe"),
        502,
    ),
    "channel not open": (pamqp.frame.marshal(commands.Basic.Ack(1), 7), 504),
    "content on a channel not open": (frame_bytes(BODY, 7, b"x"), 504),
    "channel open twice": (pamqp.frame.marshal(commands.Channel.Open(), 1), 504),
    "channel over channel_max": (pamqp.frame.marshal(commands.Channel.Open(), 3000), 530),
    "channel method on 0": (pamqp.frame.marshal(commands.Basic.Ack(1), 0), 503),
    "content on 0": (frame_bytes(BODY, 0, b"x"), 504),
    "connection method on 1": (pamqp.frame.marshal(commands.Connection.Open(), 1), 503),
    "a server's method": (pamqp.frame.marshal(commands.Basic.QosOk(), 1), 503),
    "second open": (pamqp.frame.marshal(commands.Connection.Open(), 0), 503),
    "immediate": (
        pamqp.frame.marshal(commands.Basic.Publish(immediate=True), 1)
        + pamqp.frame.marshal(header.ContentHeader(), 1),
        540,
    ),
    "flow off": (pamqp.frame.marshal(commands.Channel.Flow(False), 1), 540),
    "recover without requeue": (pamqp.frame.marshal(commands.Basic.Recover(False), 1), 540),
}


def deep_table(levels: int) -> bytes:
    table = encode.field_table({})
    for _ in range(levels):
        inner = b"\x01kF" + table
        table = len(inner).to_bytes(4, "big") + inner
    return table


BAD_BYTES["table nested too deep"] = (
    frame_bytes(METHOD, 1, DECLARE + b"\0\0\1q\0" + deep_table(100)),
    502,
)
BAD_BYTES["table nested absurdly deep"] = (
    frame_bytes(METHOD, 1, DECLARE + b"\0\0\1q\0" + deep_table(15000)),
    502,
)


@pytest.mark.parametrize("name", BAD_BYTES)
def test_bad_bytes_close_the_connection_and_the_node_lives(address: Address, name: str) -> None:
    data, code = BAD_BYTES[name]
    with opened(address) as client:
        client.send_bytes(data)
        close = client.expect(commands.Connection.Close)
        assert close.reply_code == code, close.reply_text
        assert len(close.reply_text) > 20
        client.close()
    assert_lives(address)


def test_close_names_the_method_that_failed(address: Address) -> None:
    with opened(address) as client:
        client.send(1, commands.Basic.Qos(prefetch_size=1))
        close = expect_close(client, 540)
        assert (close.class_id, close.method_id) == (60, 10)
    with opened(address) as client:
        client.send(1, commands.Basic.Ack(9))
        channel_close = client.expect(commands.Channel.Close, 1)
        assert (channel_close.class_id, channel_close.method_id) == (60, 80)


def test_client_that_never_answers_close_is_cut_off(
    address: Address, node: NodeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "CLOSE_TIMEOUT_MS", 50)
    with opened(address) as client:
        client.send(1, commands.Basic.Qos(prefetch_size=1))
        client.expect(commands.Connection.Close)
        node.until(lambda world: world.listener.connection_count == 0)


def test_oversized_message_closes_only_the_channel(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shalott.broker.rabbit.amqp.wire.MAX_MESSAGE_BYTES", 10)
    with opened(address) as client:
        client.publish("q", b"x" * 11)
        close = client.expect(commands.Channel.Close, 1)
        assert close.reply_code == 406
        assert close.reply_text.endswith("message size 11 is larger than configured max size 10")
        client.send(1, commands.Channel.CloseOk())
        client.open_channel()


def test_update_secret_is_accepted(address: Address) -> None:
    with opened(address) as client:
        client.send(0, commands.Connection.UpdateSecret("new", "the old one expires"))
        client.expect(commands.Connection.UpdateSecretOk)
        client.declare("alive", exclusive=True)


# -- channel close ---------------------------------------------------------------------------------


def fail_channel(client: RawClient) -> None:
    client.send(1, commands.Queue.Declare(queue="absent", passive=True))
    assert client.expect(commands.Channel.Close, 1).reply_code == 404


def test_frames_on_a_failed_channel_are_discarded_until_close_ok(address: Address) -> None:
    with opened(address) as client:
        fail_channel(client)
        client.publish("q", b"ignored")
        client.send(1, commands.Queue.Declare(queue="never"))
        client.send(1, commands.Channel.CloseOk())
        client.open_channel()
        client.send(1, commands.Queue.Declare(queue="never", passive=True))
        assert client.expect(commands.Channel.Close, 1).reply_code == 404


def test_closes_that_cross(address: Address) -> None:
    with opened(address) as client:
        fail_channel(client)
        client.send(1, commands.Channel.Close(0, "", 0, 0))
        client.expect(commands.Channel.CloseOk, 1)
        client.send(1, commands.Channel.CloseOk())
        client.open_channel()


def test_reopening_after_crossing_closes_without_close_ok(address: Address) -> None:
    with opened(address) as client:
        fail_channel(client)
        client.send(1, commands.Channel.Close(0, "", 0, 0))
        client.expect(commands.Channel.CloseOk, 1)
        client.open_channel()


def test_connection_close_is_answered_after_exclusive_queues_are_gone(
    address: Address, node: NodeThread
) -> None:
    with opened(address) as client:
        client.declare("mine", exclusive=True)
        client.send(0, commands.Connection.Close(200, "", 0, 0))
        client.expect(commands.Connection.CloseOk)
        assert node.do(lambda world: world.queues.lookup("/", "mine")) is None


@pytest.mark.parametrize("deaf", [False, True])
def test_closed_connection_is_the_clients_to_end(
    address: Address, node: NodeThread, monkeypatch: pytest.MonkeyPatch, deaf: bool
) -> None:
    monkeypatch.setattr(connection_module, "GOODBYE_S", 0.2 if deaf else 30)
    with opened(address) as client:
        client.send(0, commands.Connection.Close(200, "", 0, 0))
        client.expect(commands.Connection.CloseOk)
        if deaf:
            assert client.at_end()
        else:
            client.send(1, commands.Basic.Ack(7))  # what comes late is no reason for a reset
    node.until(lambda world: world.listener.connection_count == 0, timeout_s=5)


def test_close_ok_comes_behind_all_that_was_not_read(
    address: Address, node: NodeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the sockets hold is on its way when the client closes."""
    monkeypatch.setattr(connection_module, "CHANNEL_GRACE_MS", 1)
    monkeypatch.setattr("shalott.broker.rabbit.amqp.client_socket.CLOSE_TIMEOUT_MS", 1)
    with opened(address) as client:
        client.declare("q")
        client.send(1, commands.Confirm.Select())
        client.expect(commands.Confirm.SelectOk, 1)
        for _ in range(150):
            client.publish("q", b"x" * 100_000)
        client.send(1, commands.Basic.Consume(queue="q", no_ack=True))
        while not isinstance(client.receive()[1], commands.Basic.ConsumeOk):
            pass  # confirms
        client.send(0, commands.Connection.Close(200, "", 0, 0))
        node.until(lambda world: not any(each.channels for each in world.listener.connections()))
        assert_lives(address)  # the node had time for all else
        while not isinstance(client.receive()[1], commands.Connection.CloseOk):
            pass


def test_queues_hear_what_went_to_the_socket(address: Address, node: NodeThread) -> None:
    with opened(address) as client:
        client.declare("q")
        client.send(1, commands.Basic.Consume(queue="q", no_ack=True))
        client.expect(commands.Basic.ConsumeOk, 1)
        for _ in range(120):
            client.publish("q", b"x")
        for _ in range(120):
            client.expect_content(commands.Basic.Deliver)
        node.until(lambda world: world.queue("q").written == 100)


def test_lost_connection_returns_messages_and_exclusive_queues(
    address: Address, node: NodeThread
) -> None:
    with opened(address) as client:
        client.declare("shared")
        client.declare("mine", exclusive=True)
        client.publish("shared", b"1")
        client.send(1, commands.Basic.Get(queue="shared"))
        client.expect_content(commands.Basic.GetOk)
    node.until(lambda world: world.queues.lookup("/", "mine") is None)
    node.until(lambda world: [item.redelivered for item in world.queue("shared").ready] == [True])


# -- heartbeats ------------------------------------------------------------------------------------


def test_heartbeats_are_sent_when_there_is_nothing_else(address: Address) -> None:
    with opened(address, heartbeat_s=1) as client:
        _, frame = client.receive()
        assert isinstance(frame, heartbeat.Heartbeat)


def test_client_that_falls_silent_is_dropped(address: Address) -> None:
    with opened(address, heartbeat_s=1) as client:
        beats = 0
        with pytest.raises((EOFError, ConnectionResetError)):
            while True:
                client.receive()
                beats += 1
        assert beats >= 2
    assert_lives(address)


def test_client_that_sends_heartbeats_stays(address: Address) -> None:
    with opened(address, heartbeat_s=1) as client:
        for _ in range(6):  # three intervals' worth of the node's own heartbeats
            _, frame = client.receive()
            assert isinstance(frame, heartbeat.Heartbeat)
            client.send(0, heartbeat.Heartbeat())
        client.declare("still.here", exclusive=True)


# -- shutdown --------------------------------------------------------------------------------------


def test_stop_closes_clients_with_320_and_start_listens_again(
    address: Address, node: NodeThread
) -> None:
    def stopped(client: RawClient) -> None:
        close = client.expect(commands.Connection.Close)
        assert (close.reply_code, close.reply_text[:17]) == (320, "CONNECTION_FORCED")
        client.send(0, commands.Connection.CloseOk())

    with opened(address) as first, opened(address) as second:
        assert node.do(lambda world: world.listener.connection_count) == 2
        infos = node.do(lambda world: world.listener.connections())
        assert [(info.user, info.state, info.channels) for info in infos] == [
            ("guest", "running", 1)
        ] * 2
        stopping = node.begin(node.world.listener.stop())
        stopped(first)
        stopped(second)
        stopping.result(10)
        assert node.do(lambda world: world.listener.connection_count) == 0
    with pytest.raises(ConnectionRefusedError):
        RawClient(address)
    node.run(node.world.listener.start())
    assert_lives(address)


def test_port_in_use_is_one_clear_sentence(node: NodeThread) -> None:
    async def start() -> None:
        await Listener(node.world.services, host=node.host, port=node.port).start()

    with pytest.raises(ConfigError, match=f"cannot listen for AMQP on 127.0.0.1:{node.port}"):
        node.run(start())


def test_slow_reader_holds_back_only_itself(address: Address, node: NodeThread) -> None:
    """The node stops writing to a client that doesn't read, and goes on with the others."""
    size, count = 100_000, 200
    with opened(address) as slow, opened(address) as other:
        other.declare("much")
        slow.send(1, commands.Basic.Consume(queue="much", no_ack=True))
        slow.expect(commands.Basic.ConsumeOk, 1)
        for _ in range(count):
            other.send(1, commands.Basic.Publish(routing_key="much"))
            other.send(1, header.ContentHeader(body_size=size), body.ContentBody(bytes(size)))
        other.declare("quick")
        for _ in range(count):
            _, data = slow.expect_content(commands.Basic.Deliver)
            assert len(data) == size
