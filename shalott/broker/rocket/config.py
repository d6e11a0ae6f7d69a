"""A RocketMQ node's configuration, checked, and the addresses that it gives to nodes.

One process hosts any of three services: a broker, a name server, a controller. In the usual layout
every node hosts all that its system has, as small RocketMQ installations do; a node of its own for
a name server or a controller is a node with that one service. Names are upstream's, in snake case
and with units; a comment gives upstream's name where it is another word. Defaults are upstream's,
which lose data in documented ways; the profiles (harness/) set others.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from shalott.broker.base.errors import BrokerError, ConfigError

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
    # Files have their full length from the beginning, as an original wants them.
    preallocate: bool = False
    max_message_bytes: Positive = 4 << 20
    # One file of the index of keys (upstream's hashSlotNum is 5,000,000, maxIndexNum four times
    # that): ours is in memory until it is full, and is built again after a crash.
    index_slots: Positive = 4096
    index_entries: Positive = 16_384
    # Files of the log go when their messages are older, or when the log takes more than so much of
    # the room that it could have: 100 is never. Upstream's is 85, and takes what was never read.
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
    transaction_timeout_ms: Positive = 6000  # transactionTimeOut
    transaction_check_interval_ms: Positive = 30_000
    transaction_check_max: Positive = 15
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
    max_push_bytes: Positive = 1 << 20
    max_inflight_pushes: Positive = 16  # to one follower
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


# -- checks ----------------------------------------------------------------------------------------


def check_rocket_config(config: RocketConfig) -> None:
    """Raises ConfigError if its parts do not go together."""
    needed = {
        "broker": ("remoting", "raft" if config.system == "dledger" else "ha"),
        "nameserver": ("nameserver",),
        "controller": ("controller", "raft"),
    }
    if not config.services:
        raise ConfigError("a node needs services: broker, nameserver or controller")
    for service in config.services:
        for port in needed[service]:
            if port not in config.ports:
                raise ConfigError(f"the service {service} needs a port: set ports.{port}")
            if port not in config.advertised:
                raise ConfigError(f"the port {port} is not advertised: set advertised.{port}")
    if "management" not in config.ports:
        raise ConfigError("every node answers questions: set ports.management")
    for port in config.ports:
        if port not in PORT_NAMES:
            raise ConfigError(f"there is no port {port!r}; there are {', '.join(PORT_NAMES)}")
    _check_controllers(config)


def _check_controllers(config: RocketConfig) -> None:
    """Whether brokers under controllers will find some. Raises ConfigError."""
    if config.system != "controller":
        if config.broker.controller_addr:
            raise ConfigError(f"{config.system} has no controllers: leave out controller_addr")
        return
    try:
        found = controller_addresses(config)
    except BrokerError as error:
        raise ConfigError(f"broker.controller_addr: {error}") from error
    if not found:
        raise ConfigError(
            "the system controller needs a node with the service controller: list it among the"
            " peers, or set broker.controller_addr"
        )


# -- addresses -------------------------------------------------------------------------------------
# AddressBook: from the address under which a node is known to the one where it is dialled.
#
# RocketMQ's messages carry addresses ("host:port"): of a master's HA port, of a controller, of a
# broker in a route. Where links run through relays, a node must not dial these as they are.


class AddressBook:
    """One node's. Everything in it is fixed when the node is configured."""

    def __init__(self, config: RocketConfig) -> None:
        self._name = config.name
        self._advertised = {config.name: dict(config.advertised)}
        self._advertised |= {peer.name: dict(peer.advertised) for peer in config.peers}
        self._dial = {
            address: peer.dial[port]
            for peer in config.peers
            for port, address in peer.advertised.items()
        }
        self._node_of = {
            address: node
            for node, addresses in self._advertised.items()
            for address in addresses.values()
        }

    def advertised(self, node: str, port: str) -> str:
        """How a node's port is called in messages. Raises KeyError if there is none."""
        return self._advertised[node][port]

    def node_of(self, address: str) -> str:
        """The node behind an advertised address; "" if it is no node's."""
        return self._node_of.get(address, "")

    def name_of(self, address: str) -> str:
        """The node behind an advertised address; the address itself of one that is not configured,
        such as an original's that the controllers told of."""
        return self.node_of(address) or address

    def address_of(self, name: str, port: str) -> str:
        """The advertised address behind a name of ``name_of``, which may be one itself."""
        return self._advertised[name][port] if name in self._advertised else name

    def dial(self, address: str) -> tuple[str, int]:
        """Where to connect for an advertised address; one that is no node's is dialled as it is.

        Raises BrokerError if it is no address.
        """
        return parse_address(self._dial.get(address, address))


def controller_addresses(config: RocketConfig) -> tuple[str, ...]:
    """Where a broker asks for controllers: ``controller_addr``, addresses with ";" between them, or
    else the advertised addresses of the nodes that host one. Raises BrokerError.
    """
    given = [part.strip() for part in config.broker.controller_addr.split(";") if part.strip()]
    for address in given:
        parse_address(address)
    if given:
        return tuple(dict.fromkeys(given))
    known = {peer.name: peer.advertised for peer in config.peers} | {config.name: config.advertised}
    return tuple(known[node]["controller"] for node in config.nodes_with("controller"))


def parse_address(address: str) -> tuple[str, int]:
    """("host", port) of "host:port". Raises BrokerError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise BrokerError(f"{address!r} is no address: host:port is wanted")
    return host, int(port)
