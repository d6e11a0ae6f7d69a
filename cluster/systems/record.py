"""SystemRecord: all that the harness knows of a system under test, as one record.

A system is what runs on the nodes: a broker, a database, anything with clients. A plug-in offers
its record at the entry-point group ``shalott.systems``, or in a module given to ``--load``. What a
node runs, how it is configured, when it is ready and what it believes is the ``System`` object that
``make`` returns (cluster/base.py); the record says what must be known before there is one.

As in Jepsen (jepsen.db), what only some systems can be asked is a small protocol of its own that
the ``System`` object implements or not (cluster/base.py: DeclaresQueues, FailsOver, ...): who lacks
one is refused before boot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shalott.cluster.base import System
from shalott.harness.core.doors import Door, door_of_records
from shalott.harness.core.drawing import Draw
from shalott.harness.core.parameters import NoParameters
from shalott.harness.core.plan import Plan, nodes_hosting

Services = Mapping[str, tuple[str, ...]]  # node -> what it hosts
TOGETHER = "together"  # the layout in which every node hosts the same


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profile sets unless the user says otherwise.

    ``upstream`` is what the original does by default, which loses data in documented ways; ``safe``
    is what its manual recommends against loss. ``parameters`` are fields of the system's struct,
    ``policy`` are named settings of the system itself, over which ``--policy KEY=VALUE`` is laid.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPromises:
    """What a replicated log promises under a plan's settings.

    ``keeps_acknowledged``: what is acknowledged is on the disks of all who may be master next.
    ``copies``: on how many nodes it is, whoever these are. ``by_set``: acknowledgements wait for a
    SyncStateSet, out of which masters come, unless ``unclean``. ``flushed``: a copy counts when it
    is on the disk. ``fresh_reads``: no read misses what was acknowledged before it began.
    """

    keeps_acknowledged: bool = False
    copies: int = 1
    by_set: bool = False
    unclean: bool = False
    flushed: bool = True
    fresh_reads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """Which services each node hosts, in systems whose nodes differ.

    ``names``: the layouts besides "together". ``lay_out``: (layout, nodes) -> services, raises
    UsageError. ``missing``: the first service that no node hosts, "" if none is missing.
    ``best_count``: how many nodes a layout wants.
    """

    names: tuple[str, ...]
    lay_out: Callable[[str, Sequence[str]], Services]
    missing: Callable[[Services], str]
    best_count: Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What a search draws of a system: values of parameters, and settings."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How a search of the system differs from what a search usually is, under one profile.

    ``settings``: fields of a swarm (harness/search/drawing/swarm.py) by name. ``beyond``: faults
    that the profile does not promise to survive. ``wanted``: what a campaign wants to have seen at
    least once, for the values of its knobs (harness/run/coverage.py has the names).
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    beyond: tuple[str, ...] = ()
    wanted: Callable[[Mapping[str, Any]], Sequence[str]] = lambda knobs: ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRecord:
    """One system.

    ``speaks``: the protocols that its clients may use, by name; a workload fits if it needs no
    others. ``workload``: what runs if the user names none. ``worlds``: the backends where it runs.
    ``profiles``: by name, the default first. ``check``: raises UsageError for a plan that this
    system can't have. ``serves``: the service whose nodes clients connect to, where nodes differ.
    ``promises``: of systems that keep a replicated log. ``closes``: the documented windows of loss
    (checkers/queues/windows.py) that a plan's settings rule out. ``stays_up``: a node runs until
    somebody ends it, and no process within it crashes; a run in which one did not is invalid.
    ``orderly_exits``: codes with which a node may end by itself nevertheless.
    ``notices_after_ms``: how long a node must be silent before the others may act on it; 0 if
    nobody knows. Shorter cuts and pauses may pass unseen.

    For the simulation: ``program`` makes the coroutine that a simulated machine runs, from a
    NodeSpec (cluster/sim/machine.py); it is there if "sim" is one of the worlds. ``draw``: (name of
    the profile, number of nodes, draw) -> what a search's run has. ``search``: by profile.
    ``calm``: values that shrinking may put a parameter to because there it does least.
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
    promises: Callable[[Plan], LogPromises] = lambda plan: LogPromises()
    closes: Callable[[Plan], Sequence[str]] = lambda plan: ()
    notices_after_ms: Callable[[Plan], float] = lambda plan: 0
    program: Callable[..., Any] | None = None
    draw: Callable[[str, int, Draw], Drawn] | None = None
    search: Mapping[str, Search] = field(default_factory=dict)
    calm: Mapping[str, Any] = field(default_factory=dict)
    stays_up: bool = False
    orderly_exits: tuple[int, ...] = ()


SYSTEMS: Door[SystemRecord] = door_of_records("system", "shalott.systems", SystemRecord)


def promises_of(plan: Plan) -> LogPromises:
    """What the plan's system promises of its log."""
    return SYSTEMS.find(plan.system.name).promises(plan)


def serving_nodes(plan: Plan) -> tuple[str, ...]:
    """The nodes that clients connect to: all of them, unless nodes differ."""
    service = SYSTEMS.find(plan.system.name).serves
    return nodes_hosting(plan, service) if service else plan.cluster.nodes
