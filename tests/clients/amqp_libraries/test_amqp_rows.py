"""What passes on an AMQP connection, as rows: consumers that a library brings back are new ones."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from pamqp import commands
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from shalott.clients.amqp_libraries.amqp_tap import Message
from shalott.clients.amqp_libraries.wire_rows import CUT_OFF, ConnectionRows, Ledger
from shalott.core.client import ClientRows
from shalott.core.memory_recording import MemoryRecorder
from shalott.core.message_body import encode_body

pytestmark = pytest.mark.unit


class Wire:
    """One client's ledger, and what its history says."""

    def __init__(self) -> None:
        clock = itertools.count(step=1000)
        self.recorder = MemoryRecorder(lambda: next(clock), lambda: 0)
        self.ledger = Ledger(ClientRows(self.recorder, 4, "n1"), itertools.count(1))

    def rows(self, *fs: str) -> list[dict[str, Any]]:
        table = self.recorder.history().ops.to_pylist()
        return [
            {**row, "extra": json.loads(row["extra"] or "{}")} for row in table if row["f"] in fs
        ]

    def connection(self) -> Connection:
        return Connection(self.ledger.connection())


class Connection:
    def __init__(self, rows: ConnectionRows) -> None:
        self.rows = rows

    def sent(self, method: Frame, message: Message | None = None, channel: int = 1) -> None:
        self.rows.sent(channel, method, message)

    def came(self, method: Frame, message: Message | None = None, channel: int = 1) -> None:
        self.rows.came(channel, method, message)

    def consume(self, tag: str = "t", queue: str = "q", **options: Any) -> None:
        self.sent(commands.Channel.Open())
        self.sent(commands.Basic.Qos(prefetch_count=options.pop("prefetch", 0)))
        self.also_consume(tag, queue, **options)

    def also_consume(self, tag: str, queue: str, **options: Any) -> None:
        self.sent(commands.Basic.Consume(queue=queue, consumer_tag=tag, **options))
        self.came(commands.Basic.ConsumeOk(tag))

    def deliver(self, tag: int, value: int, consumer: str = "t", **flags: bool) -> None:
        method = commands.Basic.Deliver(consumer, tag, flags.get("redelivered", False), "", "q")
        self.came(method, carried(encode_body(value, 16)))

    def publish(self, value: int) -> None:
        method = commands.Basic.Publish(routing_key="q", mandatory=True)
        self.sent(method, carried(encode_body(value, 16)))

    def check(self, queue: str = "q") -> None:
        self.sent(commands.Queue.Declare(queue=queue, passive=True))
        self.came(commands.Queue.DeclareOk(queue, 0, 1))


def carried(body: bytes, **properties: Any) -> Message:
    header = ContentHeader(0, len(body), commands.Basic.Properties(**properties))
    message = Message(header)
    message.body = ContentBody(body).value
    return message


def test_consumer_that_comes_back_on_a_new_connection_is_a_new_one_under_the_old_tag() -> None:
    wire = Wire()
    first = wire.connection()
    first.consume(prefetch=3)
    first.deliver(1, 77)
    first.rows.ended("the server ended the connection: closed")
    second = wire.connection()
    second.consume(prefetch=3)
    second.deliver(1, 77, redelivered=True)
    lost, new = wire.rows("consumer")
    assert (lost["extra"]["ended"], lost["error"]) == (
        "lost",
        "the server ended the connection: closed",
    )
    assert lost["extra"]["consumer_tag"] == new["extra"]["consumer_tag"] == "t"
    assert lost["extra"]["consumer"] != new["extra"]["consumer"]
    assert new["complete_ns"] is None
    assert [row["redelivered"] for row in wire.rows("deliver")] == [False, True]
    channels = [row["extra"]["channel"] for row in wire.rows("deliver")]
    assert channels[0] != channels[1]
    assert [row["extra"].get("ended") for row in wire.rows("channel")] == ["lost", None]


def test_names_are_unique_over_the_clients_of_a_run() -> None:
    wire = Wire()
    numbers = itertools.count(1)
    names = [
        Ledger(ClientRows(wire.recorder, 4, "n1"), numbers).connection().name,
        Ledger(ClientRows(wire.recorder, 4, "n1"), numbers).connection().name,
    ]
    assert names[0] != names[1]


def test_settlement_is_ok_once_its_queue_was_asked_behind_it() -> None:
    wire = Wire()
    on = wire.connection()
    on.consume()
    on.deliver(1, 5)
    on.sent(commands.Queue.Declare(queue="q", passive=True))
    on.sent(commands.Basic.Ack(1))
    on.came(commands.Queue.DeclareOk("q", 0, 1))  # asked before: proves nothing
    (ack,) = wire.rows("ack")
    assert (ack["complete_ns"], ack["value"], ack["extra"]["tag"]) == (None, 5, 1)
    on.check("another")
    assert wire.rows("ack")[0]["complete_ns"] is None
    on.check()
    assert wire.rows("ack")[0]["type"] == "ok"


def test_multiple_that_settles_two_queues_is_proved_by_both() -> None:
    wire = Wire()
    on = wire.connection()
    on.consume("t", "q")
    on.also_consume("u", "r")
    on.deliver(1, 5, "t")
    on.deliver(2, 6, "u")
    on.sent(commands.Basic.Ack(2, True))
    on.check("q")
    (ack,) = wire.rows("ack")
    assert (ack["complete_ns"], ack["value"], ack["extra"]["upto"]) == (None, None, 2)
    on.check("r")
    assert wire.rows("ack")[0]["type"] == "ok"


def test_ordinary_declare_proves_nothing() -> None:
    wire = Wire()
    on = wire.connection()
    on.consume()
    on.deliver(1, 5)
    on.sent(commands.Basic.Ack(1))
    on.sent(commands.Queue.Declare(queue="q"))
    on.came(commands.Queue.DeclareOk("q", 0, 1))
    assert wire.rows("ack")[0]["complete_ns"] is None


def test_settlement_without_an_answer_is_unknown_when_the_channel_ends() -> None:
    wire = Wire()
    on = wire.connection()
    on.consume()
    on.deliver(1, 5)
    on.sent(commands.Basic.Nack(1, False, True))
    on.came(commands.Channel.Close(406, "PRECONDITION_FAILED - unknown delivery tag 9", 60, 80))
    (nack,) = wire.rows("nack")
    assert (nack["type"], nack["extra"]["requeue"]) == ("info", True)
    (consumer,) = wire.rows("consumer")
    assert consumer["extra"]["ended"] == "channel-closed"
    assert consumer["error"] == "406 PRECONDITION_FAILED - unknown delivery tag 9"


def test_consumer_that_the_server_refuses_is_a_failure() -> None:
    wire = Wire()
    on = wire.connection()
    on.sent(commands.Channel.Open())
    on.sent(commands.Basic.Consume(queue="q", consumer_tag="t", exclusive=True))
    index = commands.Basic.Consume.index
    on.came(commands.Channel.Close(403, "ACCESS_REFUSED", index >> 16, index & 0xFFFF))
    (consumer,) = wire.rows("consumer")
    assert (consumer["type"], consumer["extra"]["ended"]) == ("fail", "refused")
    assert consumer["extra"]["active_ns"] is None


def test_what_was_said_before_the_server_cancelled_a_consumer_can_not_be_proved() -> None:
    wire = Wire()
    on = wire.connection()
    on.consume()
    on.deliver(1, 5)
    on.deliver(2, 6)
    on.sent(commands.Basic.Ack(1))
    on.came(commands.Basic.Cancel("t"))
    on.sent(commands.Basic.Ack(2))
    on.check()
    assert [(row["type"], row["error"]) for row in wire.rows("ack")] == [("info", CUT_OFF)] * 2
    (consumer,) = wire.rows("consumer")
    assert consumer["extra"]["ended"] == "cancelled-by-server"


def test_cancelled_by_its_client() -> None:
    wire = Wire()
    on = wire.connection()
    on.consume()
    on.sent(commands.Basic.Cancel("t"))
    on.deliver(1, 5)  # was under way
    on.came(commands.Basic.CancelOk("t"))
    (consumer,) = wire.rows("consumer")
    assert consumer["extra"]["ended"] == "cancelled"
    assert consumer["extra"]["leaving_ns"] is not None
    assert wire.rows("deliver")[0]["extra"]["consumer"] == consumer["extra"]["consumer"]


def test_recover_takes_back_what_was_delivered_before_its_answer() -> None:
    wire = Wire()
    on = wire.connection()
    on.consume()
    on.deliver(1, 5)
    on.sent(commands.Basic.Recover(True))
    on.deliver(2, 6)
    on.came(commands.Basic.RecoverOk())
    (recover,) = wire.rows("recover")
    assert (recover["type"], recover["extra"]["upto"]) == ("ok", 2)
    on.sent(commands.Basic.Ack(2))  # of a tag that means nothing any more
    (ack,) = wire.rows("ack")
    assert (ack["value"], ack["key"]) == (None, "")


@pytest.mark.parametrize(("over", "ended"), [("hung-up", "hung-up"), ("closed", "closed")])
def test_connection_that_its_client_ends(over: str, ended: str) -> None:
    wire = Wire()
    on = wire.connection()
    on.consume()
    wire.ledger.over = over
    on.rows.ended("the client ended the connection: closed")
    assert wire.rows("consumer")[0]["extra"]["ended"] == ended


def test_words_of_a_server_that_closes_the_connection_are_kept() -> None:
    wire = Wire()
    on = wire.connection()
    on.consume()
    on.came(commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0), channel=0)
    on.rows.ended("the server ended the connection: closed")
    (consumer,) = wire.rows("consumer")
    assert (consumer["extra"]["ended"], consumer["error"]) == ("lost", "320 CONNECTION_FORCED")


def test_publishes_are_counted_by_message_with_what_came_back() -> None:
    wire = Wire()
    on = wire.connection()
    on.sent(commands.Channel.Open())
    on.sent(commands.Confirm.Select())
    for value in (1, 2, 3):
        on.publish(value)
    on.came(commands.Basic.Return(312, "NO_ROUTE", "", "q"), carried(encode_body(2, 16)))
    on.came(commands.Basic.Ack(2, True))
    on.came(commands.Basic.Nack(3))
    again = wire.connection()
    again.sent(commands.Channel.Open())
    again.publish(3)
    published = wire.ledger.published
    assert (published[1].sent, published[1].acked) == (1, 1)
    assert published[2].returned == ["312 NO_ROUTE"]
    assert (published[3].sent, published[3].acked, published[3].nacked) == (2, 0, 1)


def test_blocked_lasts_until_it_is_not_or_the_connection_ends() -> None:
    wire = Wire()
    on = wire.connection()
    on.came(commands.Connection.Blocked("low on disk"), channel=0)
    on.came(commands.Connection.Unblocked(), channel=0)
    on.came(commands.Connection.Blocked("low on disk"), channel=0)
    assert [row["complete_ns"] is None for row in wire.rows("blocked")] == [False, True]
    on.rows.ended("lost")
    assert [row["complete_ns"] is None for row in wire.rows("blocked")] == [False, False]


def test_delivery_tells_its_deaths_and_a_damaged_one_has_no_value() -> None:
    wire = Wire()
    on = wire.connection()
    on.consume()
    death = {"queue": "q", "reason": "rejected", "count": 2, "exchange": "x"}
    message = carried(encode_body(9, 16), headers={"x-death": [death]}, priority=3)
    on.came(commands.Basic.Deliver("t", 1, False, "", "q"), message)
    on.came(commands.Basic.Deliver("t", 2, False, "", "q"), carried(b"x" * 16))
    told, damaged = wire.rows("deliver")
    assert told["extra"]["deaths"] == [{"queue": "q", "reason": "rejected", "count": 2}]
    assert told["extra"]["priority"] == 3
    assert (damaged["value"], damaged["error"]) == (None, "corrupted")
