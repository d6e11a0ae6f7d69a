"""`shalott node`, `shalott up` and `shalott ctl`: nodes for real clients, until they are ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

from shalott.broker.rabbit.ctl.verbs import VERBS
from shalott.harness.cli.main import run_command
from shalott.harness.cli.up import ENDS
from tests.tidy.sources import ROOT

SHALOTT = (sys.executable, "-m", "shalott.harness.cli.main")
TIMEOUT_S = 60


def environment(directory: Path) -> dict[str, str]:
    """With a place of its own for what runs here: another test's `clean` ends nothing of it."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "TMPDIR": str(directory), "PYTHONPATH": path}


def shalott(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SHALOTT, *words],
        cwd=directory,
        env=environment(directory),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


class Running:
    """A command in the foreground, until it is asked to end."""

    def __init__(self, directory: Path, words: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [*SHALOTT, *words],
            cwd=directory,
            env=environment(directory),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.told = ""
        for line in self.process.stdout:
            self.told += line
            if line.startswith(ENDS):
                break

    def end(self) -> tuple[int, str]:
        """(exit code, what was said) after Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, said

    @property
    def place(self) -> str:
        return place_of(self.told)


@contextmanager
def running(directory: Path, *words: str) -> Iterator[Running]:
    made = Running(directory, words)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


def place_of(told: str) -> str:
    found = re.search(r"--run (\S+)", told)
    assert found is not None, told
    return found[1]


def urls_of(told: str) -> list[str]:
    return re.findall(r"amqp://\S+", told)


def client(url: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(url))


def publish(url: str, queue: str, body: bytes) -> None:
    connection = client(url)
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
    connection.close()


def get(url: str, queue: str) -> bytes | None:
    connection = client(url)
    _, _, body = connection.channel().basic_get(queue, auto_ack=True)
    connection.close()
    found: bytes | None = body
    return found


@pytest.mark.local
def test_a_node_serves_clients_and_keeps_its_data_where_it_was_told(tmp_path: Path) -> None:
    words = ("node", "mirrored", "--data", str(tmp_path / "data"))
    with running(tmp_path, *words) as first:
        (url,) = urls_of(first.told)
        publish(url, "kept", b"still here")
        again = shalott(tmp_path, *words)
        assert again.returncode == 254 and "a node uses it that still runs" in again.stderr
        assert first.end() == (0, "Stopping: the nodes end in order.\n")
    with running(tmp_path, *words) as second:
        (url,) = urls_of(second.told)
        assert get(url, "kept") == b"still here"
        assert f"its files: {tmp_path / 'data'}" in second.told
        second.process.send_signal(signal.SIGTERM)
        second.process.communicate(timeout=TIMEOUT_S)
        assert second.process.returncode == 0
    assert (tmp_path / "data").is_dir()


@pytest.mark.local
def test_a_node_of_a_log_tells_its_name_server_and_answers_ctl(tmp_path: Path) -> None:
    with running(tmp_path, "node", "master-slave") as node:
        assert re.search(r"name server address: 127\.0\.0\.1:\d+\n", node.told)
        done = shalott(tmp_path, "ctl", "claims", "--run", node.place)
        assert done.returncode == 0 and "master" in done.stdout, done.stderr
        assert node.end()[0] == 0
        assert not Path(node.place).exists()


def kill(place: str, name: str) -> None:
    """A node's process, as the kernel would."""
    pattern = f"{place}/local/{name}/config/node.toml"
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True)
    os.kill(int(found.stdout.split()[0]), signal.SIGKILL)


@pytest.mark.local
def test_nodes_that_all_end_by_themselves_are_told(tmp_path: Path) -> None:
    with running(tmp_path, "node", "mirrored") as node:
        kill(node.place, "n1")
        _, said = node.process.communicate(timeout=TIMEOUT_S)
        assert node.process.returncode == 255
        assert "n1 ended by itself, with exit code 137." in said
        assert "shalott: the harness failed: no node runs any more" in said


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What `shalott up --detach` printed; `shalott clean` ends it, and leaves nothing."""
    directory = tmp_path_factory.mktemp("up")
    done = shalott(directory, "up", "mirrored", "--nodes", "n1,n2", "--detach")
    assert done.returncode == 0, done.stderr
    yield done.stdout
    place = Path(place_of(done.stdout))
    assert place.parent == directory and place.is_dir()
    cleaned = shalott(directory, "clean")
    assert "ended mirrored of `shalott up`" in cleaned.stdout, cleaned
    assert not place.exists()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        client(urls_of(done.stdout)[0])


@pytest.mark.local
def test_a_client_reaches_every_node_of_a_cluster(cluster: str) -> None:
    first, second = urls_of(cluster)
    publish(first, "shared", b"from n1")
    assert get(second, "shared") == b"from n1"


DEFINITION = '{"max-length": 5}'
# Each verb as it is typed, and a part of what it says; in an order in which all of them work.
TYPED: tuple[tuple[str, str], ...] = (
    ("help", "Available commands:"),
    ("autocomplete list_q", "list_queues"),
    ("version", "3.10.8"),
    ("ping", "Ping succeeded"),
    ("await_startup", ""),
    ("await_online_nodes 2", "Will wait for at least 2 nodes"),
    ("wait --pid 1", "are running on node"),
    ("cluster_status", "Running Nodes"),
    ("status", "Free Disk Space"),
    ("report", "Reporting server status"),
    ("environment", "Application environment"),
    ("node_health_check", "Health check passed"),
    ("set_cluster_name west", "Setting cluster name"),
    ("set_log_level info", "Setting log level"),
    ("set_disk_free_limit 1MB", "Setting disk free limit"),
    ("add_vhost other", "Adding vhost"),
    ("list_vhosts", "other"),
    ("set_vhost_tags other a", "Setting tags"),
    ("restart_vhost -p other", "already running"),
    ("set_vhost_limits -p other '{\"max-queues\":5}'", "Setting vhost limits"),
    ("list_vhost_limits -p other", "max-queues"),
    ("list_parameters -p other", "vhost-limits"),
    ("clear_vhost_limits -p other", "Clearing vhost"),
    ("set_parameter -p other vhost-limits limits '{\"max-queues\":5}'", "limits"),
    ("clear_parameter -p other vhost-limits limits", "limits"),
    ("set_global_parameter x 1", "Setting global"),
    ("list_global_parameters", "cluster_name"),
    ("clear_global_parameter x", "Clearing global"),
    (f"set_policy -p other short ^ {DEFINITION!r}", "Setting policy"),
    ("list_policies -p other", "short"),
    ("clear_policy -p other short", "Clearing policy"),
    (f"set_operator_policy limit ^nothing {DEFINITION!r}", "limit"),
    ("list_operator_policies", "limit"),
    ("clear_operator_policy limit", "limit"),
    ("set_permissions -p other guest .* .* .*", "Setting permissions"),
    ("list_permissions -p other", "guest"),
    ("list_user_permissions guest", "other"),
    ("clear_permissions -p other guest", "Clearing permissions"),
    ("add_user al secret", "Adding user"),
    ("authenticate_user al secret", "Success"),
    ("change_password al other", "Changing password"),
    ("set_user_tags al monitoring", "[monitoring]"),
    ("set_user_limits al '{\"max-channels\":5}'", "Setting user limits"),
    ("list_user_limits --user al", "max-channels"),
    ("clear_user_limits al all", "Clearing all limits"),
    ("set_topic_permissions al amq.topic a b", "Setting topic permissions"),
    ("list_topic_permissions", "amq.topic"),
    ("list_user_topic_permissions al", "amq.topic"),
    ("clear_topic_permissions al", "Clearing topic permissions"),
    ("clear_password al", "Clearing password"),
    ("list_users", "guest"),
    ("delete_user al", "Deleting user"),
    ("list_queues name", "shared"),
    ("list_unresponsive_queues", "Listing unresponsive"),
    ("list_exchanges", "amq.direct"),
    ("list_bindings", "shared"),
    ("list_connections", "Listing connections"),
    ("list_channels", "Listing channels"),
    ("list_consumers", "Listing consumers"),
    ("export_definitions DIRECTORY/all.json", "Exporting definitions"),
    ("import_definitions DIRECTORY/all.json", "Importing definitions"),
    ("close_connection <n1.1.1> bye", "Closing connection"),
    ("close_all_connections bye", "Closed 0 connections"),
    ("close_all_user_connections guest bye", "Closing connections"),
    ("suspend_listeners", "no longer accept"),
    ("resume_listeners", "now accept"),
    ("gm_ring shared", "n1"),
    ("sync_queue shared", "Synchronising queue"),
    ("cancel_sync_queue shared", "Stopping synchronising queue"),
    ("purge_queue shared", "Purging queue"),
    ("delete_queue shared", "successfully deleted"),
    ("set_vm_memory_high_watermark 0.3", "Setting memory threshold"),
    ("delete_vhost other", "Deleting vhost"),
    ("-n n2 stop_app", "Stopping rabbit application"),
    ("-n n2 force_boot", ""),
    ("-n n2 change_cluster_node_type disc", "into a disc node"),
    ("-n n2 update_cluster_nodes n1", "Will seed"),
    ("-n n2 reset", "Resetting node"),
    ("-n n2 join_cluster n1", "Clustering node"),
    ("-n n2 start_app", "Starting node"),
    ("-n n2 stop_app", "Stopping rabbit application"),
    ("-n n1 forget_cluster_node n2", "Removing node n2"),
    ("-n n2 force_reset", "Forcefully resetting"),
    ("-n n2 stop", "Stopping and halting"),
)
# The one refuses, as RabbitMQ's always does; the other would end the last node.
LEFT_OUT = ("rotate_logs", "shutdown")


def words_of(line: str) -> list[str]:
    """With the verb first, where `shalott ctl` has it."""
    words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", line)]
    verb = next(word for word in words if word in VERBS)
    words.remove(verb)
    return [verb, *words]


@pytest.mark.local
def test_every_verb_works_through_ctl(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(urls_of(cluster)[0], "shared", b"x")
    assert {words_of(line)[0] for line, _ in TYPED} == {*VERBS} - {*LEFT_OUT}
    for typed, said in TYPED:
        line = typed.replace("DIRECTORY", str(tmp_path))
        code = run_command(["ctl", *words_of(line), "--run", place_of(cluster)])
        out, err = capsys.readouterr()
        assert code == 0 and said in out, (line, code, out, err)


@pytest.mark.docker
def test_a_cluster_of_containers_serves_clients_until_it_is_cleaned(tmp_path: Path) -> None:
    words = ("up", "mirrored", "--nodes", "2", "--profile", "safe", "--cluster", "docker")
    done = shalott(tmp_path, *words, "--detach")
    assert done.returncode == 0, done.stderr
    try:
        first, second = urls_of(done.stdout)
        publish(first, "shared", b"from n1")
        assert get(second, "shared") == b"from n1"
        asked = shalott(tmp_path, "ctl", "cluster_status", "--run", place_of(done.stdout))
        assert asked.returncode == 0 and "Running Nodes" in asked.stdout
    finally:
        cleaned = shalott(tmp_path, "clean")
    assert "ended mirrored of `shalott up`" in cleaned.stdout, cleaned
