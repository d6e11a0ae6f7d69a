"""What the two systems with mirrored queues can be told besides their policy."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

PartitionMode = Annotated[
    Literal["ignore", "pause_minority", "autoheal"],
    msgspec.Meta(description="What nodes do in a partition; else the profile's."),
]
NetTick = Annotated[int, msgspec.Meta(ge=1, description="Silence before a peer is down.")]
Operator = Annotated[
    Literal["restart-minority", "none"],
    msgspec.Meta(description="Who mends a partition under ignore."),
]
Delay = Annotated[
    int, msgspec.Meta(ge=0, description="At most, from a node's tables to its queues.")
]
RecoveryDelay = Annotated[
    int, msgspec.Meta(ge=0, description="At most, from a queue's start to its row.")
]

Vhost = Annotated[
    str,
    msgspec.Meta(
        pattern="^[^@]+$", max_length=100, description="Virtual host of all queues; it is made."
    ),
]


class RabbitmqParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Of RabbitMQ. Its own default of the net tick is 60 s; 4 s keeps runs short."""

    partition_mode: PartitionMode = "ignore"
    net_tick_ms: NetTick = 4000
    operator: Operator = "restart-minority"
    vhost: Vhost = "/"


class OriginalParameters(RabbitmqParameters, frozen=True, kw_only=True):
    """Of RabbitMQ itself, which has two kinds of replicated queues."""

    version: Annotated[
        Literal["3.10"],
        msgspec.Meta(description="Debian 12's; the system rabbitmq4 has newer ones."),
    ] = "3.10"

    queue_type: Annotated[
        Literal["classic", "quorum"],
        msgspec.Meta(description="classic: mirrored by policy; quorum: a Raft group."),
    ] = "classic"


class MirroredParameters(RabbitmqParameters, frozen=True, kw_only=True):
    """Of our own broker. ``startup_delay_ms``: how long, at most, a node that has loaded its tables
    waits before it starts its queues (KB-RMQ-01); drawn at every start. ``recovery_delay_ms``: the
    same from a queue process's start to its first write in the queue's row (KB-RMQ-02)."""

    startup_delay_ms: Delay = 0
    recovery_delay_ms: RecoveryDelay = 0
    memory_limit_bytes: Annotated[
        int,
        msgspec.Meta(ge=0, description="What a node's queues may hold in memory; 0: no matter."),
    ] = 0
    snapshot_entries: Annotated[
        int, msgspec.Meta(ge=1, description="Of the tables' log, until a snapshot replaces them.")
    ] = 1000
