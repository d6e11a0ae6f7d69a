"""Routes: which brokers live, who of them is master, and which topics they have.

Everything is what brokers said of themselves, in memory only, and each name server has its own: two
of them may disagree for as long as a broker reaches only one. After
namesrv/routeinfo/RouteInfoManager.java; the rules where brokers contradict each other (reference
2.2.11):

- An address holds one id at a time: a slave that becomes master leaves its old id.
- An id goes to who registers last, unless the one that has it is alive and has a larger state
  version, which is its master epoch: a deposed master that has not noticed does not take the route
  back (KB-RKT-18 is the time before that rule).
- A broker is dead when it did not register for its timeout, or its connection ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from shalott.broker.rocket.remoting.headers import RegisterBroker, RegisterBrokerResult
from shalott.broker.rocket.remoting.route_data import (
    MASTER_ID,
    PERM_WRITE,
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    RegisterBody,
    TopicConfig,
    TopicRoute,
)

BrokerKey = tuple[str, str]  # cluster, address


@dataclass(slots=True)
class Live:
    """A broker that is alive. ``connection`` stands for the one it registered over."""

    broker_name: str
    updated_ms: int
    timeout_ms: int
    data_version: DataVersion
    connection: object
    ha_server_addr: str
    filter_servers: list[str]


@dataclass(slots=True)
class Group:
    """A broker group. ``addresses`` by id."""

    cluster: str
    name: str
    addresses: dict[int, str]
    acting_master: bool = False

    def data(self) -> BrokerData:
        return BrokerData(
            cluster=self.cluster,
            broker_name=self.name,
            broker_addrs=dict(sorted(self.addresses.items())),
            enable_acting_master=self.acting_master,
        )


class Routes:
    """``last_writer_wins`` is KB-RKT-18: state versions are not looked at. ``master_changed`` hears
    where a group's master is now ("": nowhere), and its state version.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        default_timeout_ms: int,
        last_writer_wins: bool = False,
        master_changed: Callable[[str, str, int], None] = lambda group, address, epoch: None,
    ) -> None:
        self._now_ms = now_ms
        self._default_timeout_ms = default_timeout_ms
        self._last_writer_wins = last_writer_wins
        self._live: dict[BrokerKey, Live] = {}
        self._groups: dict[str, Group] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}  # topic -> broker name -> queues
        self._master_changed = master_changed
        self._told: dict[str, str] = {}  # by group: the master that was told last

    # -- what brokers say --------------------------------------------------------------------------

    def register(
        self, header: RegisterBroker, body: RegisterBody, connection: object
    ) -> RegisterBrokerResult:
        """A broker's registration, which is its heartbeat too.

        Upstream refuses a broker that is new here and comes with one topic only, as its brokers
        may tell of single topics. Ours always tell of all, and one may be all they have.
        """
        configs = body.topic_config_serialize_wrapper
        version = configs.data_version
        key = (header.cluster_name, header.broker_addr)
        is_new = header.broker_name not in self._groups
        group = self._groups.get(header.broker_name)
        if group is None:
            group = Group(header.cluster_name, header.broker_name, {})
            self._groups[header.broker_name] = group
        group.acting_master = bool(header.enable_acting_master)
        group.addresses = {
            number: address
            for number, address in group.addresses.items()
            if address != header.broker_addr or number == header.broker_id
        }
        if self._is_outdated(group, header, version):
            self._live.pop(key, None)
            self._drop_if_empty(group)
            self._tell_master(group)
            return RegisterBrokerResult()
        before = group.addresses.get(header.broker_id)
        group.addresses[header.broker_id] = header.broker_addr
        if self._tells_of_topics(group, header):
            changed = is_new or not before or self.is_changed(key, version)
            self._take_topics(header.broker_name, configs.topic_config_table, changed)
        timeout_ms = header.heartbeat_timeout_millis
        self._live[key] = Live(
            broker_name=header.broker_name,
            updated_ms=self._now_ms(),
            timeout_ms=self._default_timeout_ms if timeout_ms is None else timeout_ms,
            data_version=version,
            connection=connection,
            ha_server_addr=header.ha_server_addr,
            filter_servers=body.filter_server_list,
        )
        self._tell_master(group)
        return self._master_for(group, header.broker_id)

    def unregister(self, cluster: str, broker_name: str, address: str) -> None:
        """A broker says goodbye, or is dead."""
        self._live.pop((cluster, address), None)
        group = self._groups.get(broker_name)
        if group is not None:
            group.addresses = {
                number: other for number, other in group.addresses.items() if other != address
            }
            self._tell_master(group)
            self._drop_if_empty(group)

    def connection_closed(self, connection: object) -> None:
        """Who registered over it last is dead."""
        for (cluster, address), live in list(self._live.items()):
            if live.connection is connection:
                self.unregister(cluster, live.broker_name, address)

    def scan(self) -> list[str]:
        """Unregister those that did not register in time; their addresses."""
        now_ms = self._now_ms()
        dead = [
            (cluster, live.broker_name, address)
            for (cluster, address), live in self._live.items()
            if now_ms - live.updated_ms > live.timeout_ms
        ]
        for cluster, broker_name, address in dead:
            self.unregister(cluster, broker_name, address)
        return [address for _, _, address in dead]

    def is_changed(self, key: BrokerKey, version: DataVersion) -> bool:
        """Whether a broker's topics are not those that it registered last."""
        live = self._live.get(key)
        return live is None or live.data_version != version

    def data_version(self, key: BrokerKey) -> DataVersion | None:
        """What is known of a broker."""
        live = self._live.get(key)
        return None if live is None else live.data_version

    def touch(self, key: BrokerKey) -> None:
        """A broker asked whether it needs to register, and does not: it is alive."""
        live = self._live.get(key)
        if live is not None:
            live.updated_ms = self._now_ms()

    # -- what operators and clients ask ------------------------------------------------------------

    def set_write_perm(self, broker_name: str, *, allowed: bool) -> int:
        """Take from a group's queues the permission to be written, or give it; how many topics."""
        count = 0
        for groups in self._topics.values():
            data = groups.get(broker_name)
            if data is not None:
                perm = data.perm | PERM_WRITE if allowed else data.perm & ~PERM_WRITE
                groups[broker_name] = msgspec.structs.replace(data, perm=perm)
                count += 1
        return count

    def route(self, topic: str) -> TopicRoute | None:
        """None if no broker that lives has the topic."""
        queues = [data for name, data in self._queues(topic) if name in self._groups]
        if not queues:
            return None
        groups = [self._groups[data.broker_name] for data in queues]
        servers = {
            address: live.filter_servers
            for group in groups
            for address in group.addresses.values()
            if (live := self._live.get((group.cluster, address))) and live.filter_servers
        }
        return TopicRoute(
            queue_datas=queues,
            broker_datas=[group.data() for group in groups],
            filter_server_table=servers,
        )

    def delete_topic(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def topics(self) -> list[str]:
        return sorted(self._topics)

    def cluster_info(self) -> ClusterInfo:
        clusters: dict[str, list[str]] = {}
        for name, group in sorted(self._groups.items()):
            clusters.setdefault(group.cluster, []).append(name)
        groups = {name: group.data() for name, group in sorted(self._groups.items())}
        return ClusterInfo(broker_addr_table=groups, cluster_addr_table=clusters)

    def master(self, broker_name: str) -> str | None:
        """Where a group's master is, as clients are told."""
        group = self._groups.get(broker_name)
        return None if group is None else group.addresses.get(MASTER_ID)

    def live_addresses(self) -> list[str]:
        return sorted(address for _, address in self._live)

    # -- rules -------------------------------------------------------------------------------------

    def _is_outdated(self, group: Group, header: RegisterBroker, version: DataVersion) -> bool:
        """Whether another, live broker has the id by a later epoch."""
        holder = group.addresses.get(header.broker_id)
        if self._last_writer_wins or holder is None or holder == header.broker_addr:
            return False
        live = self._live.get((header.cluster_name, holder))
        return live is not None and live.data_version.state_version > version.state_version

    def _tells_of_topics(self, group: Group, header: RegisterBroker) -> bool:
        """The master does; where there is none, of slaves that may act for it, the first."""
        if header.broker_id == MASTER_ID:
            return True
        return header.enable_acting_master is not None and header.broker_id == min(group.addresses)

    def _take_topics(self, broker_name: str, table: dict[str, TopicConfig], changed: bool) -> None:
        for topic, config in table.items():
            groups = self._topics.setdefault(topic, {})
            if changed or broker_name not in groups:
                groups[broker_name] = QueueData(
                    broker_name=broker_name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=config.perm,
                    topic_sys_flag=config.topic_sys_flag,
                )

    def _tell_master(self, group: Group) -> None:
        """Of a change only: brokers register again and again."""
        address = group.addresses.get(MASTER_ID, "")
        if address != self._told.get(group.name, ""):
            self._told[group.name] = address
            live = self._live.get((group.cluster, address))
            version = 0 if live is None else live.data_version.state_version
            self._master_changed(group.name, address, version)

    def _master_for(self, group: Group, broker_id: int) -> RegisterBrokerResult:
        """Where a slave finds its master, if that one is alive."""
        address = group.addresses.get(MASTER_ID)
        if broker_id == MASTER_ID or address is None:
            return RegisterBrokerResult()
        live = self._live.get((group.cluster, address))
        if live is None:
            return RegisterBrokerResult()
        return RegisterBrokerResult(ha_server_addr=live.ha_server_addr, master_addr=address)

    def _queues(self, topic: str) -> list[tuple[str, QueueData]]:
        return sorted(self._topics.get(topic, {}).items(), key=lambda item: item[0])

    def _drop_if_empty(self, group: Group) -> None:
        """A group without brokers is none, and has no topics."""
        if group.addresses:
            return
        self._groups.pop(group.name, None)
        for topic, groups in list(self._topics.items()):
            groups.pop(group.name, None)
            if not groups:
                del self._topics[topic]
