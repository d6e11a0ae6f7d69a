"""RocketMQ itself as a record, in its three replications and ten releases."""

from __future__ import annotations

from collections.abc import Sequence

from shalott.cluster.system import System
from shalott.cluster.systems.own_broker import check_own_bugs
from shalott.cluster.systems.record import (
    Drawn,
    Footprint,
    Layouts,
    LogPromises,
    LogReaders,
    Parameters,
    Profile,
    Search,
    Services,
    SystemRecord,
)
from shalott.cluster.systems.rocket import layout
from shalott.cluster.systems.rocket.settings import in_upstream_names
from shalott.cluster.systems.rocketmq_original.parameters import (
    RocketmqParameters,
    has_controllers,
    replication_of,
    safe_settings,
)
from shalott.cluster.systems.rocketmq_original.settings import check_settings, settings_of_release
from shalott.core.errors import UsageError
from shalott.core.plan import Plan, SystemPlan, nodes_hosting
from shalott.core.rng import Range

REMOTING = "rocketmq-remoting"  # brokers and name servers of RocketMQ
OWN_REPLICATIONS = ("master-slave", "dledger", "controller")  # systems of ours
# Controllers give a silent master up after 10 s, and look every 5 s; DLedger's followers after 6 s.
SLOW_ELECTIONS: Parameters = {
    "time_limit_ms": (40_000, 50_000, 60_000),
    "shortest_ms": Range(1000, 8000, 500),
    "longest_ms": Range(8000, 20_000, 500),
    "interval_ms": Range(8000, 20_000, 500),
    "targets": ("one", "master", "master"),
}
# Settings of ours that a carried plan keeps, for its faults are as long as they are: when a node
# is given up, and who counts. Sizes of files are the harness's own on real nodes.
CARRIED = (
    *("ha.", "broker.controller_heartbeat_", "broker.sync_", "controller.", "store.flush"),
    *("name_server_broker_timeout_ms", "broker.register_interval_ms", "broker.role"),
)


def make(plan: Plan) -> System:
    from shalott.cluster.systems.rocketmq_original.operator import (
        ControllerOriginal,
        MasterSlaveOriginal,
    )
    from shalott.cluster.systems.rocketmq_original.system import RocketmqOriginal

    kinds = {"master-slave": MasterSlaveOriginal, "controller": ControllerOriginal}
    return kinds.get(_replication(plan), RocketmqOriginal)(plan.system)


def check(plan: Plan) -> None:
    """Raises UsageError for what the release does not have."""
    check_own_bugs(plan.system)
    release, replication = str(plan.system.parameters["version"]), _replication(plan)
    if replication == "controller" and not has_controllers(release):
        raise UsageError(
            f"RocketMQ {release} has no controllers: use --replication master-slave or dledger, or"
            " --version 5.0.0 or later"
        )
    check_settings(plan.system)
    layout.check_services(replication, plan.cluster.nodes, plan.system.services)


def _replication(plan: Plan) -> str:
    return replication_of(plan.system.parameters)


def lay_out(name: str, nodes: Sequence[str], parameters: Parameters) -> Services:
    return layout.lay_out(replication_of(parameters), name, nodes)


def missing(services: Services, parameters: Parameters) -> str:
    return layout.what_is_missing(replication_of(parameters), services)


def best_count(name: str, parameters: Parameters) -> int:
    return layout.best_count(replication_of(parameters), name)


def promises(plan: Plan) -> LogPromises:
    """What the plan's settings promise of an acknowledged message."""
    policy, replication = plan.system.policy, _replication(plan)
    flushes = policy.get("flushDiskType") == "SYNC_FLUSH"
    if replication == "dledger":
        # A majority has an entry, and flushes it a moment later: a power loss may take it.
        majority = len(nodes_hosting(plan, "broker")) // 2 + 1
        # How far a new leader's log goes is in no line of its log.
        return LogPromises(
            keeps_acknowledged=True, copies=majority, flushed=False, masters_tell_end=False
        )
    if replication == "controller":
        unclean = bool(policy.get("enableElectUncleanMaster", False))
        waits = bool(policy.get("allAckInSyncStateSet", False)) and not unclean
        return LogPromises(keeps_acknowledged=waits and flushes, by_set=True, unclean=unclean)
    waits = policy.get("brokerRole") == "SYNC_MASTER"
    copies = max(2, int(policy.get("inSyncReplicas", 1))) if waits else 1
    return LogPromises(keeps_acknowledged=waits and flushes, copies=copies, flushed=False)


def readers(plan: Plan) -> LogReaders:
    """By default slaves refuse readers, and who waits for a message is looked after every 5 s."""
    at_slaves = bool(plan.system.policy.get("slaveReadEnable", False))
    return LogReaders(at_slaves=at_slaves, wait_ms=0, tell_where=True)


def wanted(knobs: Parameters) -> tuple[str, ...]:
    """What a search wants to have seen, of what the originals' logs tell."""
    return ("became_master", "became_slave", "client_ok", "client_fail", "client_info")


def notices_after_ms(plan: Plan) -> float:
    """DLedger's followers miss their leader after three heartbeats of 2 s."""
    return 6000.0 if _replication(plan) == "dledger" else 0.0


def carry(plan: SystemPlan, asked: Parameters) -> Drawn | None:
    """Of our rebuilds of its three replications, with those settings that the release has."""
    if plan.name not in OWN_REPLICATIONS:
        return None
    release = str(asked.get("version", RocketmqParameters().version))
    known = [name for own in settings_of_release(release).values() for name in own]
    policy = in_upstream_names(plan.policy, CARRIED)
    return Drawn(
        parameters={"replication": plan.name},
        policy={name: value for name, value in policy.items() if name in known},
    )


ROCKETMQ = SystemRecord(
    name="rocketmq",
    summary="RocketMQ 4.9 to 5.5 itself, from its Maven artifacts",
    make=make,
    speaks=(REMOTING,),
    workload="log",
    profiles={"upstream": Profile(), "safe": Profile(policy_for=safe_settings)},
    parameters=RocketmqParameters,
    worlds=("docker",),
    check=check,
    layouts=Layouts(
        names=layout.LAYOUTS[1:], lay_out=lay_out, missing=missing, best_count=best_count
    ),
    serves="broker",
    promises=promises,
    readers=readers,
    notices_after_ms=notices_after_ms,
    search={name: Search(settings=SLOW_ELECTIONS, wanted=wanted) for name in ("upstream", "safe")},
    footprint=Footprint(memory_mib=650, cpus=0.6),
    carry=carry,
    stays_up=True,
)
