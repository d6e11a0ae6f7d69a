"""A RocketMQ node's configuration: parsed once from TOML at the edge, frozen, passed on explicitly.

One process hosts any of three services: a broker, a name server, a controller. In the usual layout
every node hosts all that its system has, as small RocketMQ installations do; a node of its own for
a name server or a controller is a node with that one service. Names are upstream's, in snake case
and with units; a comment gives upstream's name where it is another word. Defaults are upstream's,
which lose data in documented ways; the profiles (harness/) set others.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Percent = Annotated[int, msgspec.Meta(ge=1, le=100)]

SystemName = Literal["master-slave", "dledger", "controller"]
Service = Literal["broker", "nameserver", "controller"]
SYSTEMS: tuple[str, ...] = ("master-slave", "dledger", "controller")

# What a node listens on, by name: broker requests, HAService, Raft peers (DLedger's log or the
# controllers'), name server, controller, and our HTTP API. "vip" is for brokers, may be left out,
# and answers as "remoting" does: an original's slave asks its master for topics at the port two
# before that one.
PORT_NAMES: tuple[str, ...] = (
    *("remoting", "vip", "ha", "raft", "nameserver", "controller", "management"),
)


class RocketPeer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another node. ``advertised``: the addresses ("host:port", by port name) under which it is
    known in messages; ``dial``: where this node dials them (a relay in the local backend).
    """

    name: str
    services: tuple[Service, ...]
    advertised: dict[str, str]
    dial: dict[str, str]


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message store of one broker."""

    flush: Literal["async", "sync"] = "async"  # flushDiskType
    flush_interval_ms: Positive = 500  # flushIntervalCommitLog, flushCommitLogTimed
    flush_timeout_ms: Positive = 5000  # syncFlushTimeout
    segment_bytes: Positive = 1 << 30  # mappedFileSizeCommitLog
    queue_segment_units: Positive = 300_000  # mappedFileSizeConsumeQueue / 20
    max_message_bytes: Positive = 4 << 20
    # One file of the index of keys (upstream's hashSlotNum is 5,000,000, maxIndexNum four times
    # that): ours is in memory until it is full, and is built again after a crash.
    index_slots: Positive = 4096
    index_entries: Positive = 16_384
    # Files of the log go when their messages are older, or when the log takes more than so much of
    # the room that it could have: 100 is never. Upstream's is 85, and takes what nobody has read.
    file_reserved_ms: Positive = 72 * 3600 * 1000  # fileReservedTime
    clean_interval_ms: Positive = 10_000  # cleanResourceInterval
    disk_used_percent_max: Percent = 100  # diskSpaceCleanForciblyRatio
    checkpoint_interval_ms: Positive = 1000
    # Read only what is flushed, so that no reader sees what a power loss takes back (KB-RKT-09).
    read_flushed_only: bool = False


class HaConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replication of the commit log: HAService and its epoch-aware successor."""

    heartbeat_interval_ms: Positive = 5000  # haSendHeartbeatInterval
    housekeeping_interval_ms: Positive = 20_000
    transfer_batch_bytes: Positive = 32 * 1024
    max_gap_not_in_sync_bytes: Positive = 256 << 20  # haSlaveFallbehindMax
    slave_timeout_ms: Positive = 3000
    reconnect_interval_ms: Positive = 5000
    in_sync_replicas: Positive = 1
    min_in_sync_replicas: Positive = 1
    all_ack_in_sync_state_set: bool = False
    async_learner: bool = False
    sync_from_last_file: bool = False
    handshake_by_address: bool = False  # slaves introduce themselves as in 5.0.0
    max_time_slave_not_catchup_ms: Positive = 15_000
    check_sync_state_set_period_ms: Positive = 5000


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a broker does besides storing and replicating."""

    cluster_name: str = "shalott"
    broker_name: str = "shalott"  # the replication group
    broker_id: NotNegative = 0  # master-slave only: 0 is the master
    role: Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"] = "ASYNC_MASTER"  # master-slave only
    default_queues: Positive = 8  # defaultTopicQueueNums: a client may ask for fewer
    auto_create_topics: bool = True
    register_interval_ms: Positive = 30_000  # registerBrokerNamesrvPeriod
    long_poll_max_ms: Positive = 30_000
    # controllerAddr, "host:port;host:port": whom to ask in place of peers that host a controller.
    controller_addr: str = ""
    controller_heartbeat_interval_ms: Positive = 1000  # brokerHeartbeatInterval
    controller_heartbeat_timeout_ms: Positive = 10_000  # controllerHeartBeatTimeoutMills
    sync_broker_metadata_period_ms: Positive = 5000
    sync_controller_metadata_period_ms: Positive = 10_000
    election_priority: int = 0x7FFFFFFF
    slave_read_enable: bool = False  # slaveReadEnable: slaves answer pulls
    slave_sync_interval_ms: Positive = 10_000  # topics, offsets of a slave from its master


class RaftConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timings of one Raft group: DLedger's log, or the controllers'."""

    heartbeat_interval_ms: Positive = 2000  # heartBeatTimeIntervalMs
    max_heartbeat_leak: Positive = 3  # a follower waits so many of them
    vote_min_ms: Positive = 300
    vote_max_ms: Positive = 1000
    max_pending_requests: Positive = 10_000
    ack_timeout_ms: Positive = 2500  # maxWaitAckTimeMs
    push_timeout_ms: Positive = 1000
    flush_interval_ms: NotNegative = 10  # 0: an entry is acknowledged when it is on the disk
    commit_push_interval_ms: Positive = 1000
    snapshot_threshold: NotNegative = 0  # entries; 0: never
    read_index: bool = False  # reads are confirmed by a quorum before they are answered
    fast_advance_commit: bool = False  # enableFastAdvanceCommitIndex: a new leader adds a no-op


class ControllerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The controllers."""

    scan_not_active_broker_interval_ms: Positive = 5000
    scan_inactive_master_interval_ms: Positive = 5000
    elect_master_max_retry_count: NotNegative = 3
    enable_elect_unclean_master: bool = False
    is_process_read_event: bool = False
    notify_broker_role_changed: bool = True


class RocketConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a node knows before it starts. ``ports`` and ``advertised`` are this node's own."""

    system: SystemName
    name: str
    data_dir: str
    services: tuple[Service, ...]
    ports: dict[str, Port]
    advertised: dict[str, str]
    peers: tuple[RocketPeer, ...] = ()
    bind_host: str = "0.0.0.0"
    broker: BrokerConfig = BrokerConfig()
    store: StoreConfig = StoreConfig()
    ha: HaConfig = HaConfig()
    raft: RaftConfig = RaftConfig()
    controller: ControllerConfig = ControllerConfig()
    name_server_scan_interval_ms: Positive = 5000
    name_server_broker_timeout_ms: Positive = 120_000
    bugs: tuple[str, ...] = ()  # ids of known_bugs.py that are switched on
    seed: int = 0  # of the node's random source; 0 means: draw one

    def nodes_with(self, service: Service) -> tuple[str, ...]:
        """Names of the nodes that host a service, sorted, this one among them."""
        names = [peer.name for peer in self.peers if service in peer.services]
        return tuple(sorted([*names, self.name] if service in self.services else names))
