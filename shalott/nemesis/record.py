"""FaultRecord: all that the harness knows of a kind of fault, as one record.

A fault is what the nemesis does to nodes, links, clocks and disks of a cluster, or has an operator
do to its system. Its record says what it needs, how it is drawn and aimed, what injects it, what
heals it, what proves either, and what a shrinker may try in its place. A plug-in offers its records
at the entry-point group ``shalott.nemeses``, or in a module given to ``--load``. The package's own
are there too, a file a family: partitions.py, processes.py, links.py, clients.py, clocks.py,
disks.py, files.py, operators.py, membership.py, rolling.py, resources.py.

As in Jepsen (jepsen.nemesis: setup, invoke, teardown, fs), but planned: when a fault comes, whom it
hits and how hard it is stands in the plan as a ``FaultAction``, so that a run can be repeated and
shrunk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from shalott.cluster.capabilities import Capability
from shalott.core.doors import Door, door_of_records
from shalott.core.errors import UsageError
from shalott.core.parameters import NoParameters
from shalott.core.plan import Effect, FaultAction
from shalott.core.rng import Stream
from shalott.nemesis.context import FaultContext
from shalott.nemesis.cuts import Link
from shalott.nemesis.proofs import Check

# What a fault takes away from a cluster, as far as schedules must know:
# - nothing: with any amount;
# - nothing-if-mild: nothing, as long as its amount is one of the mild ones;
# - contact: a node or a link does not answer while it lasts;
# - copies: a node's copies of what is replicated, until it has synchronised again.
Takes = Literal["nothing", "nothing-if-mild", "contact", "copies"]

Step = Callable[[FaultContext, FaultAction], Awaitable[None]]
Checks = Callable[[FaultContext, FaultAction], Sequence[Check]]
# (the cluster's nodes, those that are hit, a random stream) -> the directed links that are hit
LinksOf = Callable[[Sequence[str], tuple[str, ...], Stream], tuple[Link, ...]]


@dataclass(frozen=True, slots=True)
class Amount:
    """How much of a fault there is: one number in ``FaultAction.amount``, never 0.

    ``choices`` are what schedules draw from, round numbers, weak ones first; the first ``mild`` of
    them never take a link or a node away by themselves. ``least`` and ``most`` bound what a plan
    may say.
    """

    unit: str
    choices: tuple[float, ...]
    least: float
    most: float
    mild: int = 0


def _nothing(ctx: FaultContext, action: FaultAction) -> str:
    return ""


def _no_weaker(action: FaultAction) -> Iterable[FaultAction]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRecord:
    """One kind of fault.

    What it needs:
        ``needs``: capabilities of the world. ``asks``: protocols that the ``System`` object must
        have (cluster/system.py: FailsOver, ...). A plan whose fault lacks any is refused before
        boot.
    What is drawn:
        ``amount``: one number. ``parameters``: a struct of what else it can be told
        (core/parameters.py); a plan stores its fields in ``FaultAction.parameters``.
        ``choices``: by field, what schedules draw from, weak ones first; other fields keep their
        defaults. ``must_tell``: by field without a default that would do, the flag of ``shalott
        test`` that says it.
    Whom it hits:
        ``target``: the only target that makes sense, such as all, master, or "" if it needs none;
        None: what the run's ``--targets`` say. ``one``: what ``one`` is for it: the master, where
        any other node had to be named. ``is_single``: never more than one node. ``links``: which
        links it hits, in faults that hit links. ``does_not_heal``: what it does to a node
        stays, so all such faults of a plan hit the same node, named in the plan; or with
        ``may_hit_minority`` the same few. ``one_by_one``: it has its nodes in turn, the next when
        the system has the one before back.
    When it comes:
        ``takes``: see ``Takes``. ``lane``: faults of one lane never overlap in a schedule of
        ``shalott test``; "": a lane of its own. ``group``: a name that stands for any of several
        faults, one of which is drawn each time, of those that make sense on ``least_nodes``.
        ``is_usual``: part of ``--nemesis all``, so every world must be able to make it.
    What it does:
        ``inject`` makes it, ``heal`` ends it and is harmless where it was not made. ``effective``
        and ``healed`` are the checks that prove either, as far as they can be made at the time.
        ``effects``: what it does to the nodes that it hits, for checkers that judge the run
        (core/plan.py). ``obstacle``: why it would change nothing if it came now;
        "" if it would.
        ``may_exit``: a node may end its own process because of it, and is started when it ends.
    How it is shrunk:
        ``weaker``: actions to try in place of one, the weakest first; amounts, parameters, nodes
        and links are made fewer without its help. ``strength``: its place among the kinds.
    """

    name: str
    summary: str
    inject: Step
    heal: Step
    effective: Checks
    healed: Checks
    needs: tuple[Capability, ...] = ()
    asks: tuple[type, ...] = ()
    amount: Amount | None = None
    parameters: type[msgspec.Struct] = NoParameters
    choices: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    must_tell: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    one: str = "one"
    is_single: bool = False
    links: LinksOf | None = None
    does_not_heal: bool = False
    may_hit_minority: bool = False
    one_by_one: bool = False
    takes: Takes = "contact"
    lane: str = ""
    group: str = ""
    least_nodes: int = 1
    is_usual: bool = False
    effects: tuple[Effect, ...] = ()
    obstacle: Callable[[FaultContext, FaultAction], str] = _nothing
    may_exit: bool = False
    weaker: Callable[[FaultAction], Iterable[FaultAction]] = _no_weaker
    strength: int = 50

    @property
    def amounts(self) -> tuple[float, ...]:
        """What schedules draw from, weak ones first; () if it has no amount."""
        return self.amount.choices if self.amount is not None else ()

    @property
    def hits_all(self) -> bool:
        """Whether it has every node at once."""
        return self.target == "all" and not self.one_by_one

    @property
    def is_calm(self) -> bool:
        """Whether it takes nothing away as long as its amount is mild."""
        return self.takes in ("nothing", "nothing-if-mild")

    @property
    def takes_one(self) -> bool:
        """Whether it takes a single node, if its target is one, until it has synchronised again."""
        return self.takes == "copies" and not self.hits_all


FAULTS: Door[FaultRecord] = door_of_records("fault", "shalott.nemeses", FaultRecord)


def nemesis_names() -> tuple[str, ...]:
    """What ``--nemesis`` takes: groups of faults, then faults."""
    groups = dict.fromkeys(record.group for record in FAULTS.records() if record.group)
    return (*groups, *FAULTS.names())


def usual_nemeses() -> tuple[str, ...]:
    """What ``--nemesis all`` stands for: what every world can do."""
    usual = [record.group or record.name for record in FAULTS.records() if record.is_usual]
    return tuple(dict.fromkeys(usual))


def members(name: str) -> tuple[FaultRecord, ...]:
    """The fault of that name, or the faults of the group. Raises UsageError if there is none."""
    of_group = tuple(record for record in FAULTS.records() if record.group == name)
    return of_group or (FAULTS.find(name),)


def check_nemesis(name: str, *others: str) -> None:
    """Raise UsageError, naming what there is, unless it is a fault, a group or one of others."""
    known = (*nemesis_names(), *others)
    if name not in known:
        problems = FAULTS.problems()
        broken = f" ({'; '.join(problems)})" if problems else ""
        raise UsageError(f"unknown nemesis {name}: choose one of {', '.join(known)}{broken}")
