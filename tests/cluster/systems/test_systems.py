"""What the systems write, ask and conclude, without any node."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shalott.broker.nodes import load_config
from shalott.broker.rabbit.config import NodeConfig, Peer
from shalott.cluster.nodes import CommandResult, Endpoint, Topology
from shalott.cluster.system import members_of
from shalott.cluster.systems.rabbit.mirrored import MirroredSystem, to_toml
from shalott.cluster.systems.rabbit.rabbitmq import RabbitmqSystem, claim_of
from shalott.cluster.systems.rabbit.rabbitmq_log import read_log
from shalott.cluster.systems.settling import mirrors_wanted, why_unsettled
from shalott.core.errors import Definite, UsageError
from shalott.core.history import EVENT_SCHEMA
from shalott.core.plan import SystemPlan

pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3")
PORTS = {"amqp": 5672, "management": 15672, "cluster": 25672}


def system_plan(**fields: Any) -> SystemPlan:
    plan = SystemPlan(
        name="mirrored",
        profile="upstream",
        parameters={"partition_mode": "autoheal", "net_tick_ms": 4000},
        policy={"ha-mode": "all", "ha-sync-mode": "automatic"},
    )
    return msgspec.structs.replace(plan, **fields)


def topology() -> Topology:
    listen = {name: Endpoint("127.0.0.1", number) for name, number in PORTS.items()}
    relayed = {name: Endpoint("127.0.0.1", number + 1) for name, number in PORTS.items()}
    return Topology(
        listen=dict.fromkeys(NODES, listen),
        dial={a: {b: relayed for b in NODES if b != a} for a in NODES},
        data_dir={node: f"/data/{node}" for node in NODES},
        config_dir={node: f"/config/{node}" for node in NODES},
    )


def test_a_node_reads_the_configuration_that_was_meant(tmp_path: Path) -> None:
    spec = MirroredSystem(system_plan(bugs=("KB-RMQ-02",)), seed=1).node_specs(topology())[0]
    path = tmp_path / "node.toml"
    path.write_text(spec.files["node.toml"])
    config = load_config(path)
    assert (config.name, config.bind_host, config.amqp_port) == ("n1", "127.0.0.1", 5672)
    assert config.peers == (Peer("n2", "127.0.0.1", 25673), Peer("n3", "127.0.0.1", 25673))
    assert (config.partition_mode, config.net_tick_ms) == ("autoheal", 4000)
    assert (config.data_dir, config.bugs) == ("/data/n1", ("KB-RMQ-02",))


def test_seeds_differ_between_nodes_and_repeat_between_runs() -> None:
    def seeds(seed: int) -> list[int]:
        specs = MirroredSystem(system_plan(), seed).node_specs(topology())
        return [tomllib.loads(spec.files["node.toml"])["seed"] for spec in specs]

    assert seeds(1) == seeds(1)
    assert len({*seeds(1), *seeds(2)}) == 6


def test_every_character_survives_in_toml() -> None:
    odd = 'quote" backslash\\ newline\n tab\t ünïcödé \u2028 #'
    config = NodeConfig(name=odd, data_dir="/d", users={odd: odd}, peers=(Peer(odd, odd, 1),))
    assert msgspec.convert(tomllib.loads(to_toml(config)), NodeConfig) == config


def test_an_impossible_plan_is_refused_in_one_sentence() -> None:
    with pytest.raises(UsageError, match="unknown --partition-mode hope"):
        MirroredSystem(system_plan(parameters={"partition_mode": "hope"}), seed=1)


def test_rabbitmq_is_configured_by_the_plan() -> None:
    system = RabbitmqSystem(
        system_plan(name="rabbitmq", parameters={"partition_mode": "autoheal", "net_tick_ms": 8000})
    )
    specs = system.node_specs(topology())
    assert [spec.environment["RABBITMQ_NODENAME"] for spec in specs] == [
        f"rabbit@{node}" for node in NODES
    ]
    configuration = specs[0].files["rabbitmq.conf"].splitlines()
    assert "cluster_partition_handling = autoheal" in configuration
    assert "net_ticktime = 8" in configuration
    assert "cluster_formation.classic_config.nodes.3 = rabbit@n3" in configuration


def test_a_rabbitmq_claim_is_as_the_node_itself_sees_it() -> None:
    listed = {
        "name": "q",
        "node": "rabbit@n2",
        "slave_nodes": ["rabbit@n3", "rabbit@n1"],
        "synchronised_slave_nodes": ["rabbit@n1"],
        "state": "live",
    }
    roles = [claim_of(node, listed, NODES)["role"] for node in ("n1", "n2", "n4")]
    assert roles == ["mirror", "master", "none"]
    claim = claim_of("n1", listed, NODES)
    assert (claim["master"], claim["mirrors"]) == ("n2", ["n1", "n3"])
    assert (claim["synchronised"], claim["state"]) == (["n1"], "running")


# -- settling ----------------------------------------------------------------------------------

AUTOMATIC = {"ha-mode": "all", "ha-sync-mode": "automatic"}


class Ctl:
    """A cluster whose rabbitmqctl answers as it is told."""

    nodes = ("n1", "n2", "n3")
    left_down = ()

    def __init__(self, exit_code: int = 0, output: str = "") -> None:
        self.result = CommandResult(exit_code=exit_code, output=output)
        self.asked: list[tuple[str, Sequence[str]]] = []
        self.processes = self

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 0
    ) -> CommandResult:
        self.asked.append((node, command))
        return self.result


def rabbitmq_of(*members: str, running: Sequence[str] = ("n1", "n2")) -> RabbitmqSystem:
    """One whose nodes list these members."""
    system = RabbitmqSystem(system_plan(name="rabbitmq"))

    async def nodes(cluster: Any, node: str) -> Any:
        return [{"name": f"rabbit@{name}", "running": name in running} for name in members]

    system._nodes = nodes  # type: ignore[method-assign]
    return system


def test_rabbitmq_forgets_a_node_and_lets_it_in_again() -> None:
    async def scene() -> None:
        cluster: Any = Ctl()
        system = rabbitmq_of("n1", "n2", "n3")
        assert await system.members(cluster, "n1") == ["n1", "n2", "n3"]
        assert await system.running_members(cluster, "n1") == ["n1", "n2"]
        await system.forget(cluster, "n3", "n2")
        assert cluster.asked == [("n2", ["rabbitmqctl", "forget_cluster_node", "rabbit@n3"])]
        assert system.left_out == ("n3",) and members_of(cluster, system) == ("n1", "n2")
        await system.admit(cluster, "n3", "n1")
        assert members_of(cluster, system) == ("n1", "n2", "n3")
        forgotten = rabbitmq_of("n1", "n2")  # by an answer that was lost
        await forgotten.forget(cluster, "n3", "n1")
        assert len(cluster.asked) == 1 and forgotten.left_out == ("n3",)

    asyncio.run(scene())


def test_what_rabbitmqctl_refuses_is_said_in_its_words() -> None:
    async def scene() -> None:
        refusing: Any = Ctl(exit_code=69, output="Error:\nRabbitMQ on node rabbit@n3 must be\n")
        system = rabbitmq_of("n1", "n2", "n3")
        with pytest.raises(Definite, match="Error: RabbitMQ on node rabbit@n3 must be"):
            await system.forget(refusing, "n3", "n1")
        assert system.left_out == ()

    asyncio.run(scene())


def seen(**changes: Any) -> dict[str, Mapping[str, Any] | None]:
    """All nodes agree that q is n1's, mirrored everywhere; ``changes`` replace nodes' claims."""

    def observation(node: str) -> Mapping[str, Any]:
        claim = {
            "group": "q",
            "role": "master" if node == "n1" else "mirror",
            "epoch": 1,
            "master": "n1",
            "mirrors": ["n2", "n3"],
            "synchronised": ["n2", "n3"],
            "state": "running",
        }
        return {"running": list(NODES), "partitions": [], "claims": [claim | changes.get(node, {})]}

    return {node: observation(node) for node in NODES}


def test_a_whole_cluster_has_settled() -> None:
    assert why_unsettled(seen(), ["q"], AUTOMATIC) == ""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n2": {"master": "n2"}}, "its master is n1 or n2"),
        ({"n2": {"role": "master"}}, "n1, n2 claims it"),
        ({"n1": {"role": "none"}}, "no node claims it"),
        ({"n1": {"mirrors": ["n2"], "synchronised": ["n2"]}}, "it has 1 of 2 mirrors"),
        ({"n1": {"synchronised": ["n3"]}}, "n2 is not synchronised"),
        ({"n1": {"state": "syncing"}}, "it is syncing"),
        ({"n3": {"group": "other"}}, "n3 doesn't know it"),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, Any], reason: str) -> None:
    assert reason in why_unsettled(seen(**changes), ["q"], AUTOMATIC)


def test_nodes_that_are_away_or_parted_are_named() -> None:
    found = seen()
    assert why_unsettled({**found, "n2": None}, ["q"], AUTOMATIC) == "n2 can't be asked"
    parted = {**(found["n3"] or {}), "partitions": ["n1"]}
    assert "partition from n1" in why_unsettled({**found, "n3": parted}, ["q"], AUTOMATIC)
    alone = {**(found["n3"] or {}), "running": ["n3"]}
    assert why_unsettled({**found, "n3": alone}, ["q"], AUTOMATIC) == "n3 runs with n3"


def test_manual_synchronisation_is_not_waited_for() -> None:
    manual = {"ha-mode": "all", "ha-sync-mode": "manual"}
    assert why_unsettled(seen(n1={"synchronised": []}), ["q"], manual) == ""


@pytest.mark.parametrize(
    ("policy", "count"),
    [
        ({}, 0),
        ({"ha-mode": "all"}, 2),
        ({"ha-mode": "exactly", "ha-params": 2}, 1),
        ({"ha-mode": "exactly", "ha-params": 9}, 2),
        ({"ha-mode": "nodes", "ha-params": ["n1", "n3", "elsewhere"]}, 1),
    ],
)
def test_how_many_mirrors_a_policy_gives(policy: dict[str, Any], count: int) -> None:
    assert mirrors_wanted(policy, NODES, "n1") == count


# -- events ---------------------------------------------------------------------------------------


def test_events_are_rows_of_the_schema_and_torn_lines_are_passed_over(tmp_path: Path) -> None:
    directory = tmp_path / "n1"
    directory.mkdir()
    line = (
        '{"at_ns":5,"wall_ns":1000,"node":"n1","incarnation":1,"group":"q","kind":"role",'
        '"role":"master","epoch":3,"detail":{"why":"declared"}}\n'
    )
    (directory / "events.jsonl").write_text(line + line[:40])
    (row,) = MirroredSystem(system_plan(), seed=1).read_events(tmp_path, 400)
    assert set(row) == set(EVENT_SCHEMA.names)
    assert (row["run_ns"], row["detail"], row["epoch"]) == (600, '{"why":"declared"}', 3)


LOG = """\
2026-11-21 13:35:13.338507+00:00 [info] <0.223.0>  Starting RabbitMQ 3.10.8 on Erlang 25.2.3 [jit]
2026-11-21 13:35:31.151544+00:00 [info] <0.674.0> Server startup complete; 3 plugins started.
2026-11-21 13:35:33.350901+00:00 [info] <0.571.0> rabbit on node rabbit@n3 up
2026-11-21 13:35:34.759710+00:00 [info] <0.1291.0> Mirrored queue 'q1' in vhost '/': Adding mirror \
on node rabbit@n2: <13087.708.0>
2026-11-21 13:35:40.077061+00:00 [error] <0.304.0> ** Node rabbit@n3 not responding **
2026-11-21 13:35:40.077061+00:00 [error] <0.304.0>
2026-11-21 13:35:40.288029+00:00 [info] <0.1315.0> Mirrored queue 'q2' in vhost '/': Secondary \
replica of queue <rabbit@n1.1795268107.1315.0> detected replica  <rabbit@n3.1795268108.924.0> \
<rabbit@n2.1795268108.720.0> to be down
2026-11-21 13:35:40.288178+00:00 [info] <0.1315.0> Mirrored queue 'q2' in vhost '/': Promoting \
mirror <rabbit@n1.1795268107.1315.0> to leader
2026-11-21 13:35:40.288492+00:00 [info] <0.1315.0> Mirrored queue 'q2' in vhost '/': \
Synchronising: 12 messages to synchronise
2026-11-21 13:35:56.411928+00:00 [error] <0.326.0> Mnesia(rabbit@n1): ** ERROR ** mnesia_event got \
{inconsistent_database, running_partitioned_network, rabbit@n2}
2026-11-21 13:36:11.907109+00:00 [info] <0.17.0> Successfully stopped RabbitMQ and its dependencies
2026-11-21 13:36:15.524795+00:00 [info] <0.1784.0>  Starting RabbitMQ 3.10.8 on Erlang 25.2.3 [jit]
2026-11-21 13:36:16.207975+00:00 [info] <0.2045.0> Mirrored queue 'q2' in vhost '/': Adding mirror \
on node rabbit@n1: <0.2074.0>
2026-11-21 13:36:20.000000+00:00 [warning] <0.571.0> Cluster minority/secondary status detected - \
awaiting recovery
"""


def test_rabbitmqs_log_tells_who_was_promoted_and_when_roles_ended(tmp_path: Path) -> None:
    path = tmp_path / "rabbit@n1.log"
    path.write_text(LOG)
    events = list(read_log(path))
    told = [(e.incarnation, e.group, e.kind, e.role, e.detail) for e in events]
    assert told == [
        (1, "", "starting", "", {}),
        (1, "", "role", "running", {}),
        (1, "", "peer_up", "", {"peer": "n3"}),
        (1, "q1", "set_changed", "", {"added": "n2"}),
        (1, "q2", "set_changed", "", {"down": ["n2", "n3"]}),
        (1, "q2", "promoted", "master", {}),
        (1, "q2", "role", "master", {}),
        (1, "q2", "sync_started", "", {"messages": 12}),
        (1, "", "partition", "", {"parted_from": "n2"}),
        (1, "q2", "role", "none", {}),
        (1, "", "role", "stopped", {}),
        (2, "", "starting", "", {}),
        (2, "q2", "role", "mirror", {}),
        (2, "q2", "role", "none", {}),
        (2, "", "role", "paused", {}),
    ]
    assert {event.node for event in events} == {"n1"}
    assert events[0].wall_ns == 1795268113338507000


def test_roles_of_a_killed_broker_end_in_its_next_life(tmp_path: Path) -> None:
    """When they ended nobody knows; what comes after the kill is no sign of the old life."""
    path = tmp_path / "rabbit@n1.log"
    lines = LOG.splitlines(keepends=True)
    stopped = next(at for at, line in enumerate(lines) if "Successfully stopped" in line)
    path.write_text("".join([*lines[:stopped], *lines[stopped + 1 :]]))
    events = list(read_log(path))
    (begun,) = [at for at, e in enumerate(events) if e.kind == "starting" and e.incarnation == 2]
    ended = events[begun + 1]
    assert (ended.group, ended.kind, ended.role, ended.incarnation) == ("q2", "role", "none", 2)
