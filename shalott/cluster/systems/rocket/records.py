"""RocketMQ's three kinds of replication as records: our own brokers in each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from shalott.broker.rocket.config import RaftConfig
from shalott.cluster.nodes import NodeSpec
from shalott.cluster.system import System
from shalott.cluster.systems.own_broker import check_own_bugs
from shalott.cluster.systems.record import (
    Layouts,
    LogPromises,
    Parameters,
    Profile,
    Services,
    SystemRecord,
)
from shalott.cluster.systems.rocket import layout
from shalott.cluster.systems.rocket.drawing import SAFE_SETTINGS, drawer_of, searches_of
from shalott.cluster.systems.rocket.settings import check_settings, in_own_names, setting_names
from shalott.core.parameters import NoParameters
from shalott.core.plan import Plan, nodes_hosting

if TYPE_CHECKING:
    from shalott.cluster.sim.buggify import Buggify
    from shalott.cluster.sim.machine import Program


REMOTING = "rocketmq-remoting"  # brokers and name servers of RocketMQ


def make_master_slave(plan: Plan) -> System:
    from shalott.cluster.systems.rocket.master_slave import MasterSlaveSystem

    return MasterSlaveSystem(plan.system, plan.seed)


def make_elected(plan: Plan) -> System:
    from shalott.cluster.systems.rocket.rocketmq import RocketmqSystem

    return RocketmqSystem(plan.system, plan.seed)


def make_controllers(plan: Plan) -> System:
    from shalott.cluster.systems.rocket.rocketmq import ControllerSystem

    return ControllerSystem(plan.system, plan.seed)


def broker_program(spec: NodeSpec, seed: int, buggify: Buggify) -> Program:
    from shalott.cluster.systems.broker_program import broker_program

    return broker_program(spec, seed, buggify)


def check(plan: Plan) -> None:
    """Bugs, settings and services that the system has. Raises UsageError."""
    check_own_bugs(plan.system)
    check_settings(plan.system.name, plan.system.policy)
    layout.check_services(plan.system.name, plan.cluster.nodes, plan.system.services)


def canonical(system: str, policy: Parameters) -> Parameters:
    """Settings by our names, of what may be upstream's. Raises UsageError."""
    return in_own_names(policy, setting_names(system))


def layouts_of(system: str) -> Layouts:
    def lay_out(name: str, nodes: Sequence[str], parameters: Parameters) -> Services:
        return layout.lay_out(system, name, nodes)

    def missing(services: Services, parameters: Parameters) -> str:
        return layout.what_is_missing(system, services)

    def best_count(name: str, parameters: Parameters) -> int:
        return layout.best_count(system, name)

    return Layouts(
        names=layout.LAYOUTS[1:],
        lay_out=lay_out,
        missing=missing,
        best_count=best_count,
    )


def _flushes(plan: Plan) -> bool:
    return plan.system.policy.get("store.flush") == "sync"


def promises_of_master_slave(plan: Plan) -> LogPromises:
    """A synchronous master waits for slaves; HAService's slaves acknowledge what is written."""
    policy = plan.system.policy
    waits = policy.get("broker.role") == "SYNC_MASTER"
    return LogPromises(
        keeps_acknowledged=waits and _flushes(plan),
        copies=max(2, int(policy.get("ha.in_sync_replicas", 1))) if waits else 1,
        flushed=False,
    )


def promises_of_dledger(plan: Plan) -> LogPromises:
    """A majority has an entry on disk before it is committed, if entries are synced at once."""
    policy = plan.system.policy
    return LogPromises(
        keeps_acknowledged=policy.get("raft.flush_interval_ms") == 0 and _flushes(plan),
        copies=len(nodes_hosting(plan, "broker")) // 2 + 1,
        fresh_reads=bool(policy.get("raft.read_index")),
    )


def promises_of_controller(plan: Plan) -> LogPromises:
    """All members of the SyncStateSet, out of which masters come."""
    policy = plan.system.policy
    unclean = bool(policy.get("controller.enable_elect_unclean_master", False))
    waits = bool(policy.get("ha.all_ack_in_sync_state_set")) and not unclean
    return LogPromises(keeps_acknowledged=waits and _flushes(plan), by_set=True, unclean=unclean)


def dledger_notices_after_ms(plan: Plan) -> float:
    """A follower misses its leader after so many heartbeats (DLedgerLeaderElector,
    maxHeartBeatLeak)."""
    policy, usual = plan.system.policy, RaftConfig()
    interval_ms = float(policy.get("raft.heartbeat_interval_ms", usual.heartbeat_interval_ms))
    return interval_ms * int(policy.get("raft.max_heartbeat_leak", usual.max_heartbeat_leak))


def _record(
    name: str,
    summary: str,
    promises: Callable[[Plan], LogPromises],
    make: Callable[[Plan], System] = make_elected,
    notices_after_ms: Callable[[Plan], float] = lambda plan: 0,
) -> SystemRecord:
    return SystemRecord(
        name=name,
        summary=summary,
        make=make,
        speaks=(REMOTING,),
        workload="log",
        profiles={"upstream": Profile(), "safe": Profile(policy=SAFE_SETTINGS[name])},
        parameters=NoParameters,
        worlds=("docker", "local", "ssh", "sim"),
        check=check,
        canonical=partial(canonical, name),
        layouts=layouts_of(name),
        serves="broker",
        promises=promises,
        notices_after_ms=notices_after_ms,
        program=broker_program,
        draw=drawer_of(name),
        search=searches_of(name),
        stays_up=True,
    )


MASTER_SLAVE = _record(
    "master-slave",
    "our RocketMQ brokers with HAService: one master, its slaves, failover by hand",
    promises_of_master_slave,
    make_master_slave,
)
DLEDGER = _record(
    "dledger",
    "the same brokers on a log that Raft replicates",
    promises_of_dledger,
    notices_after_ms=dledger_notices_after_ms,
)
CONTROLLER = _record(
    "controller",
    "the same brokers under controllers that elect masters",
    promises_of_controller,
    make_controllers,
)
