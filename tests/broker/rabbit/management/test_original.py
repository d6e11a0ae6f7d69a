"""Definitions and metrics beside RabbitMQ 3.10 itself: what either exports the other one imports.

Run each night, where Debian's rabbitmq-server is installed.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from shalott.broker.base.http_client import Asked
from shalott.broker.rabbit.management.api import ROUTES
from shalott.broker.rabbit.management.metrics import GLOBALS, METRICS
from shalott.broker.rabbit.management.upkeep import OPEN_ROUTES
from shalott.cluster.local.backend import HOST
from tests.world.processes.rabbit import NodeProcess, running_nodes
from tests.world.rabbit.original_tools import Original, running_original

pytestmark = [pytest.mark.local, pytest.mark.nightly("runs a node of RabbitMQ's")]

DECLARED: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("PUT", "vhosts/v1", {}),
    ("PUT", "users/al", {"password": "secret", "tags": "monitoring,policymaker"}),
    ("PUT", "users/bo", {"password_hash": "", "tags": ""}),
    ("PUT", "permissions/v1/al", {"configure": "^a", "write": ".*", "read": ""}),
    ("PUT", "topic-permissions/v1/al", {"exchange": "amq.topic", "write": "^w", "read": "^r"}),
    ("PUT", "vhost-limits/v1/max-queues", {"value": 50}),
    ("PUT", "user-limits/al/max-channels", {"value": 9}),
    ("PUT", "policies/%2F/p", {"pattern": "^q", "definition": {"max-length": 9}, "priority": 3}),
    ("PUT", "operator-policies/v1/op", {"pattern": "", "definition": {"expires": 99000}}),
    ("PUT", "queues/%2F/q1", {"durable": True, "arguments": {"x-max-priority": 4}}),
    ("PUT", "queues/v1/q2", {"durable": True, "arguments": {"x-dead-letter-exchange": "dead"}}),
    ("PUT", "exchanges/%2F/e1", {"type": "topic", "durable": True}),
    (
        "PUT",
        "exchanges/%2F/e2",
        {
            "type": "headers",
            "durable": True,
            "internal": True,
            "arguments": {"alternate-exchange": "e1"},
        },
    ),
    ("POST", "bindings/%2F/e/e1/q/q1", {"routing_key": "a.*"}),
    ("POST", "bindings/%2F/e/e1/e/e2", {"arguments": {"x-match": "any", "n": 1, "s": "t"}}),
    ("PUT", "global-parameters/colour", {"value": {"rgb": [1, 2, 3]}}),
)
ETS = "/api/nodes/:node/memory/ets"
LEFT_OUT = [
    *("/api/nodes/:node/memory", "/api/nodes/:node/memory/relative"),
    *(ETS, f"{ETS}/relative", f"{ETS}/:filter", f"{ETS}/:filter/relative"),
    "/api/rebalance/queues",
]
# In an order of its own with each broker: by what tells one from another.
SORTED_BY = ("vhost", "name", "user", "component", "source", "destination")
KINDS = (
    *("users", "vhosts", "permissions", "topic_permissions", "parameters", "policies"),
    *("queues", "exchanges", "bindings"),
)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Original]:
    with running_original(tmp_path_factory.mktemp("original")) as one:
        yield one


@pytest.fixture
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_nodes(tmp_path_factory.mktemp("ours"), ("n1",)) as (one,):
        yield one


def ask(port: int, method: str, path: str, body: object = None) -> Any:
    content = b"" if body is None else json.dumps(body).encode()
    answer = asyncio.run(Asked(HOST, port).request(method, f"/api/{path}", content))
    assert answer.status < 300, (method, path, answer)
    return json.loads(answer.body) if answer.body else None


def exported(port: int) -> dict[str, list[dict[str, Any]]]:
    told = ask(port, "GET", "definitions")
    for vhost in told["vhosts"]:
        vhost.pop("metadata", None)
    return {
        kind: sorted(
            (each for each in told[kind] if each.get("name") != "guest"),
            key=lambda each: [str(each.get(key)) for key in SORTED_BY],
        )
        for kind in KINDS
    }


def logs_in(port: int, user: str, password: str, vhost: str) -> bool:
    credentials = pika.PlainCredentials(user, password)
    parameters = pika.ConnectionParameters(HOST, port, vhost, credentials)
    try:
        pika.BlockingConnection(parameters).close()
    except pika.exceptions.AMQPError:
        return False
    return True


def test_what_rabbitmq_exports_is_imported(original: Original, ours: NodeProcess) -> None:
    for method, path, body in DECLARED:
        ask(original.management_port, method, path, body)
    told = ask(original.management_port, "GET", "definitions")
    ask(ours.management_port, "POST", "definitions", told)
    assert exported(ours.management_port) == exported(original.management_port)
    assert logs_in(ours.address.port, "al", "secret", "v1")
    assert not logs_in(ours.address.port, "al", "wrong", "v1")
    assert not logs_in(ours.address.port, "bo", "", "v1")


def test_what_ours_exports_is_imported(original: Original, ours: NodeProcess) -> None:
    for method, path, body in DECLARED:
        ask(ours.management_port, method, path, body)
    told = ask(ours.management_port, "GET", "definitions")
    assert original.ctl("stop_app").returncode == 0
    assert original.ctl("reset").returncode == 0
    assert original.ctl("start_app").returncode == 0
    ask(original.management_port, "POST", "definitions", told)
    assert exported(original.management_port) == exported(ours.management_port)
    assert logs_in(original.amqp_port, "al", "secret", "v1")
    assert logs_in(original.amqp_port, "guest", "guest", "/")


def test_metrics_have_rabbitmqs_names_types_and_texts(original: Original) -> None:
    """Those that ours has; what it has not stands in docs/reference/management.md."""
    answer = asyncio.run(Asked(HOST, original.metrics_port).request("GET", "/metrics"))
    heads = [line for line in answer.body.decode().splitlines() if line.startswith("# ")]
    theirs = dict.fromkeys(heads)
    told = [(metric.name, metric.kind, metric.text) for metric in METRICS]
    told += [(f"global_{each.name}", each.kind, each.text) for each in GLOBALS]
    for name, kind, text in told:
        assert f"# TYPE rabbitmq_{name} {kind}" in theirs
        assert f"# HELP rabbitmq_{name} {text}" in theirs
    for each in GLOBALS:
        wanted = ",".join(f'{name}="{value}"' for name, value in each.labels.items())
        assert f"rabbitmq_global_{each.name}{{{wanted}}} " in answer.body.decode()


def test_the_api_has_rabbitmqs_routes(original: Original) -> None:
    """But for those that docs/reference/management.md leaves out."""
    asked = original.ctl("eval", "[P || {P, _, _} <- rabbit_mgmt_dispatcher:dispatcher()].")
    theirs = [f"/api{path}" for path in dict.fromkeys(re.findall(r'"(/[^"]+)"', asked.stdout))]
    assert len(theirs) > 80
    paths = [route.path for route in (*ROUTES, *OPEN_ROUTES)]
    ours = dict.fromkeys(shape_of(path) for path in paths)
    missing = [path for path in theirs if shape_of(path) not in ours]
    assert missing == LEFT_OUT


def shape_of(path: str) -> str:
    """Whatever its parameters are called."""
    return (
        re.sub("/:[a-z_]+", "/:", path)
        .replace("/bindings/source", "/bindings/:")
        .replace("/bindings/destination", "/bindings/:")
    )
