"""An unmodified rabbitmqadmin of RabbitMQ 3.10 runs each of its 43 subcommands at a node of ours.

It is downloaded from Debian each night (tests/world/rabbit/original_tools.py).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pika.exceptions import ConnectionClosedByBroker

from shalott.cluster.local.backend import HOST
from tests.broker.rabbit.amqp.pika_flows import connected
from tests.world.processes.rabbit import NodeProcess, running_nodes
from tests.world.rabbit.original_tools import rabbitmqadmin
from tests.world.waiting import until

pytestmark = [pytest.mark.local, pytest.mark.nightly("downloads rabbitmqadmin")]

SUBCOMMANDS = 43


@dataclass
class Admin:
    """``done``: the subcommands that were run, by their first two words."""

    program: Path
    node: NodeProcess
    done: set[str]

    def __call__(self, *words: str, exit_code: int = 0) -> str:
        port = str(self.node.management_port)
        ran = subprocess.run(
            [sys.executable, str(self.program), "-H", HOST, "-P", port, *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.node.directory,
        )
        assert ran.returncode == exit_code, (words, ran.stdout, ran.stderr)
        plain = [word for word in words if not word.startswith("-")]
        alone = plain[0] in ("publish", "get", "export", "import")
        self.done.add(plain[0] if alone else " ".join(plain[:2]))
        return ran.stdout

    def rows(self, *words: str) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = json.loads(self(*words, "-f", "raw_json"))
        return shown


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_nodes(tmp_path_factory.mktemp("admin"), ("n1",)) as (one,):
        yield one


def test_all_subcommands(node: NodeProcess, tmp_path: Path) -> None:
    admin = Admin(rabbitmqadmin(tmp_path), node, set())
    told = admin("help", "subcommands")
    admin("help", "config")
    _declares(admin)
    _lists(admin)
    _messages(admin, tmp_path)
    _definitions(admin, tmp_path)
    _deletes(admin)
    kinds = re.findall(r"^  (list|show|declare|delete|close|purge) (\w+)", told, re.MULTILINE)
    others = re.findall(r"^  (publish|get|export|import) ", told, re.MULTILINE)
    wanted = {*map(" ".join, kinds), *others, "help subcommands", "help config"}
    assert len(wanted) == SUBCOMMANDS
    assert admin.done == wanted


def _declares(admin: Admin) -> None:
    assert admin("declare", "exchange", "name=logs", "type=topic").strip() == "exchange declared"
    admin("declare", "exchange", "name=sink", "type=fanout", "durable=false", "internal=true")
    admin("declare", "queue", "name=q1", "durable=true", 'arguments={"x-max-length": 9}')
    admin("declare", "queue", "name=q1", "durable=false", exit_code=1)
    admin("declare", "queue", "name=q2", "auto_delete=true", "durable=false", "node=rabbit@n1")
    admin("declare", "binding", "source=logs", "destination=q1", "routing_key=a.#")
    admin(
        *("declare", "binding", "source=logs", "destination=sink"),
        *("destination_type=exchange", 'arguments={"x": 1}'),
    )
    admin("declare", "vhost", "name=v1", "tracing=false")
    admin("declare", "user", "name=alice", "password=secret", "tags=monitoring,policymaker")
    admin("declare", "permission", "vhost=v1", "user=alice", "configure=.*", "write=", "read=.*")
    admin("declare", "parameter", "component=vhost-limits", "name=limits", 'value={"max-queues":9}')
    admin("declare", "parameter", "component=none", "name=x", "value=1", exit_code=1)
    definition = 'definition={"max-length": 5}'
    admin("declare", "policy", "name=p", "pattern=^q", definition, "priority=3", "apply-to=queues")
    admin("declare", "operator_policy", "name=op", "pattern=^q", definition)
    admin("declare", "vhost_limit", "vhost=v1", "name=max-connections", "value=7")


def _lists(admin: Admin) -> None:
    assert [each["name"] for each in admin.rows("list", "queues", "name")] == ["q1", "q2"]
    (logs,) = [each for each in admin.rows("list", "exchanges") if each["name"] == "logs"]
    assert (logs["type"], logs["durable"]) == ("topic", True)
    assert "| logs" in admin("list", "bindings")
    assert [each["name"] for each in admin.rows("list", "users")] == ["alice", "guest"]
    assert [each["name"] for each in admin.rows("list", "vhosts")] == ["/", "v1"]
    (own,) = [each for each in admin.rows("list", "permissions") if each["user"] == "alice"]
    assert (own["vhost"], own["write"], own["read"]) == ("v1", "", ".*")
    (shown,) = admin.rows("list", "nodes")
    assert shown["mem_used"] >= 0
    assert {each["component"] for each in admin.rows("list", "parameters")} == {
        "vhost-limits",
        "operator_policy",
    }
    (policy,) = admin.rows("list", "policies")
    assert (policy["priority"], policy["apply-to"]) == (3, "queues")
    (operators,) = admin.rows("list", "operator_policies")
    assert operators["definition"] == {"max-length": 5}
    limits = {each["vhost"]: each["value"] for each in admin.rows("list", "vhost_limits")}
    assert limits == {"/": {"max-queues": 9}, "v1": {"max-connections": 7}}
    assert "rabbitmq_version" in admin("show", "overview")
    by_name = admin.rows("list", "exchanges", "name", "--sort", "name", "--sort-reverse")
    assert [*by_name] == sorted(by_name, key=lambda each: str(each["name"]), reverse=True)


def _messages(admin: Admin, directory: Path) -> None:
    said = admin("publish", "routing_key=a.b", "exchange=logs", "payload=hello")
    assert said.strip() == "Message published"
    said = admin(
        *("publish", "routing_key=q1", "payload_encoding=base64", "payload=/w=="),
        'properties={"delivery_mode": 2, "headers": {"n": 1}, "timestamp": 5}',
    )
    assert said.strip() == "Message published"
    assert "NOT routed" in admin("publish", "routing_key=nowhere", "payload=x")
    first, second = admin.rows("get", "queue=q1", "count=5")
    assert (first["payload"], first["exchange"], first["routing_key"]) == ("hello", "logs", "a.b")
    assert (second["payload"], second["payload_encoding"]) == ("/w==", "base64")
    assert second["properties"] == {"delivery_mode": 2, "headers": {"n": 1}, "timestamp": 5}
    assert (first["message_count"], second["message_count"]) == (1, 0)
    (again,) = admin.rows("get", "queue=q1", "ackmode=ack_requeue_false")
    assert again["redelivered"] is True
    admin("purge", "queue", "name=q1")
    admin("publish", "routing_key=q1", "payload=text")
    admin("get", "queue=q1", "payload_file=payload")
    assert (admin.node.directory / "payload").read_text() == "text"
    admin("purge", "queue", "name=q1")
    assert admin.rows("get", "queue=q1") == []
    closed = pytest.raises(ConnectionClosedByBroker, match="Closed via management plugin")
    with closed, connected(admin.node.address) as connection:
        channel = connection.channel()
        channel.basic_consume("q1", lambda *_: None)
        (shown,) = admin.rows("list", "connections")
        assert shown["user"] == "guest"
        assert [each["vhost"] for each in admin.rows("list", "channels")] == ["/"]
        assert [each["queue"]["name"] for each in admin.rows("list", "consumers")] == ["q1"]
        admin("close", "connection", f"name={shown['name']}")
        channel.start_consuming()
    until(lambda: admin.rows("list", "connections") == [], "the connection is closed")


def _definitions(admin: Admin, directory: Path) -> None:
    admin("export", str(directory / "all.json"))
    told = json.loads((directory / "all.json").read_text())
    assert {each["name"] for each in told["queues"]} == {"q1", "q2"}
    admin("import", str(directory / "all.json"))
    admin("export", str(directory / "v1.json"), "-V", "v1")


def _deletes(admin: Admin) -> None:
    (bound,) = [each for each in admin.rows("list", "bindings") if each["routing_key"] == "a.#"]
    key = f"properties_key={bound['properties_key']}"
    admin("delete", "binding", "source=logs", "destination_type=queue", "destination=q1", key)
    admin("delete", "queue", "name=q1")
    admin("delete", "queue", "name=q1", exit_code=1)
    admin("delete", "exchange", "name=logs")
    admin("delete", "permission", "vhost=v1", "user=alice")
    admin("delete", "user", "name=alice")
    admin("delete", "vhost_limit", "vhost=v1", "name=max-connections")
    admin("delete", "vhost", "name=v1")
    admin("delete", "parameter", "component=vhost-limits", "name=limits")
    admin("delete", "policy", "name=p")
    admin("delete", "operator_policy", "name=op")
    for kind in ("policies", "operator_policies", "parameters", "vhost_limits"):
        assert admin.rows("list", kind) == []
    assert [each["name"] for each in admin.rows("list", "users")] == ["guest"]
