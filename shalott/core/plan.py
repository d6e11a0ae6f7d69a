"""The plan: everything a run will do, as data, before it starts; and what faults do, in words.

``plan.json`` is stored first; running it again is ``shalott replay``. Each fault action carries its
own end, so any subset of a schedule is a schedule.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from shalott.core.doors import Requirement
from shalott.core.errors import UsageError

PLAN_VERSION = 2

Values = dict[str, Any]  # by name: fields of a record's own struct, or settings of a system


class Trigger(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a fault waits for, from its time on (nemesis/triggers.py).

    ``kind``:
        ``event``: a node writes an event whose kind is ``what``.
        ``observed``: ``what`` is ``master``, ``synchronising``, ``shrinks``, ``role``, ``epoch`` or
        ``set`` (docs/how-to/choose-faults.md), as nodes tell.
        ``syncs``: a node's disk has made so many more syncs of files and directories.
        ``fault``: another ``fault`` of the plan, by its id, has ``begun`` (it was looked at) or
        ``ended`` (it is healed).
        ``disk``: a node's disk is asked to ``what`` (write, sync, rename), of ``files``.
        ``message``: one called ``what`` is on its way from ``sender`` to ``node``; "": any.
    ``fault`` of the other kinds: it counts from when that fault has begun; 0: at any time.
    ``node``: whose it must be, "" for any; ``group`` and ``role`` narrow events and observations in
    the same way. ``count``: it must happen so often. ``moment``: who takes part stands still
    until the fault is made, when a message is ``sent``, ``before`` it or a disk's call is done, or
    ``after`` that; "": they go on. ``within_ms``: the fault is skipped if it has
    not by then. ``delay_ms``: what passes between it and the fault. ``fired_ms``: when it fired,
    from the beginning of the load; written back by a run, and meaningless to the next one.
    """

    kind: Literal["event", "observed", "syncs", "fault", "disk", "message"]
    what: str = ""
    node: str = ""
    group: str = ""
    role: str = ""
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    fault: Annotated[int, msgspec.Meta(ge=0)] = 0
    files: str = ""
    sender: str = ""
    moment: Literal["", "sent", "before", "after"] = ""
    within_ms: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    fired_ms: int | msgspec.UnsetType = msgspec.UNSET


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

    ``when``: what it waits for from ``at_ms`` on; unset, it comes at its time. ``until``: what ends
    it, before its duration is over.
    """

    id: int
    at_ms: int
    duration_ms: int
    kind: str
    target: str = ""
    nodes: tuple[str, ...] | None = None
    links: tuple[tuple[str, str], ...] | None = None
    amount: float = 0
    parameters: Values = {}
    jitter_ms: int = 0  # of faults that hit every node: spread of the starts
    seed: int = 0  # for what is drawn when it fires
    settle: bool = False  # fire only when mirrors are synchronised again after the last restart
    when: Trigger | msgspec.UnsetType = msgspec.UNSET
    until: Trigger | msgspec.UnsetType = msgspec.UNSET

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return tuple(each for each in (self.when, self.until) if each is not msgspec.UNSET)


class HostPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Linux host that is reached over SSH, and how. It holds names of keys, never a key.

    ``inner``: the IP address at which the other nodes reach it, if that is not ``address``.
    ``jump``: the host through which it is reached, as user@address:port. ``directory``: where
    everything lies, relative to the user's home. ``user`` and ``key``: "" for the harness's own.
    """

    address: str
    port: int = 22
    user: str = ""
    key: str = ""
    jump: str = ""
    sudo: bool = False
    inner: str = ""
    known_hosts: str = "~/.ssh/known_hosts"
    directory: str = ".cache/shalott"
    python: str = "python3"


class SshPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The hosts, in the order of the nodes; there may be more. ``lease_s``: a host that has not
    heard from the harness for so long undoes everything. ``set_time``: the hosts' own clocks may be
    set wrong, where a node's program reads no other."""

    hosts: tuple[HostPlan, ...]
    lease_s: float = 20.0
    set_time: bool = False


PowerLoss = Literal["keep", "drop", "torn", "all"]


class ExistingNode(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One node that stands already: a container (`container`, `label` or `service`), or a host by
    SSH (`ssh`) on which a systemd unit or commands are the node."""

    container: str = ""  # name or id
    label: str = ""  # KEY=VALUE, which one container has
    service: str = ""  # of the inventory's compose project
    ssh: HostPlan | msgspec.UnsetType = msgspec.UNSET  # the host, over the table `ssh` for all
    unit: str = ""  # of systemd
    start: str = ""  # a shell command, in place of a unit; returns when it was started
    stop: str = ""  # the same, to stop it in order
    status: str = ""  # the same: its exit code says whether it runs
    # In place of `status`: prints the ids of its first processes. Without it the node is neither
    # killed nor paused.
    pids: str = ""
    address: str = ""  # where other nodes reach it
    # Where clients reach a port, by its name: a number or host:port.
    ports: dict[str, str] = {}
    data: str = ""  # its data directory, as the node sees it
    logs: tuple[str, ...] = ()  # files of which a run keeps what is appended
    collect: tuple[str, ...] = ()  # files below the data directory that a run keeps
    faults: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # in place of the inventory's
    fill: bool = False  # a disk may be filled that the whole machine uses


class ExistingPlan(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A cluster that stands already: what an inventory says of it (cluster/existing)."""

    # By name; without any, the containers of the project are the nodes.
    nodes: dict[str, ExistingNode] = {}
    project: str = ""  # of compose
    services: tuple[str, ...] = ()  # that are nodes; else all
    network: str = ""  # of containers, if they have several
    ports: dict[str, str] = {}  # as a node's, as the next three
    data: str = ""
    logs: tuple[str, ...] = ()
    collect: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()  # of `shalott faults`, that the nodes may meet; else all
    may_break: bool = False  # as `--i-may-break-this`
    start_down: bool = False  # nodes that are down are started, not refused
    set_time: bool = False  # faults may set the hosts' own clocks
    lease_s: float = 20.0  # after so long without the harness everything is undone
    prefix: str = ""  # of names, made anew for each run


class ClusterPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the nodes run. ``backend`` is resolved (never "auto") in a stored plan."""

    backend: str
    nodes: tuple[str, ...]
    leave_running: bool = False
    ssh: SshPlan | msgspec.UnsetType = msgspec.UNSET  # of the backend ssh
    # As DiskPlan's, of disks that are not simulated; "torn" if it is not told.
    power_loss: PowerLoss | msgspec.UnsetType = msgspec.UNSET
    existing: ExistingPlan | msgspec.UnsetType = msgspec.UNSET  # of the backend existing


class SystemPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What runs on the nodes and how it is set up, defaults of the profile filled in.

    ``parameters`` are the fields of the system's own struct (SystemRecord.parameters), ``policy``
    its named settings. ``services``: what each node hosts, where that differs between nodes; empty
    if every node hosts the same.
    """

    name: str
    profile: str
    parameters: Values = {}
    policy: Values = {}
    bugs: tuple[str, ...] = ()  # ids of known bugs that are switched on
    services: dict[str, tuple[str, ...]] = {}


class ProgramPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that is the run's client (clients/programs): its words, and the name of the port
    of each node that it is told."""

    words: tuple[str, ...]
    port: str


class WorkloadPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the clients do. ``parameters`` are the fields of the workload's own struct
    (WorkloadRecord.parameters)."""

    name: str
    rate_hz: float
    concurrency: int
    op_timeout_ms: int = 5000
    parameters: Values = {}
    client: ProgramPlan | msgspec.UnsetType = msgspec.UNSET  # in place of the system's own


class GatePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What decides validity besides the checkers' own rules."""

    delivery: Literal["at-least-once", "at-most-once", "exactly-once"] = "at-least-once"
    max_rto_ms: int | None = None
    min_acked: int = 50  # fewer acknowledged operations: unknown
    min_rate_share: float | None = None  # of the rate; a run that reaches less is unknown
    must_settle: bool = False  # after the heal, in the plan's time, and then be drained
    must_not_crash: bool = False  # the broker's processes, unless their disk failed
    crash_text: str = ""  # if not empty, only those count whose reason has this in it
    must_stay_up: bool = False  # a node ends only if an operator or a fault ends it
    orderly_exits: tuple[int, ...] = ()  # exit codes with which one may end nevertheless
    must_converge: bool = False  # synchronised replicas hold at the end what their master holds
    one_master: bool = False  # at a time: two that claim a queue are more than a remark


class NetworkPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    latency_us: int = 300  # one way
    jitter_us: int = 0  # a segment takes up to so much longer
    link_spread_us: int = 0  # a direction of a link is slower by a constant of up to this
    loss: float = 0.0  # share of segments that have to be sent again: late, never lost


class DiskPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    call_us: tuple[int, int] = (5, 60)  # reads and writes, which the page cache answers: range
    sync_us: tuple[int, int] = (200, 3000)
    # What a power loss does to unsynced writes: nothing, some are lost whole, or sectors of them,
    # or all are.
    power_loss: PowerLoss = "torn"


class ClockPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a node's clock differs from the world's from the beginning."""

    node: str
    offset_ms: float = 0.0
    drift_ppm: float = 0.0


class SchedulePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who goes first of what is due at nearly the same time (cluster/sim/loop/schedule.py).

    ``by``: whose priorities. ``window_us``: how late one may be for another's sake. ``points``: the
    steps at which who goes becomes the last.
    """

    by: Literal["process", "message"]
    seed: int  # of the priorities
    window_us: int
    points: tuple[int, ...] = ()


class SimPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The simulated world, every knob of it. Other worlds have their own nature and ignore this."""

    seed: int  # of all that the world itself draws: latencies, outcomes of unsynced writes
    network: NetworkPlan = NetworkPlan()
    disk: DiskPlan = DiskPlan()
    clocks: tuple[ClockPlan, ...] = ()
    buggify: bool = False
    buggify_off: tuple[str, ...] = ()  # sites that stay quiet nevertheless
    buggify_on: tuple[str, ...] = ()  # sites that are active without being drawn
    # How far each callback of the loop moves the time. How many there are depends on Python: with
    # a cost, a run is promised to repeat in one minor version only.
    callback_cost_ns: int = 0
    # Unset: who is due first.
    schedule: SchedulePlan | msgspec.UnsetType = msgspec.UNSET


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    # Before the drain every node is stopped in order and started anew, so that what it answers then
    # is what its disk holds.
    reread: bool = False
    sim: SimPlan | None = None  # set in plans that were drawn for the simulation
    requires: tuple[Requirement, ...] = ()  # who provides what the plan names


def names_prefix(plan: Plan) -> str:
    """What the names of all that a run makes begin with, where it is not alone; "" elsewhere."""
    existing = plan.cluster.existing
    return "" if existing is msgspec.UNSET else existing.prefix


def nodes_hosting(plan: Plan, service: str) -> tuple[str, ...]:
    """The plan's nodes that have this service, in their order: all of them, unless the plan says
    what each node hosts."""
    services = plan.system.services
    nodes = plan.cluster.nodes
    return tuple(node for node in nodes if not services or service in services[node])


class _Versioned(msgspec.Struct, frozen=True):
    """What plans of all versions have in common."""

    version: int = 1


def load_plan(path: Path) -> Plan:
    """Read a stored plan, of this version or of an earlier one.

    Raises UsageError with one sentence that says what is wrong.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the plan {path}: {error.strerror}") from error
    return decode_plan(data, str(path))


def decode_plan(data: bytes, where: str) -> Plan:
    """A plan's text, of this version or of an earlier one; ``where`` names it to people.

    Raises UsageError with one sentence that says what is wrong.
    """
    try:
        # First of all the version: what another version's plan holds is not known here.
        version = msgspec.json.decode(data, type=_Versioned).version
        if version == PLAN_VERSION:
            return msgspec.json.decode(data, type=Plan)
        if version == 1:
            return msgspec.convert(upgrade_from_1(msgspec.json.decode(data)), Plan)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{where} is not a plan: {error}") from error
    raise UsageError(f"{where} is a plan of version {version}; this is version {PLAN_VERSION}")


# Version 1 had every parameter of every workload and system as a field of its own.
_GENERAL_1 = {
    "system": ("name", "profile", "policy", "bugs", "services"),
    "workload": ("name", "rate_hz", "concurrency", "op_timeout_ms"),
}
PARAMETERS_1 = (
    *("queues", "enqueue_fraction", "body_bytes", "ack_mode", "durable", "persistent", "confirms"),
    *("hold_ms", "consumers", "order", "reads", "objects"),
    *("partition_mode", "net_tick_ms", "startup_delay_ms", "operator"),
)


def upgrade_from_1(raw: Values) -> Values:
    """A plan of version 1 as one of version 2; parameters that its workload or system does not have
    stay, and mean as little as they did."""
    upgraded = {**raw, "version": PLAN_VERSION}
    for part, general in _GENERAL_1.items():
        fields = raw.get(part)
        if isinstance(fields, dict):
            own = {name: value for name, value in fields.items() if name not in general}
            kept = {name: value for name, value in fields.items() if name in general}
            upgraded[part] = {**kept, "parameters": own}
    if isinstance(upgraded.get("workload"), dict) and "queues" not in raw["workload"]:
        upgraded["workload"]["parameters"]["queues"] = 1
    return upgraded


def canonical(plan: Plan) -> Plan:
    """The plan as it is after it was stored and read: whole numbers of fractional fields are
    fractions, lists are tuples. Equal plans then do equal things, to the last byte."""
    return msgspec.json.decode(msgspec.json.encode(plan), type=Plan)


def dump_plan(plan: Plan) -> bytes:
    """The plan as indented JSON, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"


# What a fault does to the nodes it hits, in words that a checker may go by. A fault's record says
# it, its row in the history carries it (``extra.effects``), and checkers read it there: they know
# no kinds, so a plug-in's fault is judged as ours are.
# - ends-processes: the nodes' processes end, and are started again
# - in-order: they end as an operator ends them, with time to flush and hand over
# - loses-unsynced: what had not been flushed to disk may be gone
# - suspends: the processes stand still, and go on later without knowing it
# - cuts-links: nodes don't hear each other
# - cuts-clients: clients don't hear nodes, or are not heard
# - troubles-disk: calls to the disk fail, do less, or take longer
# - fills-disk: there is no room, until the fault ends
# - breaks-disk: calls fail; what was dropped then may be missed at any later time
# - damages-data: what was written is not what is read
# - empties-disk: what was written is gone
# - slows: the processes get too little CPU, and are late
# - starves: memory, files, processes or room for temporary files run out, until the fault ends: the
#   kernel may end processes, and calls fail that ask for more
# - leaves-cluster: from now on the nodes don't belong to the system's cluster, and are down
# - joins-cluster: such nodes belong to it again
Effect = Literal[
    "ends-processes",
    "in-order",
    "loses-unsynced",
    "suspends",
    "cuts-links",
    "cuts-clients",
    "troubles-disk",
    "fills-disk",
    "breaks-disk",
    "damages-data",
    "empties-disk",
    "slows",
    "starves",
    "leaves-cluster",
    "joins-cluster",
]
