"""The verbs of rabbitmqctl on three running nodes; the documents' lines as they stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pika
import pytest

from shalott.broker.rabbit.ctl.verbs import VERBS, about, overview, read
from shalott.broker.rabbit.management import columns
from shalott.cluster.local.backend import HOST
from tests.broker.rabbit.amqp.pika_flows import Address, connected, publish, queue
from tests.end_to_end.runs import shalott
from tests.world.processes.rabbit import NodeProcess
from tests.world.rabbit.typing_ctl import said, typed
from tests.world.waiting import until

pytestmark = pytest.mark.local

PID = r"<n[123]\.\d+\.\d+>"


def test_the_documents_lines(cluster: list[NodeProcess]) -> None:
    """000 and 004: a policy is set, listed, and its queue shown with its mirrors."""
    first = cluster[0]
    line = (
        'rabbitmqctl set_policy hello-ha "^hello"'
        """ '{"ha-mode":"exactly","ha-params":2,"ha-sync-mode":"automatic"}'"""
    )
    definition = '{"ha-mode":"exactly","ha-params":2,"ha-sync-mode":"automatic"}'
    assert said(first, line) == [
        f'Setting policy "hello-ha" for pattern "^hello" to "{definition}" with priority "0" for'
        ' vhost "/" ...'
    ]
    assert said(first, "rabbitmqctl list_policies") == [
        'Listing policies for vhost "/" ...',
        "vhost\tname\tpattern\tapply-to\tdefinition\tpriority",
        f"/\thello-ha\t^hello\tall\t{definition}\t0",
    ]
    with queue(Address(first.address.host, first.address.port), "hello.1"):

        def is_shown() -> bool:
            lines = said(first, "rabbitmqctl list_queues name pid slave_pids")
            assert lines[:3] == [
                "Timeout: 60.0 seconds ...",
                "Listing queues for vhost / ...",
                "name\tpid\tslave_pids",
            ]
            return re.fullmatch(rf"hello\.1\t{PID}\t\[{PID}\]", lines[3]) is not None

        until(is_shown, "the queue has a master and a mirror")
        names = said(first, "rabbitmqctl -q list_queues name policy state")
        assert names == ["name\tpolicy\tstate", "hello.1\thello-ha\trunning"]
        told = json.loads(typed(first, "list_queues --formatter json name messages").stdout)
        assert told == [{"name": "hello.1", "messages": 0}]
    nodes = (
        'rabbitmqctl set_policy --apply-to queues hello-ha "^hello"'
        """ '{"ha-mode":"nodes","ha-params":["rabbit@10.18.195.57"],"ha-sync-mode":"automatic"}'"""
    )
    assert typed(first, nodes).exit_code == 0
    assert said(first, "-s list_policies") == [
        '/\thello-ha\t^hello\tqueues\t{"ha-mode":"nodes","ha-params":["rabbit@10.18.195.57"],'
        '"ha-sync-mode":"automatic"}\t0'
    ]
    assert said(cluster[1], "clear_policy hello-ha") == [
        'Clearing policy "hello-ha" on vhost "/" ...'
    ]
    until(lambda: said(first, "-q list_policies") == [""], "the policy is gone")


def test_the_old_forms_priority_is_the_last_word(cluster: list[NodeProcess]) -> None:
    first = cluster[0]
    said(first, """set_policy -p / old "^old" '{"ha-mode":"all"}' 7""")
    assert said(first, "-s list_policies") == ['/\told\t^old\tall\t{"ha-mode":"all"}\t7']
    said(first, """set_policy --priority 8 old "^old" '{"ha-mode":"all"}'""")
    assert said(first, "-s list_policies") == ['/\told\t^old\tall\t{"ha-mode":"all"}\t8']
    said(first, "clear_policy old")


def test_what_is_wrong_is_said_on_stderr_with_a_code(cluster: list[NodeProcess]) -> None:
    first = cluster[0]
    for line, exit_code, text in (
        ("set_policy a ^a {", 69, "JSON decoding error"),
        ("""set_policy a ^a '{"ha-mode":"some"}'""", 69, "ha-mode must be one of"),
        ("""set_policy a ^a '{"ha-mode":"all"}' high""", 64, "--priority : high"),
        ("clear_policy nobody", 69, "Parameter does not exist"),
        ("list_queues name colour", 64, "Info key(s) colour are not supported"),
        ("sync_queue nothing", 69, "not_found"),
        ("forget_cluster_node rabbit@n9", 69, "The node selected is not in the cluster."),
        ("forget_cluster_node n2", 69, "must be stopped before it can be removed"),
        ("delete_vhost other", 65, "Virtual host 'other' does not exist"),
        ("dance", 64, "Command 'dance' not found"),
    ):
        done = typed(first, line)
        assert (done.exit_code, text in done.stderr) == (exit_code, True), (line, done)


def test_nobody_there_is_69(cluster: list[NodeProcess]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shalott.broker.rabbit.ctl", "cluster_status"],
        env={**os.environ, "SHALOTT_MANAGEMENT_PORT": "9"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 69
    assert "unable to perform an operation on node" in done.stderr


def test_the_cluster_tells_of_itself(cluster: list[NodeProcess]) -> None:
    lines = said(cluster[1], "cluster_status")
    at = lines.index("\x1b[1mRunning Nodes\x1b[0m")
    assert lines[at + 1 : at + 6] == ["", "n1", "n2", "n3", ""]
    at = lines.index("\x1b[1mNetwork Partitions\x1b[0m")
    assert lines[at + 1 : at + 3] == ["", "(none)"]
    told = json.loads(typed(cluster[1], "cluster_status --formatter json").stdout)
    assert told["running_nodes"] == ["n1", "n2", "n3"]
    assert said(cluster[0], "-q list_vhosts") == ["name", "/"]


def test_exchanges_bindings_and_connections(cluster: list[NodeProcess]) -> None:
    first = cluster[0]
    exchanges = said(first, "-s list_exchanges name type")
    assert "amq.direct\tdirect" in exchanges
    assert "\tdirect" in exchanges  # the default one
    with queue(Address(first.address.host, first.address.port), "bound"):
        assert "\texchange\tbound\tqueue\tbound\t[]" in said(first, "-s list_bindings")
        (line,) = said(first, "-s list_connections user state channels")
        assert line.split("\t")[:2] == ["guest", "running"]


def test_clients_of_all_nodes_are_listed(cluster: list[NodeProcess]) -> None:
    """Consumers at one node, told of at another."""
    first, last = cluster[0], cluster[2]
    address = Address(last.address.host, last.address.port)
    with queue(address, "single", arguments={"x-single-active-consumer": True}) as channel:
        channel.basic_qos(prefetch_count=7)
        channel.basic_consume("single", lambda *_: None, consumer_tag="a")
        channel.basic_consume("single", lambda *_: None, consumer_tag="b")
        listed = said(first, "-s list_consumers consumer_tag prefetch_count active activity_status")
        assert listed == ["a\t7\ttrue\tsingle_active", "b\t7\tfalse\twaiting"]
        assert "2\tguest\tn3" in said(first, "-s list_channels consumer_count user node")
        channel.basic_cancel("a")
        listed = said(first, "-s list_consumers consumer_tag active")
        assert listed == ["b\ttrue"]


def test_a_queue_is_synchronised_by_hand(cluster: list[NodeProcess]) -> None:
    first = cluster[0]
    with queue(Address(first.address.host, first.address.port), "by.hand") as channel:
        channel.basic_publish("", "by.hand", b"1")
        said(first, """set_policy by-hand "^by" '{"ha-mode":"all"}'""")
        columns = "-s list_queues name slave_pids synchronised_slave_pids"

        def shown() -> list[str]:
            return said(first, columns)[0].split("\t")

        until(lambda: shown()[1].count("<") == 2, "it has two mirrors")
        assert shown()[2] == "[]"
        assert said(first, "sync_queue by.hand") == [
            "Synchronising queue 'by.hand' in vhost '/' ..."
        ]
        until(lambda: shown()[2].count("<") == 2, "they are synchronised")
        said(first, "clear_policy by-hand")


def test_the_application_stops_and_starts_while_the_node_stays(
    cluster: list[NodeProcess],
) -> None:
    """Its queue goes to a mirror, and comes back to no harm; other verbs say what is missing."""
    first, last = cluster[0], cluster[2]
    said(first, """set_policy apps "^apps" '{"ha-mode":"all","ha-sync-mode":"automatic"}'""")
    with connected(Address(last.address.host, last.address.port)) as connection:
        connection.channel().queue_declare("apps", durable=True)

        def mirrors() -> str:
            return said(first, "-s list_queues name synchronised_slave_pids")[0]

        until(lambda: mirrors().count("<") == 2, "it has two synchronised mirrors")
    assert said(last, "stop_app") == ["Stopping rabbit application on node n3 ..."]
    done = typed(last, "list_queues")
    assert (done.exit_code, "requires the 'rabbit' app to be running" in done.stderr) == (64, True)
    lines = said(first, "cluster_status")
    at = lines.index("\x1b[1mRunning Nodes\x1b[0m")
    assert lines[at + 2 : at + 5] == ["n1", "n2", ""]
    until(lambda: "<n3." not in said(first, "-s list_queues pid state")[0], "it was handed over")
    said(last, "start_app")
    assert said(last, "-s list_queues name") == ["apps"]
    until(lambda: mirrors().count("<") == 2, "it has two mirrors again")
    said(first, "clear_policy apps")
    with connected(Address(first.address.host, first.address.port)) as connection:
        connection.channel().queue_delete("apps")


def test_virtual_hosts_are_worlds_apart(cluster: list[NodeProcess]) -> None:
    """One name, two queues; a policy of one; and all of it goes with the vhost, at every node."""
    first, last = cluster[0], cluster[2]
    assert said(first, "add_vhost accounts") == ['Adding vhost "accounts" ...']
    until(lambda: "accounts" in said(last, "-s list_vhosts"), "the other node has heard of it")
    said(last, 'set_permissions -p accounts guest ".*" ".*" ".*"')
    said(last, """set_policy -p accounts all ".*" '{"ha-mode":"all"}'""")
    here = Address(first.address.host, first.address.port)
    there = pika.URLParameters(f"amqp://guest:guest@{HOST}:{last.address.port}/accounts")
    with queue(here, "same") as channel, pika.BlockingConnection(there) as connection:
        other = connection.channel()
        other.queue_declare("same", durable=True)
        other.basic_publish("amq.direct", "nowhere", b"")
        other.basic_publish("", "same", b"there")
        assert channel.basic_get("same")[2] is None
        columns = "-s list_queues name policy"
        assert said(first, columns) == ["same\t"]
        assert said(first, f"{columns} -p accounts") == ["same\tall"]
        assert "amq.direct" in said(first, "-s list_exchanges -p accounts name")
        assert said(first, "delete_vhost accounts") == ['Deleting vhost "accounts" ...']
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            other.queue_declare("same", passive=True)
        assert (caught.value.reply_code, "accounts" in caught.value.reply_text) == (320, True)
        assert said(first, columns) == ["same\t"]
    assert said(last, "-q list_queues -p accounts") == []
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530.*accounts' not found"):
        pika.BlockingConnection(there)
    said(first, "add_vhost accounts")
    assert said(first, "-s list_queues -p accounts name") == []
    assert said(first, "-s list_policies -p accounts") == [""]
    said(first, "delete_vhost accounts")


def test_shalott_ctl_says_the_same(cluster: list[NodeProcess], tmp_path: Path) -> None:
    endpoint = f"127.0.0.1:{cluster[1].management_port}"
    done = shalott(("ctl", "list_vhosts", "-q", "name", "--endpoint", endpoint), tmp_path)
    assert (done.exit_code, done.stdout) == (0, "name\n/\n")
    done = shalott(("ctl", "clear_policy", "nobody", "--endpoint", endpoint), tmp_path)
    assert (done.exit_code, "Parameter does not exist" in done.stderr) == (69, True)


def test_a_ring_is_told_member_by_member(cluster: list[NodeProcess]) -> None:
    """rabbitmqctl has no such verb: the documents draw it."""
    first = cluster[0]
    said(first, """rabbitmqctl set_policy ring "^ring" '{"ha-mode":"all"}'""")
    with queue(Address(first.address.host, first.address.port), "ring") as channel:
        publish(channel, "ring", b"test")

        def is_home() -> bool:
            lines = said(first, "rabbitmqctl -q gm_ring ring")
            assert lines[0].split("\t") == [
                *("node", "role", "member", "left", "right", "aliases", "publisher", "last_pub"),
                *("last_ack", "pending_ack"),
            ]
            rows = [line.split("\t") for line in lines[1:]]
            masters = [row for row in rows if row[1] == "master"]
            if [row[0] for row in masters] != ["n1"] * 3:
                return False
            own = masters[0][2]
            of_own = [row for row in rows if row[6] == own]
            return (
                sorted(row[0] for row in of_own) == ["n1", "n2", "n3"]
                and [row[7:] for row in of_own] == [[of_own[0][7], of_own[0][7], "[]"]] * 3
                and int(of_own[0][7]) >= 0
            )

        until(is_home, "its message has gone round twice")
        told = json.loads(typed(first, "gm_ring ring --formatter json").stdout)
        assert [each["node"] for each in told["nodes"]] == ["n1", "n2", "n3"]
    said(first, "rabbitmqctl clear_policy ring")
    absent = typed(first, "gm_ring absent")
    assert (absent.exit_code, absent.stderr) == (69, "Error:\nnot_found\n")


def test_a_node_short_of_memory_stops_the_publishers_of_all(cluster: list[NodeProcess]) -> None:
    """They are told, and consumers go on; the alarm is shown by every node, and is over with the
    shortage."""
    first, second = cluster[0], cluster[1]
    with connected(first.address) as connection:
        channel = connection.channel()
        channel.queue_declare("short", durable=True)
        channel.basic_publish("", "short", b"1")
    line = "rabbitmqctl set_vm_memory_high_watermark"
    assert typed(first, f"{line} 1.5").exit_code == 65
    assert typed(first, f"{line} absolute 1XB").exit_code == 65
    (answer,) = said(first, f"{line} absolute 100")
    assert re.fullmatch(r"Setting memory threshold on \S+ to 100 bytes \.\.\.", answer)
    alarm = "Memory alarm on node n1"
    until(lambda: alarm in said(second, "rabbitmqctl cluster_status"), "n2 hears of it")
    told: list[str] = []
    with connected(second.address) as connection:
        channel = connection.channel()
        connection.add_on_connection_blocked_callback(
            lambda _, method: told.append(method.method.reason)
        )
        connection.add_on_connection_unblocked_callback(lambda _, method: told.append("unblocked"))
        channel.basic_publish("", "short", b"2")
        channel.basic_publish("", "short", b"3")
        poll = connection.process_data_events
        until(lambda: poll(0) or told == ["low on memory"], "it is told")
        line_of_states = "rabbitmqctl list_connections --formatter json state"
        shown = json.loads(typed(second, line_of_states).stdout)
        assert {"state": "blocked"} in shown
        with connected(second.address) as other:
            got = other.channel().basic_get("short", auto_ack=True)
            assert got[2] == b"1", "a client that only consumes goes on"
        (answer,) = said(first, f"{line} 0.4")
        assert re.fullmatch(r"Setting memory threshold on \S+ to 0\.4 \.\.\.", answer)
        until(lambda: poll(0) or told == ["low on memory", "unblocked"], "it may go on")
        until(lambda: channel.basic_get("short", auto_ack=True)[2] == b"3", "all are there")
    assert alarm not in said(second, "rabbitmqctl cluster_status")
    with connected(first.address) as connection:
        connection.channel().queue_delete("short")


def test_a_node_takes_no_clients_for_a_while(cluster: list[NodeProcess]) -> None:
    """Who is there stays."""
    first = cluster[0]
    with connected(first.address) as connection:
        said(first, "suspend_listeners")
        said(first, "suspend_listeners")
        with pytest.raises(pika.exceptions.AMQPConnectionError), connected(first.address):
            pass
        assert connection.channel().is_open
        said(first, "resume_listeners")
        said(first, "resume_listeners")
        with connected(first.address) as other:
            assert other.is_open


def test_users_come_and_go_and_their_clients_with_them(cluster: list[NodeProcess]) -> None:
    """What was said at one node holds at another."""
    first, last = cluster[0], cluster[2]
    there = pika.URLParameters(f"amqp://al:s3cret@{HOST}:{last.address.port}/%2F")
    said(first, "add_user al s3cret")
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        pika.BlockingConnection(there)
    said(first, 'set_permissions al ".*" ".*" ".*"')
    until(lambda: "al\t" in "\n".join(said(last, "-s list_permissions")), "n3 has heard of it")
    with pika.BlockingConnection(there) as connection:
        (pid,) = [
            row.split("\t")[0]
            for row in said(first, "-s list_connections pid user node")
            if row.endswith("al\tn3")
        ]
        said(first, f'close_connection "{pid}" "by its pid"')
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="by its pid"):
            connection.channel()
    with pika.BlockingConnection(there) as connection:
        said(first, "delete_user al")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="was deleted"):
            connection.channel()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(there)


def test_a_policy_names_nodes_as_rabbitmq_does(cluster: list[NodeProcess]) -> None:
    first = cluster[0]
    params = '{"ha-mode":"nodes","ha-params":["rabbit@n1","rabbit@n3"]}'
    said(first, f"set_policy named ^named '{params}'")
    with queue(Address(first.address.host, first.address.port), "named"):
        shown = "-s list_queues name slave_pids"
        until(lambda: "<n3." in said(first, shown)[0], "its mirror is on n3")
    said(first, "clear_policy named")


def test_help_names_each_verb_and_all_columns() -> None:
    told = read(["help"])
    assert (told.verb, told.arguments) == ("help", ())
    lines = "\n".join(overview())
    assert all(f"   {name} " in lines for name in VERBS)
    assert len(columns.QUEUES) == 36
    assert len(columns.CONNECTIONS) == 30
    assert len(columns.CHANNELS) == 15
    for words in (["list_queues", "--help"], ["help", "list_queues"], ["-h", "list_queues"]):
        asked = read(words)
        assert (asked.verb, asked.arguments) == ("help", ("list_queues",))
    assert ", ".join(sorted(columns.QUEUES)) in "\n".join(about("list_queues"))


def test_every_column_can_be_listed(cluster: list[NodeProcess]) -> None:
    first = cluster[0]
    with queue(Address(first.address.host, first.address.port), "all") as channel:
        channel.basic_consume("all", lambda *_: None)
        for verb in ("list_queues", "list_connections", "list_channels", "list_consumers"):
            names = VERBS[verb].columns
            shown = json.loads(typed(first, f"{verb} --formatter json {' '.join(names)}").stdout)
            assert [*shown[0]] == [*names]
        rows = json.loads(typed(first, "list_queues --formatter json").stdout)
        assert {"name": "all", "messages": 0} in rows


def test_definitions_go_through_a_file(cluster: list[NodeProcess], tmp_path: Path) -> None:
    first = cluster[0]
    said(first, "add_vhost filed --description kept --tags a,b")
    path = tmp_path / "all.json"
    said(first, f"export_definitions {path}")
    said(first, "delete_vhost filed")
    said(first, f"import_definitions {path}")
    rows = said(first, "-s list_vhosts name description tags")
    assert "filed\tkept\t[a, b]" in rows
    said(first, "delete_vhost filed")
    assert json.loads(typed(first, "export_definitions -").stdout)["rabbit_version"] == "3.10.8"


def test_a_report_and_a_status(cluster: list[NodeProcess]) -> None:
    lines = said(cluster[1], "report")
    assert lines[0] == "Reporting server status of node n2 ..."
    for wanted in (
        *("Status of node n2 ...", "Cluster status of node n2 ...", "Listing channels ..."),
        *("Application environment of node n2 ...", "Listing queues for vhost / ..."),
    ):
        assert wanted in lines
    assert "cookie" not in "\n".join(lines)
    told = json.loads(typed(cluster[1], "status --formatter json").stdout)
    assert told["totals"]["virtual_host_count"] == 1
