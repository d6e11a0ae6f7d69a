"""What nodes of RabbitMQ 3.10 and 4 are started with.

Nodes are called rabbit@n1 among themselves and n1 everywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence

from shalott.cluster.nodes import NodeSpec, Topology

PREFIX = "rabbit@"
COOKIE = "SHALOTT"
# One scheduler of each kind and no busy waiting: three nodes share a small machine with the
# harness.
ERLANG_FLAGS = "+S 1:1 +SDcpu 1:1 +SDio 1 +A 4 +sbwt none +sbwtdcpu none +sbwtdio none"


def rabbitmq_specs(topology: Topology, image: str, configuration: str) -> Sequence[NodeSpec]:
    return [
        NodeSpec(
            name=node,
            image=image,
            command=("rabbitmq-server",),
            files={
                "rabbitmq.conf": configuration,
                "enabled_plugins": "[rabbitmq_management].\n",
            },
            environment={
                "SHALOTT_COOKIE": COOKIE,
                "RABBITMQ_NODENAME": f"{PREFIX}{node}",
                "RABBITMQ_CONFIG_FILE": "{config}/rabbitmq.conf",
                "RABBITMQ_ENABLED_PLUGINS_FILE": "{config}/enabled_plugins",
                "RABBITMQ_MNESIA_BASE": "{data}/mnesia",
                "RABBITMQ_LOG_BASE": "{data}/log",
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG_FLAGS,
            },
            ports={port: at.port for port, at in topology.listen[node].items()},
            collect=("log",),
            restart_if_exits=True,  # it exits, with code 0, when the others are late at boot
        )
        for node in sorted(topology.listen)
    ]


def rabbitmq_configuration(
    nodes: Sequence[str], partition_handling: str, net_tick_ms: int, *more: str
) -> str:
    """``more``: lines of one release's own."""
    seeds = [
        f"cluster_formation.classic_config.nodes.{i} = {PREFIX}{node}"
        for i, node in enumerate(sorted(nodes), start=1)
    ]
    lines = [
        "loopback_users = none",
        "cluster_formation.peer_discovery_backend = classic_config",
        *seeds,
        f"cluster_partition_handling = {partition_handling}",
        f"net_ticktime = {max(1, round(net_tick_ms / 1000))}",
        "cluster_formation.discovery_retry_interval = 300",
        *more,
        "collect_statistics_interval = 1000",
        "management.rates_mode = none",
        "log.console = true",
        "log.console.level = info",
        "log.file.level = info",
    ]
    return "".join(f"{line}\n" for line in lines)
