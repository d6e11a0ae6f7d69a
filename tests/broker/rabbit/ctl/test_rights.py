"""Permissions, operator policies and policies on exchanges, typed and then felt by a client."""

from __future__ import annotations

import pika
import pytest

from shalott.cluster.local.backend import HOST
from tests.broker.rabbit.amqp.pika_flows import Address, connected, queue
from tests.world.processes.rabbit import NodeProcess
from tests.world.rabbit.typing_ctl import said, typed
from tests.world.waiting import until

pytestmark = pytest.mark.local


def test_who_has_no_permissions_does_not_enter(cluster: list[NodeProcess]) -> None:
    first, last = cluster[0], cluster[2]
    said(first, "add_vhost ledgers")
    until(lambda: "ledgers" in said(last, "-s list_vhosts"), "the other node has heard of it")
    there = pika.URLParameters(f"amqp://guest:guest@{HOST}:{last.address.port}/ledgers")
    refused = "530.*access to vhost 'ledgers' refused for user 'guest'"
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=refused):
        pika.BlockingConnection(there)
    assert said(first, 'set_permissions -p ledgers guest "^a" "^(a|amq.default)" "^b"') == [
        'Setting permissions for user "guest" in vhost "ledgers" ...'
    ]
    assert said(first, "list_permissions -p ledgers") == [
        'Listing permissions for vhost "ledgers" ...',
        "user\tconfigure\twrite\tread",
        "guest\t^a\t^(a|amq.default)\t^b",
    ]
    until(lambda: "^b" in said(last, "-s list_permissions -p ledgers")[0], "so has the other")
    assert said(first, "-s list_user_permissions guest") == [
        "/\t.*\t.*\t.*",
        "ledgers\t^a\t^(a|amq.default)\t^b",
    ]
    with pika.BlockingConnection(there) as connection:
        channel = connection.channel()
        channel.queue_declare("a")
        channel.basic_publish("", "a", b"")
        for attempt, name in (
            (lambda on: on.queue_declare("b"), "queue 'b'"),
            (lambda on: on.basic_get("a"), "queue 'a'"),
            (lambda on: on.queue_purge("a"), "queue 'a'"),
            (lambda on: on.queue_bind("a", "amq.topic", "k"), "exchange 'amq.topic'"),
            (lambda on: on.exchange_declare("b"), "exchange 'b'"),
        ):
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
                attempt(connection.channel())
            told = f"access to {name} in vhost 'ledgers' refused for user 'guest'"
            assert (caught.value.reply_code, told in caught.value.reply_text) == (403, True)
        said(first, "clear_permissions -p ledgers guest")
        said(first, "clear_permissions -p ledgers guest")
        until(lambda: said(last, "-s list_permissions -p ledgers") == [""], "it has none left")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            connection.channel().queue_declare("a")
    said(first, "delete_vhost ledgers")


def test_permissions_of_nobody_and_nowhere(cluster: list[NodeProcess]) -> None:
    first = cluster[0]
    for line, exit_code, text in (
        ("set_permissions nobody a b c", 67, "User nobody does not exist"),
        ("set_permissions -p nowhere guest a b c", 69, "Virtual host nowhere does not exist"),
        ("set_permissions guest ( b c", 69, "'(' is not a regular expression"),
        ("list_permissions -p nowhere", 65, "Virtual host 'nowhere' does not exist"),
        ("list_user_permissions nobody", 69, '{:no_such_user, "nobody"}'),
    ):
        done = typed(first, line)
        assert (done.exit_code, text in done.stderr) == (exit_code, True), (line, done)
    assert said(first, "list_users") == [
        "Listing users ...",
        "user\ttags",
        "guest\t[administrator]",
    ]


def test_an_operators_policy_caps_what_a_policy_says(cluster: list[NodeProcess]) -> None:
    first = cluster[0]
    said(first, """set_policy long "^capped" '{"max-length":9,"ha-mode":"all"}'""")
    assert said(first, """set_operator_policy short "^capped" '{"max-length":2}'""") == [
        'Setting operator policy override "short" for pattern "^capped" to "{"max-length":2}" with'
        ' priority "0" for vhost "/" ...'
    ]
    assert said(first, "-s list_operator_policies") == [
        '/\tshort\t^capped\tall\t{"max-length":2}\t0'
    ]
    columns = "-s list_queues name policy operator_policy effective_policy_definition"
    with queue(Address(first.address.host, first.address.port), "capped") as channel:
        (line,) = said(first, columns)
        assert line.split("\t")[:3] == ["capped", "long", "short"]
        assert '{"max-length",2}' in line and '{"ha-mode","all"}' in line
        for body in (b"1", b"2", b"3"):
            channel.basic_publish("", "capped", body)
        assert [channel.basic_get("capped", auto_ack=True)[2] for _ in range(3)] == [
            b"2",
            b"3",
            None,
        ]
        said(first, "clear_operator_policy short")
        until(lambda: '{"max-length",9}' in said(first, columns)[0], "the policy is in force alone")
    said(first, "clear_policy long")
    done = typed(first, """set_operator_policy ha "^capped" '{"ha-mode":"all"}'""")
    assert done.exit_code == 69
    assert '[{<<"ha-mode">>,<<"all">>}] are not recognised policy settings' in done.stderr
    done = typed(first, "clear_operator_policy short")
    assert (done.exit_code, "Parameter does not exist" in done.stderr) == (69, True)


def test_a_policy_gives_an_exchange_its_alternate(cluster: list[NodeProcess]) -> None:
    first = cluster[0]
    alternate = (
        """set_policy --apply-to exchanges ae "^lossy" '{"alternate-exchange":"amq.fanout"}'"""
    )
    with connected(Address(first.address.host, first.address.port)) as connection:
        channel = connection.channel()
        channel.exchange_declare("lossy")
        channel.queue_declare("kept", exclusive=True)
        channel.queue_bind("kept", "amq.fanout")
        channel.basic_publish("lossy", "nowhere", b"before")
        said(first, alternate)
        assert "lossy\tae" in said(first, "-s list_exchanges name policy")
        channel.basic_publish("lossy", "nowhere", b"under it")
        assert channel.basic_get("kept", auto_ack=True)[2] == b"under it"
        said(first, "clear_policy ae")
        channel.basic_publish("lossy", "nowhere", b"after")
        assert channel.basic_get("kept", auto_ack=True)[2] is None
        channel.exchange_delete("lossy")
