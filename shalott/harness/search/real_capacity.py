"""What a real world can do here: which faults it makes, and how many clusters fit side by side.

What can't be made is never drawn, and that is said. What takes other machines (disks and clocks
that can fail, which cost every call something) is drawn if it is named: else all nodes of a search
would pay for what few of its plans have.

A cluster that finds no CPU when it boots or elects is slow, and a harness that finds none stalls;
both spoil what is seen. So as many clusters run as memory and CPUs hold, and one at least.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shalott.cluster.system import System
from shalott.cluster.systems.record import Footprint
from shalott.core.errors import MissingCapability
from shalott.core.plan import Plan
from shalott.harness.run import backends
from shalott.nemesis.record import FaultRecord, members

SPECIAL = frozenset(
    {
        *("power", "disk-slow", "disk-full", "disk-error", "disk-short", "disk-corrupt"),
        *("clock", "fill-tmp"),
    }
)  # capabilities for which machines are made otherwise
KEPT_SHARE = 0.25  # of what is free, for the harness, the engine and the page cache
MIB = 1024  # in units of /proc/meminfo


@dataclass(frozen=True, slots=True)
class FaultChoice:
    """What may be drawn: ``left_out`` of the names are not, for the reasons in ``notes``."""

    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    needs: tuple[str, ...]  # what machines must be able to do for those that are left


def choose_faults(
    names: Sequence[str], plan: Plan, system: System, *, are_named: bool
) -> FaultChoice:
    """``names``: of faults and groups of them. ``plan``: any of the search's. ``are_named``: by the
    user, who is refused what can't be; raises MissingCapability."""
    can = capabilities_of(plan)
    where = f"{plan.cluster.backend} here"
    lacking = {name: _lacks(name, can, system) for name in names}
    impossible = {name: lacks for name, lacks in lacking.items() if lacks}
    if impossible and are_named:
        told = "; ".join(f"{name} needs {lacks}" for name, lacks in impossible.items())
        raise MissingCapability(f"{where} can't make what --nemesis names: {told}")
    special = [name for name in names if not are_named and _needs(members(name)) & SPECIAL]
    special = [name for name in special if name not in impossible]
    notes = [
        f"Not drawn, for {where} lacks {what}: {', '.join(of)}."
        for what, of in _by_reason(impossible).items()
    ]
    if special:
        notes.append(
            f"Not drawn unless --nemesis names them, since every node would need a disk or a clock"
            f" of its own: {', '.join(special)}."
        )
    left_out = (*impossible, *special)
    kept = [record for name in names if name not in left_out for record in members(name)]
    return FaultChoice(left_out=left_out, notes=tuple(notes), needs=tuple(sorted(_needs(kept))))


def capabilities_of(plan: Plan) -> frozenset[str]:
    """What the plan's cluster could do here if its machines were made for it."""
    with tempfile.TemporaryDirectory() as work:
        cluster = backends.make_cluster(plan, "search", Path(work), needs=SPECIAL)
        return frozenset(cluster.capabilities)


def _needs(records: Iterable[FaultRecord]) -> frozenset[str]:
    return frozenset(need for record in records for need in record.needs)


def _lacks(name: str, can: frozenset[str], system: System) -> str:
    """What some fault of that name lacks; "" if all can be made."""
    missing = sorted(_needs(members(name)) - can)
    if missing:
        return ", ".join(missing)
    asked = (protocol for record in members(name) for protocol in record.asks)
    return next(
        (f"{system.name} with {each.__name__}" for each in asked if not isinstance(system, each)),
        "",
    )


def _by_reason(impossible: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, lacks in impossible.items():
        found.setdefault(lacks, []).append(name)
    return found


def clusters_that_fit(footprint: Footprint, nodes: int) -> int:
    """On this machine, as it is now."""
    return how_many(footprint, nodes, available_mib(), len(os.sched_getaffinity(0)))


def how_many(footprint: Footprint, nodes: int, memory_mib: float, cpus: int) -> int:
    """``memory_mib``: what is free."""
    by_memory = memory_mib * (1 - KEPT_SHARE) / (footprint.memory_mib * nodes)
    by_cpus = cpus / (footprint.cpus * nodes)
    return max(1, int(min(by_memory, by_cpus) + 1e-9))


def available_mib(meminfo: Path = Path("/proc/meminfo")) -> float:
    """What programs can have without swapping; infinite where the machine does not say."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return float("inf")
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) / MIB if found else float("inf")
