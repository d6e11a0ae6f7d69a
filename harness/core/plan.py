"""The plan: everything a run will do, as data, before it starts.

``plan.json`` is stored first; running it again is ``shalott replay``. Each fault action carries its
own end, so any subset of a schedule is a schedule.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from shalott.harness.core.errors import UsageError

PLAN_VERSION = 1


class FaultAction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault: when it begins, what it is, whom it hits and when it ends.

    Times are ms from the beginning of the load.

    ``target`` is what was asked for: one, minority, majority, all, master, mirrors, or node names
    joined by "+". ``nodes`` and ``links`` are the targets resolved: at planning time where they can
    be (None = when it fires). ``links`` are directed (source, destination) pairs to cut or to
    slow.

    ``kind`` is the name of a fault's record (nemesis/record.py), ``amount`` how much of it there
    is, in the record's unit; 0 for a kind that has no amount. ``parameters`` are what else the
    record can be told, by field of its struct.
    """

    id: int
    at_ms: int
    duration_ms: int
    kind: str
    target: str = ""
    nodes: tuple[str, ...] | None = None
    links: tuple[tuple[str, str], ...] | None = None
    amount: float = 0
    parameters: dict[str, Any] = {}
    jitter_ms: int = 0  # of faults that hit every node: spread of the starts
    seed: int = 0  # for what is drawn when it fires
    settle: bool = False  # fire only when mirrors are synchronised again after the last restart


class ClusterPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the nodes run. ``backend`` is resolved (never "auto") in a stored plan."""

    backend: str
    nodes: tuple[str, ...]
    leave_running: bool = False


class SystemPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What runs on the nodes and how it is set up, defaults of the profile filled in."""

    name: str  # mirrored, rabbitmq
    profile: str  # upstream, safe
    partition_mode: str  # ignore, pause_minority, autoheal
    net_tick_ms: int
    policy: dict[str, Any]  # a RabbitMQ policy definition: ha-mode, ha-sync-mode, ...
    bugs: tuple[str, ...] = ()  # ids of broker/known_bugs.py
    # How long, at most, a node that has loaded its tables waits before it starts its queues
    # (KB-RMQ-01). Drawn at every start.
    startup_delay_ms: int = 0
    # Who mends a partition under ignore.
    operator: Literal["restart-minority", "none"] = "restart-minority"
    # RocketMQ's systems: which services (broker, nameserver, controller) each node hosts. Empty:
    # every node hosts all that its system has (cluster/systems/rocket/layout.py).
    services: dict[str, tuple[str, ...]] = {}


class WorkloadPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the clients do.

    The defaults of the last four are what RabbitMQ's manual asks of who must not lose messages.
    Each of the others opens a documented window of loss: dequeues that nobody acknowledges
    (L5), queues or messages that a restart of every node forgets (L6), and publishes without
    confirms (L7). Without confirms an enqueue is ok once it was written and a synchronous call on
    the same channel came back: its channel has taken it, and nothing was promised.

    ``queues`` counts locks in the workload lock, and objects of each kind in metadata; there
    ``enqueue_fraction`` is the share of writes.
    """

    name: str  # queue, lock, fifo, metadata
    rate_hz: float
    concurrency: int
    queues: int = 1
    enqueue_fraction: float = 0.6
    body_bytes: int = 64
    op_timeout_ms: int = 5000
    ack_mode: Literal["manual", "auto"] = "manual"  # auto: delivered is done with (no_ack)
    durable: bool = True  # the queues
    persistent: bool = True  # the messages
    confirms: bool = True
    hold_ms: int = 200  # lock: how long a lock is held, on average
    consumers: Literal["competing", "single"] = "competing"  # fifo: of a queue
    order: Literal["first-delivery", "exactly-once"] = "first-delivery"  # fifo: what is judged
    reads: Literal["leader", "local"] = "leader"  # metadata: who answers
    objects: tuple[str, ...] = ("policy", "queue")  # metadata


class GatePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What decides validity besides the checkers' own rules."""

    delivery: Literal["at-least-once", "at-most-once", "exactly-once"] = "at-least-once"
    max_rto_ms: int | None = None
    min_acked: int = 50  # fewer acknowledged operations: unknown
    must_settle: bool = False  # after the heal, in the plan's time, and then be drained
    must_not_crash: bool = False  # the broker's processes, unless their disk failed
    crash_text: str = ""  # if not empty, only those count whose reason has this in it
    must_converge: bool = False  # synchronised replicas hold at the end what their master holds
    one_master: bool = False  # at a time: two that claim a queue are more than a remark


class NetworkPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The simulated network between nodes when nothing is broken."""

    latency_us: int = 300  # one way
    jitter_us: int = 0  # a segment takes up to so much longer
    link_spread_us: int = 0  # a direction of a link is slower by a constant of up to this
    loss: float = 0.0  # share of segments that have to be sent again: late, never lost


class DiskPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The simulated disks when nothing is broken."""

    call_us: tuple[int, int] = (5, 60)  # reads and writes, which the page cache answers: range
    sync_us: tuple[int, int] = (200, 3000)
    # What a power loss does to unsynced writes: nothing, some are lost whole, or sectors of them.
    power_loss: Literal["keep", "drop", "torn"] = "torn"


class ClockPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a node's clock differs from the world's from the beginning."""

    node: str
    offset_ms: float = 0.0
    drift_ppm: float = 0.0


class SimPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The simulated world, every knob of it. Other worlds have their own nature and ignore this."""

    seed: int  # of all that the world itself draws: latencies, fates of unsynced writes
    network: NetworkPlan = NetworkPlan()
    disk: DiskPlan = DiskPlan()
    clocks: tuple[ClockPlan, ...] = ()
    buggify: bool = False
    buggify_off: tuple[str, ...] = ()  # sites that stay quiet nevertheless
    buggify_on: tuple[str, ...] = ()  # sites that are active without being drawn
    callback_cost_ns: int = 0  # how far each callback moves the time


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole run."""

    version: int = PLAN_VERSION
    name: str
    seed: int
    time_limit_ms: int
    cluster: ClusterPlan
    system: SystemPlan
    workload: WorkloadPlan
    gates: GatePlan
    faults: tuple[FaultAction, ...]
    quiet_ms: int = 2000  # before the first fault
    settle_timeout_ms: int = 60000
    observe_interval_ms: int = 500
    sim: SimPlan | None = None  # set in plans that were drawn for the simulation


def nodes_hosting(plan: Plan, service: str) -> tuple[str, ...]:
    """The plan's nodes that have this service, in their order: all of them, unless the plan says
    who hosts what."""
    services = plan.system.services
    nodes = plan.cluster.nodes
    return tuple(node for node in nodes if not services or service in services[node])


class _Versioned(msgspec.Struct, frozen=True):
    """What plans of all versions have in common."""

    version: int = PLAN_VERSION


def load_plan(path: Path) -> Plan:
    """Read a stored plan. Raises UsageError with one sentence that says what is wrong."""
    try:
        data = path.read_bytes()
        # First of all the version: what another version's plan holds is not known here.
        version = msgspec.json.decode(data, type=_Versioned).version
        if version == PLAN_VERSION:
            return msgspec.json.decode(data, type=Plan)
    except OSError as error:
        raise UsageError(f"cannot read the plan {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is not a plan: {error}") from error
    raise UsageError(f"{path} is a plan of version {version}; this is version {PLAN_VERSION}")


def canonical(plan: Plan) -> Plan:
    """The plan as it is after it was stored and read: whole numbers of fractional fields are
    fractions, lists are tuples. Equal plans then do equal things, to the last byte."""
    return msgspec.json.decode(msgspec.json.encode(plan), type=Plan)


def dump_plan(plan: Plan) -> bytes:
    """The plan as indented JSON, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"
