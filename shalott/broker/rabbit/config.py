"""A RabbitMQ-like node's configuration: parsed once from TOML at the edge, frozen, passed on
explicitly.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec.structs import fields

from shalott.broker.base.tls import LoginFrom, TlsConfig

RABBITMQ_VERSION = "3.10.8"  # whose behaviour is modelled; clients and tools look at it
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
UNKNOWN_MEMORY_BYTES = 8 << 30  # of a machine that cannot be asked: a simulated one
Mechanism = Literal["PLAIN", "AMQPLAIN", "EXTERNAL"]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Peer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another node, and where this node dials it (a relay's address in the local backend)."""

    name: str
    host: str
    port: Port


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a node knows before it starts. Ports may not be 0: peers must know them."""

    name: str
    data_dir: str
    peers: tuple[Peer, ...] = ()  # the other nodes of the cluster, not this one
    bind_host: str = "0.0.0.0"
    # Only this machine unless told otherwise: its users have well-known passwords.
    management_host: str = "127.0.0.1"
    amqp_port: Port = 5672
    cluster_port: Port = 25672
    management_port: Port = 15672
    prometheus_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0  # RabbitMQ: 15692; 0: none
    cookie: str = "shalott"  # nodes with another cookie are refused
    # How long a silent peer is believed to be alive. RabbitMQ's default is 60 s; 4 s keeps tests
    # short.
    net_tick_ms: Positive = 4000
    partition_mode: Literal["ignore", "pause_minority", "autoheal"] = "ignore"
    heartbeat_s: int = 60  # offered to AMQP clients
    frame_max: Annotated[int, msgspec.Meta(ge=4096)] = 131072  # the protocol's own minimum
    channel_max: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 2047
    slave_wait_timeout_ms: int = 15000
    sync_batch_size: int = 4096
    # At most so long between "tables loaded" and "queue supervisor up", drawn at every start
    # (KB-RMQ-01).
    startup_delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    # At most so long from a queue's recovery to its process's first write, drawn at every one: a
    # node with many queues takes its time (0.8 s in the log of the startup race, KB-RMQ-02).
    recovery_delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    # Of the tables' log, under pause_minority, until a snapshot takes their place.
    snapshot_entries: Positive = 1000
    # How long a publish waits for others before it is synced and confirmed. RabbitMQ: 200; 0 is a
    # sync at once, which those that come meanwhile share.
    confirm_sync_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    # From here on publishers are stopped; above a part of it messages are paged to disk. A part of
    # ``memory_bytes``, or bytes. What counts is what queues hold, not the process
    # (docs/explanation/memory.md).
    vm_memory_high_watermark: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.4
    vm_memory_high_watermark_absolute: Annotated[int, msgspec.Meta(ge=0)] = 0  # 0: the part counts
    vm_memory_high_watermark_paging_ratio: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    memory_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0  # the machine's; 0: see __main__.py
    consumer_timeout_ms: Annotated[int, msgspec.Meta(ge=0)] = 1_800_000
    disk_free_limit: Annotated[int, msgspec.Meta(ge=0)] = 50_000_000  # bytes; 0: none
    loopback_users: tuple[str, ...] = ("guest",)
    auth_mechanisms: tuple[Mechanism, ...] = ("PLAIN", "AMQPLAIN")
    ssl: TlsConfig | None = None
    ssl_cert_login_from: LoginFrom = "distinguished_name"  # who EXTERNAL is
    management_ssl: TlsConfig | None = None
    users: dict[str, str] = msgspec.field(default_factory=lambda: {"guest": "guest"})
    bugs: tuple[str, ...] = ()  # ids of known_bugs.py that are switched on
    seed: int = 0  # of the node's random source; 0 means: draw one

    @property
    def memory_limit_bytes(self) -> int:
        if self.vm_memory_high_watermark_absolute:
            return self.vm_memory_high_watermark_absolute
        return self.fraction_of_memory(self.vm_memory_high_watermark)

    def fraction_of_memory(self, fraction: float) -> int:
        return int(fraction * (self.memory_bytes or UNKNOWN_MEMORY_BYTES))

    @property
    def node_names(self) -> tuple[str, ...]:
        """Every node of the cluster, sorted, this one among them."""
        return tuple(sorted((self.name, *(peer.name for peer in self.peers))))


# Of a cluster whose configuration has no other one.
COOKIE: str = next(each.default for each in fields(NodeConfig) if each.name == "cookie")
