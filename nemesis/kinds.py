"""Kinds: every kind of fault, what a world must be able to do for it, and what its amount means.

One table, read by the schedules (which lane, which amounts), by the runner (which family does it)
and by the checks of a plan (what is refused). The five families:

- *partition* cuts links. Proved by probes: what is cut does not arrive, what is not cut does.
- *process* ends, powers off or freezes processes. Proved by their status.
- *link* delays, loses or throttles what links carry. Proved by asking where it works (the kernel's
  queues, the relay, the simulated link) what is in force; a single packet would prove nothing.
- *clock* sets clocks wrong. Proved by reading the node's clock beside the true one; a skew by
  reading it twice.
- *disk* makes disks misbehave. Proved by asking the disk what is in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from shalott.harness.core.errors import UsageError
from shalott.harness.core.plan import FaultAction

Family = Literal["partition", "process", "link", "clock", "disk"]

PARTITIONS = (
    "partition-halves",
    "partition-random-halves",
    "partition-one",
    "partition-majorities-ring",
    "partition-bridge",
    "partition-one-way",
    "partition-isolate-master",
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault.

    ``amounts`` are what schedules draw from, round numbers, weak ones first; ``mild`` of them never
    take a link or a node away by themselves. ``least`` and ``most`` bound a plan's own amount.
    """

    family: Family
    needs: tuple[str, ...]  # capabilities of the world
    unit: str = ""  # of the amount; "": it has none
    amounts: tuple[float, ...] = ()
    mild: int = 0  # so many of ``amounts``
    least: float = 0
    most: float = 0
    of_all: bool = False  # it hits every node


_SKEW = (200.0, -200.0, 2_000.0, -2_000.0, 20_000.0, -20_000.0)
_JUMP = (500.0, -500.0, 5_000.0, -5_000.0, 60_000.0, -60_000.0, 3_600_000.0, -3_600_000.0)
_YEAR_MS = 365 * 86_400_000.0
_LOSS = Kind("link", ("loss",), "probability", (0.01, 0.05, 0.2, 0.5), 2, 0.0001, 1)
_DELAY = Kind("link", ("delay",), "ms", (10, 50, 200, 1_000, 3_000), 3, 0.001, 600_000)
_CLOG = Kind("link", ("throttle",), "bytes/s", (20_000, 2_000, 200), 0, 1, 1_000_000_000)

# An operator has a queue of his own on the node that is killed. While the node is down he asks
# another one to delete that queue, and to declare it anew; the system owes him both.
REDECLARE = "kill-redeclare"
# The same with a queue of another node, while nobody knows yet that this one has lost its power.
UNNOTICED_REDECLARE = "power-redeclare"
# The node is killed, and an operator makes another one the master, and those that are left its
# slaves. He starts the node again when the fault ends, and makes it a slave as well.
FAILOVER = "failover"
# The node is killed, and comes back with an empty disk.
WIPE = "wipe"
# Something that is no slave connects where slaves do, and says that it has all there could be.
STRAY_REPORT = "stray-report"

KINDS: Mapping[str, Kind] = {
    **{name: Kind("partition", ("cut",)) for name in PARTITIONS},
    "partition-one-way": Kind("partition", ("cut", "cut-one-way")),
    "kill": Kind("process", ("kill",)),
    "stop": Kind("process", ("stop",)),
    "power": Kind("process", ("power",)),
    "pause": Kind("process", ("pause",)),
    "restart-all": Kind("process", ("stop",), of_all=True),
    "kill-all": Kind("process", ("kill",), of_all=True),
    "power-all": Kind("process", ("power",), of_all=True),
    "loss": _LOSS,
    "loss-one-way": _LOSS,
    "delay": _DELAY,
    "delay-one-way": _DELAY,
    "clog": _CLOG,
    "clog-one-way": _CLOG,
    "clock-skew": Kind("clock", ("clock",), "ppm", _SKEW, len(_SKEW), -500_000, 500_000),
    "clock-jump": Kind("clock", ("clock",), "ms", _JUMP, len(_JUMP), -_YEAR_MS, _YEAR_MS),
    "disk-slow": Kind("disk", ("disk-slow",), "ms", (5, 20, 100), 3, 0.001, 600_000),
    "disk-full": Kind("disk", ("disk-full",)),
    "disk-error": Kind("disk", ("disk-error",)),
    "disk-short": Kind("disk", ("disk-short",)),
    # A node that can't read its disk any more gets an empty one: nemesis/holds.py.
    "disk-corrupt": Kind("disk", ("disk-corrupt", "wipe"), "bytes", (1, 16, 256), 0, 1, 1 << 30),
    REDECLARE: Kind("process", ("kill",)),
    UNNOTICED_REDECLARE: Kind("process", ("power",)),
    FAILOVER: Kind("process", ("kill",)),
    WIPE: Kind("process", ("kill", "wipe")),
    STRAY_REPORT: Kind("process", ("kill",)),
}

ALL_NODES = tuple(name for name, kind in KINDS.items() if kind.of_all)
# Kinds that may make a node end its own process; it is started again when the fault ends.
FATAL_DISK = ("disk-full", "disk-error", "disk-corrupt")
# Kinds that take nothing away from the cluster as long as their amount is mild.
CALM = (
    *("loss", "loss-one-way", "delay", "delay-one-way", "clock-skew", "clock-jump"),
    *("disk-slow", "disk-short", STRAY_REPORT),
)


def family_of(action: FaultAction) -> Family:
    return KINDS[action.kind].family


def is_one_way(name: str) -> bool:
    return name.endswith("-one-way")


def check_actions(actions: tuple[FaultAction, ...], nodes: tuple[str, ...]) -> None:
    """Refuse, in one sentence, what no run can do with these faults. Raises UsageError."""
    rotten: dict[str, int] = {}
    for action in actions:
        if action.kind not in KINDS:
            raise UsageError(
                f"fault {action.id} is of the unknown kind {action.kind}: this version knows"
                f" {', '.join(KINDS)}"
            )
        _check_targets(action, nodes)
        _check_amount(action)
        if action.kind == "disk-corrupt":
            rotten |= dict.fromkeys(action.nodes or (), action.id)
    if len(rotten) > 1:
        names, numbers = list(rotten), sorted(set(rotten.values()))
        raise UsageError(
            f"fault {numbers[-1]} would corrupt a second node's disk ({' and '.join(names)}), and"
            " with it perhaps the last copy: a plan may corrupt the disk of one node only"
        )


def _check_targets(action: FaultAction, nodes: tuple[str, ...]) -> None:
    ends = [node for link in action.links or () for node in link]
    for node in (*(action.nodes or ()), *ends):
        if node not in nodes:
            raise UsageError(f"fault {action.id} names {node}, which is no node of the plan")
    if any(source == destination for source, destination in action.links or ()):
        raise UsageError(f"fault {action.id} has a link from a node to itself")
    if action.kind == "disk-corrupt" and len(action.nodes or ()) != 1:
        raise UsageError(
            f"fault {action.id} is disk-corrupt, which needs exactly one node, named in the plan"
        )


def _check_amount(action: FaultAction) -> None:
    kind = KINDS[action.kind]
    if not kind.unit:
        if action.amount:
            raise UsageError(f"fault {action.id} is of kind {action.kind}, which has no amount")
        return
    if action.amount == 0 or not kind.least <= action.amount <= kind.most:
        raise UsageError(
            f"fault {action.id} ({action.kind}) needs an amount in {kind.unit}, not 0 and between"
            f" {kind.least:g} and {kind.most:g}; it has {action.amount:g}"
        )
