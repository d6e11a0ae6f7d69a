"""Compose files as the public has them: what each means to a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from shalott.cluster.compose.project import Project, read_project
from shalott.cluster.nodes import ContainerSpec
from shalott.cluster.services import COMPLETED, HEALTHY, Service
from shalott.core.errors import UsageError
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.unit

HERE = Path(__file__).parent / "strangers"


def read(name: str, **environment: str) -> Project:
    return read_project(HERE / f"{name}.yaml", environment)


def service(project: Project, name: str) -> Service:
    return next(each for each in project.services if each.name == name)


def container(project: Project, node: str) -> ContainerSpec:
    told = project.nodes[node].container
    assert told is not None
    return told


def ports(project: Project) -> dict[str, int]:
    return {name: spec.ports["client"] for name, spec in project.nodes.items()}


def test_nats_with_a_box_that_makes_a_stream() -> None:
    found = read("nats")
    assert ports(found) == {"nats-1": 4222, "nats-2": 4222, "nats-3": 4222}
    assert {spec.image for spec in found.nodes.values()} == {"nats:2.10-alpine"}
    one = container(found, "nats-1")
    assert (one.data, one.names) == ("/data", ("nats-1", "cluster"))
    assert isinstance(one.config["Cmd"], list) and one.config["Cmd"][:2] == [
        "--cluster_name",
        "NATS",
    ]
    box = service(found, "nats-box")
    assert box.is_job and set(box.waits) == {*found.nodes}


def test_redis_with_sentinels() -> None:
    """Redis' three containers are more than the two sentinels; the debugger is in no profile."""
    found = read("redis")
    assert [*found.nodes] == ["redis-master", "redis-replica-1", "redis-replica-2"]
    assert container(found, "redis-master").names == ("redis-master", "master")
    assert container(found, "redis-replica-1").config["Env"] == [
        "REDIS_TLS_ENABLED=no",
        "ALLOW_EMPTY_PASSWORD=yes",
        "REDIS_AOF_ENABLED=no",
        "REDIS_REPLICATION_MODE=slave",
        "REDIS_MASTER_HOST=redis-master",
    ]
    sentinel = service(found, "sentinel-1")
    assert sentinel.waits["redis-master"] == HEALTHY and not sentinel.is_job
    told = sentinel.containers["sentinel-1"].container
    assert told is not None and told.host["Memory"] == 128 << 20
    assert "insight" not in [each.name for each in found.services]
    debugged = read("redis", COMPOSE_PROFILES="debug,other")
    assert "insight" in [each.name for each in debugged.services]


def test_kafka_with_a_job_and_a_page() -> None:
    found = read("kafka", CLUSTER_ID="4L6g3nShT-eMCtK--X86sw")
    assert ports(found) == {"kafka-1": 9092, "kafka-2": 9092, "kafka-3": 9092}
    three = container(found, "kafka-3")
    environment = three.config["Env"]
    assert isinstance(environment, list)
    assert {
        "KAFKA_NODE_ID=3",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE=false",
        "KAFKA_HEAP_OPTS=-Xmx512m $MORE_OPTS",
    } <= {*map(str, environment)}
    assert (three.data, three.stop_ms) == ("/var/lib/kafka/data", 90_000)
    assert three.health is not None and three.health.patience_s == 260
    job = service(found, "init-topics")
    assert job.is_job and service(found, "kafka-ui").waits == {"init-topics": COMPLETED}
    with pytest.raises(UsageError, match="the variable CLUSTER_ID is required: give one"):
        read("kafka")


def test_etcd_with_flags_that_are_anchors() -> None:
    found = read("etcd")
    assert ports(found) == {"etcd-1": 2379, "etcd-2": 2379, "etcd-3": 2379}
    three = container(found, "etcd-3")
    assert three.config["Cmd"] == ["--name=etcd-3", "--initial-cluster-token=mys3cr3ttok3n"]
    assert three.data == "/etcd_data"


def test_rabbitmq_behind_a_proxy_of_another_file() -> None:
    found = read("rabbitmq", RABBITMQ_ERLANG_COOKIE="c", RABBITMQ_PASSWORD="p")
    assert ports(found) == {"rabbitmq1": 5672, "rabbitmq2": 5672, "rabbitmq3": 5672}
    one = container(found, "rabbitmq1")
    assert one.config["Env"] == ["RABBITMQ_ERLANG_COOKIE=c", "RABBITMQ_DEFAULT_USER=guest"]
    assert one.config["Hostname"] == "rabbitmq1"
    assert one.binds == {"/etc/rabbitmq/conf.d/10-own.conf": str(HERE / "redis.env")}
    assert one.contents == {
        "/run/secrets/password": "p",
        "/etc/rabbitmq/enabled_plugins": "[rabbitmq_management].",
    }
    assert container(found, "rabbitmq2").data == "/var/lib/rabbitmq"
    proxy = service(found, "haproxy")
    assert not proxy.is_node and not proxy.is_job and set(proxy.waits) == {*found.nodes}


@pytest.mark.parametrize("system", ["nats", "redis"])
def test_our_own_examples(system: str) -> None:
    found = read_project(ROOT / "examples" / "programs" / system / "compose.yaml", {})
    assert [*found.nodes] == [f"{system}{number}" for number in (1, 2, 3)]
