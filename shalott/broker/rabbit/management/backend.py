"""What the management API needs of its node. It touches nothing else in the node."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from shalott.broker.base.env import Env
from shalott.broker.base.http_api import ApiError, Request, RouteOf, not_found, unavailable
from shalott.broker.rabbit.amqp.alarms import Alarms
from shalott.broker.rabbit.amqp.channel import Channel
from shalott.broker.rabbit.amqp.connection import ConnectionInfo
from shalott.broker.rabbit.amqp.counts import Counts as ClientCounts
from shalott.broker.rabbit.amqp.services import ChannelInfo, Port, Queues, Session
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata import vhosts
from shalott.broker.rabbit.metadata.api import Metadata
from shalott.broker.rabbit.metadata.membership import FORGOTTEN
from shalott.broker.rabbit.metadata.permissions import Permissions, Right
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.processes.runtime import Runtime
from shalott.broker.rabbit.storage.disk_space import DiskMonitor
from shalott.broker.rabbit.storage.memory import MemoryMonitor


class ManagementBackend(Protocol):
    """A node. Everything here answers at once, also while the broker on it is paused or booting."""

    @property
    def env(self) -> Env: ...

    @property
    def config(self) -> NodeConfig: ...

    @property
    def runtime(self) -> Runtime: ...

    @property
    def metadata(self) -> Metadata: ...

    @property
    def queues(self) -> Queues | None:
        """None while the broker doesn't run."""
        ...

    @property
    def phase(self) -> str:
        """running, booting, paused, stopping or stopped."""
        ...

    @property
    def started_ns(self) -> int:
        """On the node's monotonic clock."""
        ...

    @property
    def memory(self) -> MemoryMonitor: ...

    @property
    def alarms(self) -> Alarms:
        """Of all nodes, as far as this node has heard."""
        ...

    @property
    def disk_space(self) -> DiskMonitor: ...

    @property
    def app(self) -> App:
        """The broker on the node, as its operator starts and stops it."""
        ...

    @property
    def clustering(self) -> Clustering:
        """What becomes of the node while its broker is stopped."""
        ...

    def partitions(self) -> Mapping[str, Sequence[str]]:
        """Node -> the nodes that it says it is partitioned from, as far as this node has heard."""
        ...

    def local_queues(self) -> Mapping[str, Pid]:
        """Key -> this node's own process of that queue, master or mirror, if it has one."""
        ...

    def connections(self) -> Sequence[ConnectionInfo]:
        """This node's AMQP clients."""
        ...

    @property
    def counts(self) -> ClientCounts:
        """What AMQP clients did since the broker started."""
        ...

    def channels(self) -> Sequence[tuple[ConnectionInfo, Sequence[ChannelInfo]]]:
        """Of this node's AMQP clients."""
        ...

    def make_channel(self, port: Port, session: Session) -> Channel | None:
        """Of no client, not spawned; None while the broker doesn't run."""
        ...

    @property
    def rates(self) -> Rates:
        """What was counted at earlier questions."""
        ...

    def close_connection(self, pid: Pid, text: str) -> bool:
        """False if there is none."""
        ...


class App(Protocol):
    async def take_clients(self, takes: bool) -> None:
        """Whether AMQP clients may come; those that are there stay."""
        ...

    def shut_down(self) -> None:
        """Have the node's process end in good order. It does not wait."""
        ...

    def stop_app(self) -> None:
        """Have the broker end, and stay away. It does not wait."""
        ...

    def start_app(self) -> None: ...


class Standing(Protocol):
    """See broker.rabbit.node.standing."""

    @property
    def alone(self) -> bool: ...

    @property
    def joining(self) -> str | None: ...

    @property
    def problem(self) -> str | None: ...


class Clustering(Protocol):
    """See broker.rabbit.node.clustering. Each raises BrokerError, with RabbitMQ's reason."""

    @property
    def standing(self) -> Standing: ...

    async def reset(self, *, force: bool) -> None: ...

    async def join(self, through: str) -> None: ...

    async def force_boot(self) -> None: ...

    async def seed(self, node: str) -> None: ...


Route = RouteOf[ManagementBackend]

TOOL = "rmq-cli"  # who a tool of the node's own is that knows the cookie


# -- rates -----------------------------------------------------------------------------------------

# Rates: from what was counted at this question and at earlier ones, as RabbitMQ's ``*_details``.
#
# There is no counting in the background: a rate is what happened between two questions, of which
# the older one is five seconds old if anybody asked then. The first question has no rate to tell.

WINDOW_NS = 5_000_000_000
APART_NS = 1_000_000_000  # questions that come faster share a sample
FORGET_NS = 60_000_000_000  # what was not asked about, or is gone

Counts = Mapping[str, int]


class Rates:
    """One node's: samples by what was counted."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[int, Counts]]] = {}

    def message_stats(self, source: str, counts: Counts, now_ns: int) -> dict[str, Any]:
        """``counts`` with a rate in 1/s for each. ``source`` names who counted: a master that
        took over counts from 0, and is another one."""
        samples = self._samples.setdefault(source, deque())
        while len(samples) > 1 and now_ns - samples[1][0] >= WINDOW_NS:
            samples.popleft()
        then_ns, then = samples[0] if samples else (now_ns, counts)
        if not samples or now_ns - samples[-1][0] >= APART_NS:
            samples.append((now_ns, dict(counts)))
        self._forget(now_ns)
        shown: dict[str, Any] = {}
        for name, count in counts.items():
            shown[name] = count
            shown[f"{name}_details"] = {"rate": _rate(count - then.get(name, 0), now_ns - then_ns)}
        return shown

    def forget(self) -> None:
        """Begin anew."""
        self._samples.clear()

    def _forget(self, now_ns: int) -> None:
        old = [key for key, known in self._samples.items() if now_ns - known[-1][0] > FORGET_NS]
        for source in old:
            del self._samples[source]


def _rate(count: int, elapsed_ns: int) -> float:
    return round(count * 1_000_000_000 / elapsed_ns, 2) if elapsed_ns else 0.0


def summed(stats: list[dict[str, Any]]) -> dict[str, Any]:
    """Several ``message_stats`` as one: counts and rates added."""
    total: dict[str, Any] = {}
    for each in stats:
        for name, value in each.items():
            if isinstance(value, dict):
                before = total.get(name, {"rate": 0.0})["rate"]
                total[name] = {"rate": round(before + value["rate"], 2)}
            else:
                total[name] = total.get(name, 0) + value
    return total


def require_vhost(backend: ManagementBackend, vhost: str) -> None:
    """Raises ApiError(404)."""
    if not vhosts.exists(backend.metadata, vhost):
        raise not_found()


def require_right(
    backend: ManagementBackend, request: Request, right: Right, vhost: str, name: str
) -> None:
    """Of the one who asks. The node's own tools may do all. Raises ApiError(401)."""
    if request.user == TOOL:
        return
    if not Permissions(backend.metadata, vhost, request.user).allow(right, name):
        text = f"access to queue '{name}' in vhost '{vhost}' refused for user '{request.user}'"
        raise ApiError(401, "not_authorised", text)


def running_queues(backend: ManagementBackend) -> Queues:
    """Raises ApiError(503) while the broker doesn't run."""
    if backend.queues is None:
        raise unavailable(f"the broker on this node is {backend.phase}")
    return backend.queues


def queue_rows(backend: ManagementBackend) -> list[QueueRow]:
    """Every queue, by key: the live row, or the durable one of a queue that waits for its node."""
    rows = dict(backend.metadata.rows("durable_queue"))
    rows.update(backend.metadata.rows("queue"))
    return [row for _, row in sorted(rows.items()) if isinstance(row, QueueRow)]


def cluster_nodes(backend: ManagementBackend) -> list[str]:
    """The nodes that belong to the cluster, as this one's tables have it, running or not."""
    names = backend.config.node_names
    return [name for name in names if backend.metadata.read(FORGOTTEN, name) is None]
