"""A node as a process: what it keeps over kill -9 and over an orderly end, how it ends, and what it
says when it can't begin."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from shalott.broker.base.events import EVENTS_FILE, Event
from shalott.cluster.local.backend import HOST
from tests.broker.rabbit.amqp.pika_flows import (
    PERSISTENT,
    closes_channel,
    closes_connection,
    connected,
    drain,
    publish,
)
from tests.world.processes.child import ENDS_S, ROOT
from tests.world.processes.rabbit import PORTS, NodeProcess, nodes, running_nodes

pytestmark = pytest.mark.local

TRANSIENT = pika.BasicProperties(delivery_mode=1)
EXIT_CONFIG = 78


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_nodes(tmp_path) as (only,):
        yield only


def declare_all(channel: BlockingChannel) -> None:
    """Durable and transient queues and exchanges, bound to each other."""
    channel.queue_declare("durable", durable=True)
    channel.queue_declare("transient", durable=False)
    channel.exchange_declare("durable-exchange", "direct", durable=True)
    channel.exchange_declare("transient-exchange", "direct", durable=False)
    channel.queue_bind("durable", "durable-exchange", "key")
    channel.confirm_delivery()


def fill(channel: BlockingChannel) -> None:
    publish(channel, "durable", b"taken", b"held")
    for number in range(20):
        publish(channel, "durable", b"p%d" % number)
        channel.basic_publish("", "durable", b"t%d" % number, TRANSIENT, mandatory=True)
    channel.basic_publish("durable-exchange", "key", b"routed", PERSISTENT, mandatory=True)
    channel.basic_publish("", "transient", b"in vain", PERSISTENT, mandatory=True)


def fetch_all(channel: BlockingChannel, name: str) -> list[tuple[bytes, bool]]:
    """Every message and whether it is marked as redelivered."""
    found: list[tuple[bytes, bool]] = []
    while True:
        method, _, body = channel.basic_get(name, auto_ack=True)
        if method is None:
            return found
        assert body is not None
        found.append((body, method.redelivered))


def assert_only_what_is_durable_is_there(node: NodeProcess) -> None:
    with connected(node.address) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("durable-exchange", "key", b"routed again", mandatory=True)
        assert drain(channel, "durable") == [b"routed again"]
        with closes_channel(404):
            channel.queue_declare("transient", passive=True)
        with closes_channel(404):
            connection.channel().exchange_declare("transient-exchange", passive=True)


KEPT = [b"held", *(b"p%d" % number for number in range(20)), b"routed"]


def test_confirmed_persistent_messages_survive_kill_9(node: NodeProcess) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, node.address.port))
    channel = connection.channel()
    declare_all(channel)
    fill(channel)
    channel.basic_ack(channel.basic_get("durable")[0].delivery_tag)
    assert channel.basic_get("durable")[2] == b"held"
    # An acknowledgement has no answer of its own: a confirm after it says that it is done.
    publish(channel, "durable", b"last")
    assert node.end(signal.SIGKILL) == -signal.SIGKILL
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.process_data_events(10)
    node.start()
    node.await_running()
    with connected(node.address) as again:
        found = fetch_all(again.channel(), "durable")
    # No process knows any more what was delivered, so each may have been.
    assert found == [(body, True) for body in (*KEPT, b"last")]
    assert_only_what_is_durable_is_there(node)


def test_a_restarted_node_with_a_fixed_seed_does_not_draw_its_message_ids_again(
    node: NodeProcess,
) -> None:
    """It once did, and took what was published for what it had: acknowledged, and lost."""
    node.end(signal.SIGKILL)
    node.config = msgspec.structs.replace(node.config, seed=7)
    for life in range(3):
        node.start()
        node.await_running()
        with connected(node.address) as connection:
            channel = connection.channel()
            channel.queue_declare("durable", durable=True)
            channel.confirm_delivery()
            publish(channel, "durable", *(b"%d" % number for number in range(5)))
            assert channel.queue_declare("durable", passive=True).method.message_count == 5 * (
                life + 1
            )
        node.end(signal.SIGKILL)


def test_an_orderly_end_is_exit_0_and_knows_what_had_been_delivered(node: NodeProcess) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, node.address.port))
    channel = connection.channel()
    declare_all(channel)
    fill(channel)
    channel.basic_ack(channel.basic_get("durable")[0].delivery_tag)
    assert channel.basic_get("durable")[2] == b"held"
    assert node.process is not None
    node.process.send_signal(signal.SIGTERM)
    with closes_connection(320, "the node stops"):
        connection.process_data_events(ENDS_S)
    assert node.process.wait(ENDS_S) == 0
    assert "Traceback" not in node.output
    node.start()
    node.await_running()
    with connected(node.address) as again:
        found = fetch_all(again.channel(), "durable")
    assert found == [(body, body == b"held") for body in KEPT]
    assert_only_what_is_durable_is_there(node)


def test_each_life_is_another_incarnation_in_one_event_log(node: NodeProcess) -> None:
    assert node.claims()["incarnation"] == 1
    node.end(signal.SIGKILL)
    node.start()
    node.await_running()
    assert node.claims()["incarnation"] == 2
    assert node.end(signal.SIGTERM) == 0
    lines = Path(node.config.data_dir, EVENTS_FILE).read_bytes().splitlines()
    events = [msgspec.json.decode(line, type=Event) for line in lines]
    own = [(event.incarnation, event.role) for event in events if event.group == ""]
    assert own == [(1, "running"), (2, "running"), (2, "stopped")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_node_that_waits_for_others(tmp_path: Path, number: signal.Signals) -> None:
    """Killed last, it alone may load the tables; another one that starts first waits for it."""
    with running_nodes(tmp_path, ("n1", "n2")) as (first, second):
        first.end(signal.SIGTERM)
        second.end(signal.SIGTERM)
        first.start()
        first.await_status("booting")
        assert first.end(number) == 0
        assert "Traceback" not in first.output


def test_a_signal_ends_a_node_whose_clients_do_not_listen(node: NodeProcess) -> None:
    """One that never says a word, one that never answers, one in the middle of a message."""
    with (
        socket.create_connection((HOST, node.address.port)),
        socket.create_connection((HOST, node.address.port)) as halfway,
        connected(node.address) as silent,
    ):
        halfway.sendall(b"AMQP\x00\x00\x09\x01")
        silent.channel().queue_declare("q", exclusive=True)
        assert node.end(signal.SIGTERM) == 0
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            silent.process_data_events(10)
    assert "Traceback" not in node.output


# -- what can't begin ------------------------------------------------------------------------------


@pytest.mark.parametrize("port", PORTS)
def test_a_port_in_use_is_one_sentence_and_78(port: str, tmp_path: Path) -> None:
    with (
        running_nodes(tmp_path / "first") as (first,),
        nodes(tmp_path / "second") as (second,),
    ):
        taken = getattr(first.config, f"{port}_port")
        second.config = msgspec.structs.replace(second.config, **{f"{port}_port": taken})
        second.start()
        assert second.process is not None
        assert second.process.wait(ENDS_S) == EXIT_CONFIG
        said = [line for line in second.output.splitlines() if line.startswith("broker: ")]
        assert len(said) == 1, second.output
        assert f"127.0.0.1:{taken}: address already in use" in said[0]
        assert f"set another {port}_port, or end what uses this one" in said[0]
        assert "Traceback" not in second.output
        first.await_running()


GOOD = 'name = "n1"\ndata_dir = "data"\n'
BAD_TOML = {
    "not TOML": ("name = ", "node.toml is not TOML: "),
    "nothing": ("", "Object missing required field `name`"),
    "no directory": ('name = "n1"', "Object missing required field `data_dir`"),
    "a port that is none": (
        GOOD + 'amqp_port = "x"',
        "Expected `int`, got `str` - at `$.amqp_port`",
    ),
    "a port over 65535": (GOOD + "amqp_port = 70000", "at `$.amqp_port`"),
    "a mode that is none": (GOOD + 'partition_mode = "hope"', "'hope' - at `$.partition_mode`"),
    "an unknown setting": (GOOD + "colour = 1", "unknown field `colour`"),
    "a peer without port": (
        GOOD + '[[peers]]\nname = "n2"\nhost = "h"',
        "missing required field `port` - at `$.peers[0]`",
    ),
    "not text": (b"\xff\xfe", "is not TOML"),
}


@pytest.mark.parametrize("case", BAD_TOML.values(), ids=BAD_TOML.keys())
def test_a_bad_configuration_is_one_sentence_and_78(
    case: tuple[str | bytes, str], tmp_path: Path
) -> None:
    content, sentence = case
    path = tmp_path / "node.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = run_node(path)
    assert done.returncode == EXIT_CONFIG, done.stderr
    assert done.stderr.startswith("broker: ") and done.stderr.count("\n") == 1, done.stderr
    assert sentence in done.stderr


def test_no_configuration_is_one_sentence_and_78(tmp_path: Path) -> None:
    done = run_node(tmp_path / "node.toml")
    assert done.returncode == EXIT_CONFIG
    assert done.stderr == f"broker: cannot read {tmp_path}/node.toml: No such file or directory\n"


def test_a_data_directory_that_is_a_file_is_one_sentence_and_78(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with nodes(tmp_path / "home") as (node,):
        node.config = msgspec.structs.replace(node.config, data_dir=str(tmp_path / "data"))
        node.start()
        assert node.process is not None
        assert node.process.wait(ENDS_S) == EXIT_CONFIG
        assert node.output.startswith("broker: n1 can't start: ")
        assert node.output.count("\n") == 1, node.output


def run_node(configuration: Path) -> subprocess.CompletedProcess[str]:
    """In the directory of its configuration."""
    command: list[Any] = [sys.executable, "-m", "shalott.broker", "--config", configuration]
    return subprocess.run(
        command,
        cwd=configuration.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )
