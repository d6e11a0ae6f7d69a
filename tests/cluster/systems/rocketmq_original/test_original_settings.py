"""Settings of the original, by its own names, and the same names at our own brokers."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from shalott.cluster.nodes import Endpoint, Topology
from shalott.cluster.systems.record import SYSTEMS
from shalott.cluster.systems.rocket.settings import OWN_NAMES, in_own_names
from shalott.cluster.systems.rocket.settings import check_settings as check_own_settings
from shalott.cluster.systems.rocketmq_original.config import properties_of
from shalott.cluster.systems.rocketmq_original.parameters import (
    PORTS,
    Release,
    hosted_ports,
    safe_settings,
)
from shalott.cluster.systems.rocketmq_original.settings import (
    check_settings,
    settings_of_release,
)
from shalott.core.errors import UsageError
from shalott.core.plan import Plan, SystemPlan
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request

pytestmark = pytest.mark.unit

REPLICATIONS = ("master-slave", "dledger", "controller")
ELECTED = [(r, v) for v in get_args(Release) for r in REPLICATIONS if r != "controller" or v > "5"]


def plan_of(
    replication: str = "controller",
    version: str = "5.3.3",
    services: dict[str, tuple[str, ...]] | None = None,
    **policy: Any,
) -> SystemPlan:
    return SystemPlan(
        name="rocketmq",
        profile="upstream",
        parameters={"replication": replication, "version": version, "topic_made_at": "all"},
        policy=policy,
        services=services or {},
    )


def topology(count: int = 3) -> Topology:
    nodes = [f"n{number + 1}" for number in range(count)]
    at = {
        node: {name: Endpoint(f"10.1.1.{11 + i}", port) for name, port in PORTS.items()}
        for i, node in enumerate(nodes)
    }
    everywhere = {name: Endpoint("0.0.0.0", port) for name, port in PORTS.items()}
    return Topology(
        listen=dict.fromkeys(nodes, everywhere),
        dial={a: {b: at[b] for b in nodes if b != a} for a in nodes},
        data_dir=dict.fromkeys(nodes, "/data"),
        config_dir=dict.fromkeys(nodes, "/etc/shalott"),
    )


def parsed(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize(("replication", "version"), ELECTED)
def test_the_safe_profile_is_made_of_the_releases_settings(replication: str, version: str) -> None:
    plan = plan_of(replication, version)
    settings = dict(safe_settings(plan.parameters))
    check_settings(plan_of(replication, version, **settings))
    assert settings["flushDiskType"] == "SYNC_FLUSH"


@pytest.mark.parametrize("version", get_args(Release))
def test_each_release_told_its_settings(version: str) -> None:
    told = settings_of_release(version)
    assert len(told["broker"]) > 150 and len(told["nameserver"]) > 15
    assert bool(told["controller"]) == (version > "5")


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        ({"flushDiskTyp": "SYNC_FLUSH"}, "no such setting; did you mean flushDiskType"),
        ({"flushDiskType": "SYNC"}, "it is ASYNC_FLUSH or SYNC_FLUSH"),
        ({"allAckInSyncStateSet": "yes"}, "it is true or false"),
        ({"inSyncReplicas": "two"}, "it is a number, by default 1"),
        ({"brokerName": "b"}, "the harness's own"),
        ({"nameserver.flushDiskType": "SYNC_FLUSH"}, "no such setting"),
        ({"brokerRole": "SYNC_MASTER"}, "their role by election"),
        ({"controllerType": "raft"}, "it is DLedger or jRaft"),
        ({"jRaftInitConf": "n1:9880"}, "the harness's own"),
    ],
)
def test_what_is_refused(policy: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        check_settings(plan_of(**policy))


def test_a_setting_of_a_later_release_is_none_of_an_earlier_one() -> None:
    check_settings(plan_of("dledger", "5.3.3", inSyncReplicas=2))
    with pytest.raises(UsageError, match="RocketMQ 4.9.7 has no such setting"):
        check_settings(plan_of("dledger", "4.9.7", inSyncReplicas=2))


def test_a_release_without_controllers_says_so() -> None:
    request = Request(
        system="rocketmq", nemesis="none", given={"version": "4.9.7", "replication": "controller"}
    )
    with pytest.raises(UsageError, match="has no controllers"):
        make_plan(request, backend="docker", seed=1)


def safe_plan(**given: str) -> Plan:
    request = Request(system="rocketmq", nemesis="none", profile="safe", given=given)
    return make_plan(request, backend="docker", seed=1)


def test_the_profile_goes_with_the_replication() -> None:
    assert safe_plan(replication="controller").system.policy["allAckInSyncStateSet"] is True
    assert safe_plan(replication="dledger").system.policy == {"flushDiskType": "SYNC_FLUSH"}
    by_hand = safe_plan(replication="master-slave").system.policy
    assert by_hand["brokerRole"] == "SYNC_MASTER"


def test_promises_follow_the_settings() -> None:
    record = SYSTEMS.find("rocketmq")
    assert record.promises(safe_plan(replication="controller")).keeps_acknowledged
    assert record.promises(safe_plan(replication="dledger")).copies == 2
    request = Request(system="rocketmq", nemesis="none")
    upstream = make_plan(request, backend="docker", seed=1)
    assert not record.promises(upstream).keeps_acknowledged


def test_each_machine_gets_the_settings_that_it_has() -> None:
    plan = plan_of(flushDiskType="SYNC_FLUSH", scanNotActiveBrokerInterval=3000)
    files = properties_of(plan, topology(), "n1")
    assert sorted(files) == ["broker.properties", "nameserver.properties"]
    broker, server = parsed(files["broker.properties"]), parsed(files["nameserver.properties"])
    assert broker["flushDiskType"] == "SYNC_FLUSH" and "flushDiskType" not in server
    assert server["scanNotActiveBrokerInterval"] == "3000"
    assert server["enableControllerInNamesrv"] == "true"
    assert server["controllerDLegerPeers"] == (
        "n0-10.1.1.11:9878;n1-10.1.1.12:9878;n2-10.1.1.13:9878"
    )
    assert broker["controllerAddr"] == "10.1.1.11:9878;10.1.1.12:9878;10.1.1.13:9878"
    assert broker["brokerIP1"] == "10.1.1.11"


def test_the_first_broker_is_the_master_where_nobody_elects() -> None:
    plan = plan_of("master-slave", brokerRole="SYNC_MASTER")
    roles = {}
    for node in ("n1", "n2", "n3"):
        own = parsed(properties_of(plan, topology(), node)["broker.properties"])
        roles[node] = (own["brokerId"], own["brokerRole"])
    assert roles == {"n1": ("0", "SYNC_MASTER"), "n2": ("1", "SLAVE"), "n3": ("2", "SLAVE")}


def test_members_of_dledger_have_numbers() -> None:
    own = parsed(properties_of(plan_of("dledger"), topology(), "n2")["broker.properties"])
    assert own["dLegerSelfId"] == "n1"
    assert own["dLegerPeers"] == "n0-10.1.1.11:40911;n1-10.1.1.12:40911;n2-10.1.1.13:40911"


def test_services_on_nodes_of_their_own() -> None:
    services = {
        "n1": ("broker",), "n2": ("broker",), "n3": ("nameserver",), "n4": ("controller",),
    }  # fmt: skip
    plan = plan_of(services=services)
    files = {node: sorted(properties_of(plan, topology(4), node)) for node in services}
    assert files == {
        "n1": ["broker.properties"],
        "n2": ["broker.properties"],
        "n3": ["nameserver.properties"],
        "n4": ["controller.properties"],
    }
    own = parsed(properties_of(plan, topology(4), "n1")["broker.properties"])
    assert own["namesrvAddr"] == "10.1.1.13:9876" and own["controllerAddr"] == "10.1.1.14:9878"


# -- the same names at our own ---------------------------------------------------------------------


def test_upstreams_names_are_those_of_a_release() -> None:
    told = settings_of_release("5.3.3")
    known = {name for own in told.values() for name in own}
    assert [name for name in OWN_NAMES if name not in known] == []


def test_our_own_brokers_take_upstreams_names() -> None:
    request = Request(
        system="controller",
        nemesis="none",
        policy=("flushDiskType=SYNC_FLUSH", "mappedFileSizeConsumeQueue=6000",
                "scanNotActiveBrokerInterval=3000", "ha.in_sync_replicas=2"),
    )  # fmt: skip
    plan = make_plan(request, backend="docker", seed=1)
    assert plan.system.policy == {
        "store.flush": "sync",
        "store.queue_segment_units": 300,
        "name_server_scan_interval_ms": 3000,
        "controller.scan_not_active_broker_interval_ms": 3000,
        "ha.in_sync_replicas": 2,
    }
    check_own_settings("controller", plan.system.policy)


def test_a_system_takes_what_it_has_of_several_names() -> None:
    known = ("name_server_scan_interval_ms",)
    assert in_own_names({"scanNotActiveBrokerInterval": 5}, known) == {known[0]: 5}


def test_a_value_that_ours_cannot_be_is_refused_in_upstreams_words() -> None:
    with pytest.raises(UsageError, match="--policy flushDiskType=SYNC: it is SYNC_FLUSH or"):
        in_own_names({"flushDiskType": "SYNC"}, ())


def controllers_words(**policy: Any) -> dict[str, str]:
    """Of the node n2, the words of its controller's own file."""
    services = dict.fromkeys(("n1", "n2"), ("broker", "nameserver", "controller"))
    plan = plan_of(services={**services, "n3": ("broker", "nameserver")}, **policy)
    check_settings(plan)
    return parsed(properties_of(plan, topology(), "n2")["nameserver.properties"])


def test_controllers_have_the_raft_that_is_asked_for() -> None:
    own = controllers_words(controllerType="jRaft", jRaftScanWaitTimeoutMs=5000)
    assert own["controllerType"] == "jRaft" and own["jRaftScanWaitTimeoutMs"] == "5000"
    assert own["jRaftServerId"] == "10.1.1.12:9880"
    assert own["jRaftInitConf"] == "10.1.1.11:9880,10.1.1.12:9880"
    assert own["jRaftControllerRPCAddr"] == "10.1.1.11:9878,10.1.1.12:9878"
    assert not any(word.startswith("controllerDLeger") for word in own)
    usual = controllers_words()
    assert usual["controllerDLegerPeers"] == "n0-10.1.1.11:9878;n1-10.1.1.12:9878"
    assert not any(word.startswith("jRaft") for word in usual)


def test_only_controllers_with_jraft_have_a_port_for_their_peers() -> None:
    assert "jraft" in hosted_ports(plan_of(controllerType="jRaft"), "n1")
    assert "jraft" in hosted_ports(plan_of(**{"controller.controllerType": "jRaft"}), "n1")
    assert "jraft" not in hosted_ports(plan_of(), "n1")
    brokers_only = {"n1": ("broker",), "n2": ("controller",), "n3": ("broker",)}
    plan = plan_of(services=brokers_only, controllerType="jRaft")
    assert [n for n in brokers_only if "jraft" in hosted_ports(plan, n)] == ["n2"]


@pytest.mark.parametrize("version", ["5.1.4", "4.9.7"])
def test_releases_before_5_2_have_no_jraft(version: str) -> None:
    for name, value in (("controllerType", "jRaft"), ("jRaftScanWaitTimeoutMs", 5000)):
        with pytest.raises(UsageError, match="has no such setting"):
            check_settings(plan_of("dledger", version, **{name: value}))
