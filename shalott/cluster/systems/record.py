"""SystemRecord: all that the harness knows of a system under test, as one record.

A system is what runs on the nodes: a broker, a database, anything with clients. A plug-in offers
its record at the entry-point group ``shalott.systems``, or in a module given to ``--load``. What a
node runs, how it is configured, when it is ready and what it believes is the ``System`` object that
``make`` returns (cluster/system.py); the record says what must be known before there is one.

As in Jepsen (jepsen.db), what only some systems can be asked is a small protocol of its own that
the ``System`` object implements or not (cluster/system.py: DeclaresQueues, FailsOver, ...): a fault
that needs one that is lacking is refused before boot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from shalott.cluster.system import System
from shalott.core.documented_loss import DocumentedLoss
from shalott.core.doors import Door, door_of_records
from shalott.core.parameters import NoParameters
from shalott.core.partitions import MakePartitioned
from shalott.core.plan import Plan, SystemPlan, nodes_hosting
from shalott.core.queued import MakeQueued
from shalott.core.registers import MakeRegistered
from shalott.core.rng import Draw
from shalott.core.transactions import MakeTransactor, Write

if TYPE_CHECKING:
    from shalott.cluster.nodes import NodeSpec
    from shalott.cluster.sim.buggify import Buggify
    from shalott.cluster.sim.machine import Program
    from shalott.core.client import Client

Services = Mapping[str, tuple[str, ...]]  # node -> what it hosts
Parameters = Mapping[str, Any]  # or settings, of a system, as its plan has them
TRANSACTIONS = "transactions"  # the protocol of systems that have ``SystemRecord.transactions``
PARTITIONS = "partitions"  # likewise, of ``SystemRecord.partitions``
QUEUES = "queues"  # of ``SystemRecord.queues``
REGISTERS = "registers"  # of ``SystemRecord.registers``
LOCKS = "locks"  # of ``SystemRecord.locks``
TOGETHER = "together"  # the layout in which every node hosts the same


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profile sets unless the user says otherwise.

    ``upstream`` is what the original does by default, which loses data in documented ways; ``safe``
    is what its manual recommends against loss. ``parameters`` are fields of the system's struct,
    ``policy`` are named settings of the system itself, over which ``--policy KEY=VALUE`` is laid;
    ``policy_for`` more of them, where they go with the values of the system's parameters.
    ``promise``: what the manual promises so, in a sentence, with its address.
    """

    parameters: Parameters = field(default_factory=dict)
    policy: Parameters = field(default_factory=dict)
    policy_for: Callable[[Parameters], Parameters] = lambda parameters: {}
    promise: str = ""

    def settings(self, parameters: Parameters) -> dict[str, object]:
        return {**self.policy, **self.policy_for(parameters)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPromises:
    """What a replicated log promises under a plan's settings.

    ``keeps_acknowledged``: what is acknowledged is on the disks of all who may be master next.
    ``copies``: on how many nodes it is, whichever. ``by_set``: acknowledgements wait for a
    SyncStateSet, out of which masters come, unless ``unclean``. ``flushed``: a copy counts when it
    is on the disk. ``fresh_reads``: no read misses what was acknowledged before it began.
    ``masters_tell_end``: a new master tells how far its log goes, without which no checker can
    judge whether it has what was acknowledged (I3).
    """

    keeps_acknowledged: bool = False
    copies: int = 1
    by_set: bool = False
    unclean: bool = False
    flushed: bool = True
    fresh_reads: bool = False
    masters_tell_end: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReaders:
    """How clients use a replicated log. ``at_slaves``: slaves answer readers; else these read at
    the master that their route names. ``wait_ms``: how long a poll may wait for its first message;
    0 where brokers look after those that wait only now and then. ``tell_where``: a send's row says
    which broker acknowledged the message and where in its log it lies: of brokers that log no
    acknowledgements."""

    at_slaves: bool = True
    wait_ms: int = 100
    tell_where: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """How clients do transactions over several keys (core/transactions.py).

    ``port``: of each node, by its name. ``writes``: what its transactions may do besides reading.
    ``promises``: the strongest isolation level that it promises, by Elle's name. ``prefixes``:
    whether the names of all that its clients make begin with ``names_prefix``.
    """

    port: str
    make_client: MakeTransactor
    writes: tuple[Write, ...] = ("append", "w")
    promises: str = "strict-serializable"
    prefixes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """How clients send to partitions and poll them (core/partitions.py).

    ``port``: of each node, by its name. ``transactions``: whether several sends and polls are one.
    ``groups``: whether its clients can join a group of consumers (``Grouped``). ``prefixes``:
    whether the names of all that its clients make begin with ``names_prefix``.
    """

    port: str
    make_client: MakePartitioned
    transactions: bool = True
    groups: bool = False
    prefixes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """How clients use queues (core/queued.py).

    ``port``: of each node, by its name. ``delivery``: what is promised of an acknowledged message.
    ``acknowledges``: whether a message stays until it is settled; else it is gone once it was
    delivered, and nothing is settled.
    """

    port: str
    make_client: MakeQueued
    delivery: Literal["at-least-once", "at-most-once", "exactly-once"] = "at-least-once"
    acknowledges: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Registers:
    """How clients use registers (core/registers.py).

    ``port``: of each node, by its name. ``cas``: whether there is a compare-and-set. ``promises``:
    "sequential": reads may be old, but no client sees a register go back. "monotonic": nor that,
    but a client may not yet read what it wrote.
    """

    port: str
    make_client: MakeRegistered
    cas: bool = True
    promises: Literal["linearizable", "sequential", "monotonic"] = "linearizable"


class MakeLocker(Protocol):
    """A client of the node that listens there: it acquires a lock, by its key, and releases it,
    and holds one at most. It may be ``Watchful``. A refusal is a fail with the error "empty"."""

    def __call__(self, host: str, port: int, *, timeout_ms: int) -> Client: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Locks:
    """How clients use locks (workloads/lock.py).

    ``port``: of each node, by its name. ``gone_after_ms``: so long a lock may be held for a client
    that is gone.
    """

    port: str
    make_client: MakeLocker
    gone_after_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """Which services each node hosts, in systems whose nodes differ.

    ``names``: the layouts besides "together". ``lay_out``: (layout, nodes, parameters) -> services,
    raises UsageError. ``missing``: the first service that no node hosts, "" if none is missing.
    ``best_count``: how many nodes a layout wants. The parameters are the system's, as a plan has
    them.
    """

    names: tuple[str, ...]
    lay_out: Callable[[str, Sequence[str], Parameters], Services]
    missing: Callable[[Services, Parameters], str]
    best_count: Callable[[str, Parameters], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What a search draws of a system: values of parameters, and settings."""

    parameters: Parameters = field(default_factory=dict)
    policy: Parameters = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a node takes of its machine outside of the simulation, its whole container, on
    average over a run that begins with a boot: memory in MiB, and CPUs."""

    memory_mib: int = 120
    cpus: float = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How a search of the system differs from what a search usually is, under one profile.

    ``settings``: fields of a swarm (harness/scenarios/swarm.py) by name. ``beyond``: faults
    that the profile does not promise to survive. ``wanted``: what a campaign wants to have seen at
    least once, for the values of its knobs (harness/run/coverage.py has the names).
    """

    settings: Parameters = field(default_factory=dict)
    beyond: tuple[str, ...] = ()
    wanted: Callable[[Parameters], Sequence[str]] = lambda knobs: ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRecord:
    """One system.

    ``speaks``: the protocols that its clients may use, by name; a workload fits if it needs no
    others. ``workload``: what runs if the user names none. ``worlds``: the backends where it runs.
    ``profiles``: by name, the default first. ``check``: raises UsageError for a plan that this
    system can't have. ``serves``: the service whose nodes clients connect to, where nodes differ.
    ``places``: of systems that have nodes of their own, which are not asked for by --nodes: what
    each hosts.
    ``promises``: of systems that keep a replicated log. ``readers``: how clients read it.
    ``transactions``: of systems that speak "transactions": how clients do them.
    ``partitions``, ``queues``, ``registers``, ``locks``: likewise, of systems that speak these.
    ``canonical``: settings as a plan has them, of what a user may also type otherwise; raises
    UsageError. ``closes``: the documented windows of loss (checkers/queues/loss_windows.py) that a
    plan's settings rule out. ``documented_losses``: other ways of loss that its manual admits, and
    a plan's settings leave open. ``stays_up``: a node runs until an operator or a fault ends it,
    and no process within it crashes; a run in which one did not is invalid.
    ``orderly_exits``: codes with which a node may end by itself nevertheless.
    ``gaps``: what of the system is not tested, or not seen, a sentence each, for its page.
    ``notices_after_ms``: how long a node must be silent before the others may act on it; 0 if
    that is not known. Shorter cuts and pauses may pass unseen.

    For the simulation: ``program`` makes the coroutine that a simulated machine runs, from a
    NodeSpec (cluster/sim/machine.py); it is there if "sim" is one of the worlds. ``draw``: (name of
    the profile, number of nodes, draw) -> what a search's run has. ``search``: by profile.
    ``calm``: values that shrinking may put a parameter to because there it does least.

    For searches on real nodes: ``footprint`` of one node. ``carry``: (what a plan that was made for
    another system says of that one, what is asked of this one's parameters) -> how it is run on
    this one, by its parameters and settings; None if it can't be.
    """

    name: str
    summary: str
    make: Callable[[Plan], System]
    speaks: tuple[str, ...]
    workload: str
    profiles: Mapping[str, Profile]
    parameters: type[msgspec.Struct] = NoParameters
    worlds: tuple[str, ...] = ("docker",)
    check: Callable[[Plan], None] = lambda plan: None
    layouts: Layouts | None = None
    serves: str = ""
    places: Callable[[Parameters], Services] | None = None
    promises: Callable[[Plan], LogPromises] = lambda plan: LogPromises()
    readers: Callable[[Plan], LogReaders] = lambda plan: LogReaders()
    transactions: Callable[[Plan], Transactions | None] = lambda plan: None
    partitions: Callable[[Plan], Partitions | None] = lambda plan: None
    queues: Callable[[Plan], Queues | None] = lambda plan: None
    registers: Callable[[Plan], Registers | None] = lambda plan: None
    locks: Callable[[Plan], Locks | None] = lambda plan: None
    canonical: Callable[[Parameters], Parameters] = lambda policy: policy
    closes: Callable[[Plan], Sequence[str]] = lambda plan: ()
    documented_losses: Callable[[Plan], Sequence[DocumentedLoss]] = lambda plan: ()
    notices_after_ms: Callable[[Plan], float] = lambda plan: 0
    program: Callable[[NodeSpec, int, Buggify], Program] | None = None
    draw: Callable[[str, int, Draw], Drawn] | None = None
    search: Mapping[str, Search] = field(default_factory=dict)
    calm: Parameters = field(default_factory=dict)
    footprint: Footprint = Footprint()
    carry: Callable[[SystemPlan, Parameters], Drawn | None] = lambda plan, asked: None
    stays_up: bool = False
    orderly_exits: tuple[int, ...] = ()
    gaps: tuple[str, ...] = ()


SYSTEMS: Door[SystemRecord] = door_of_records("system", "shalott.systems", SystemRecord)


def promises_of(plan: Plan) -> LogPromises:
    """What the plan's system promises of its log."""
    return SYSTEMS.find(plan.system.name).promises(plan)


def readers_of(plan: Plan) -> LogReaders:
    """How the plan's clients read a replicated log."""
    return SYSTEMS.find(plan.system.name).readers(plan)


def serving_nodes(plan: Plan) -> tuple[str, ...]:
    """The nodes that clients connect to: all of them, unless nodes differ."""
    service = SYSTEMS.find(plan.system.name).serves
    return nodes_hosting(plan, service) if service else plan.cluster.nodes
