"""What each plug-in's record says may be lost, by profile and settings, and how it is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pytest

import shalott_artemis.system
import shalott_etcd.system
import shalott_kafka.system
import shalott_nats.system
import shalott_rabbitmq.system
from shalott.cluster.systems.record import SYSTEMS, SystemRecord
from shalott.core.documented_loss import DocumentedLoss
from shalott.core.doors import load_module
from shalott.harness.cli.explain import documented_texts, sample_plan, system_text
from shalott_redis import system as shalott_redis
from tests.plug_ins import forget

pytestmark = pytest.mark.unit

ARTEMIS = shalott_artemis.system.SYSTEM
ETCD = shalott_etcd.system.SYSTEM
KAFKA = shalott_kafka.system.SYSTEM
NATS = shalott_nats.system.SYSTEM
RABBITMQ = shalott_rabbitmq.system.SYSTEM
REDIS, VALKEY = shalott_redis.REDIS, shalott_redis.VALKEY


@pytest.fixture(autouse=True)
def _loaded() -> Iterator[None]:
    for name in ("artemis", "etcd", "kafka", "nats", "rabbitmq", "redis"):
        load_module(f"shalott_{name}.system")
    yield
    forget()


def losses(record: SystemRecord, profile: str, **parameters: object) -> Sequence[DocumentedLoss]:
    plan = sample_plan(record, profile=profile)
    own = msgspec.structs.replace(plan.system, parameters={**plan.system.parameters, **parameters})
    return record.documented_losses(msgspec.structs.replace(plan, system=own))


def names(record: SystemRecord, profile: str, **parameters: object) -> list[str]:
    return list(dict.fromkeys(each.name for each in losses(record, profile, **parameters)))


@pytest.mark.parametrize("record", [ARTEMIS, ETCD, NATS, RABBITMQ, REDIS, VALKEY])
def test_safe_leaves_none_open_so_that_each_loss_is_called_undocumented(
    record: SystemRecord,
) -> None:
    assert names(record, "safe") == []


@pytest.mark.parametrize(
    ("record", "profile", "parameters", "expected"),
    [
        (REDIS, "default", {}, ["asynchronous", "snapshots"]),
        (VALKEY, "default", {"mode": "cluster"}, ["asynchronous", "snapshots"]),
        (REDIS, "default", {"aof": True}, ["asynchronous", "unsynced"]),
        (REDIS, "default", {"aof": True, "fsync": "always"}, ["asynchronous"]),
        (REDIS, "default", {"copies": "one"}, ["asynchronous", "snapshots"]),
        (REDIS, "default", {"copies": "all", "aof": True, "fsync": "always"}, []),
        (REDIS, "unsafe", {}, ["asynchronous", "empty-master"]),
        (NATS, "default", {}, ["unsynced"]),
        (ETCD, "default", {}, []),
        (ETCD, "unsafe", {}, ["unsynced"]),
        (RABBITMQ, "default", {}, ["unsynced"]),
        (ARTEMIS, "unsafe", {}, ["parted"]),
        (ARTEMIS, "safe", {"journal_sync": False}, ["unsynced"]),
        (KAFKA, "safe", {}, ["unsynced"]),
        (KAFKA, "safe", {"flush_messages": 1}, []),
        (KAFKA, "unsafe", {}, ["acks-1", "unclean", "unsynced"]),
    ],
)
def test_settings_open_and_close_them(
    record: SystemRecord, profile: str, parameters: dict[str, object], expected: list[str]
) -> None:
    assert names(record, profile, **parameters) == expected


def test_how_long_before_a_fault_is_the_setting_s_own() -> None:
    assert [each.before_ms for each in losses(NATS, "default")] == [120_000]
    assert [each.before_ms for each in losses(NATS, "default", sync_interval="500ms")] == [500]
    one, *_ = [each for each in losses(REDIS, "default", aof=True) if each.name == "unsynced"]
    assert one.before_ms == 1000


def test_a_copy_that_one_waits_for_is_documented_where_the_command_is() -> None:
    [loss, *_] = losses(REDIS, "default", copies="one")
    assert loss.manual.endswith("/commands/wait/")
    [loss, *_] = losses(VALKEY, "default", mode="cluster")
    assert loss.manual == "https://valkey.io/topics/cluster-tutorial/"


def test_explain_tells_them_by_profile_each_once() -> None:
    told = documented_texts(SYSTEMS.find("redis"))
    assert [each.partition(" (")[0] for each in told] == [
        "`asynchronous`",
        "`snapshots`",
        "`empty-master`",
    ]
    assert told[0].endswith("under `default`, `unsafe`")
    [unsynced, *_] = documented_texts(SYSTEMS.find("kafka"))
    assert unsynced.endswith("under `default`, `safe`, `unsafe`")
    assert "Its manual admits `empty-master`" in " ".join(
        system_text(SYSTEMS.find("redis")).split()
    )
