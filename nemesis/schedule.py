"""The schedule of faults: what is broken when, drawn from a seed before the run. Pure.

Nemeses that take processes away (kill, stop, power, and what they do to all nodes) share one lane:
of them never two faults overlap. So do those that spoil disks, of one node at a time. Every other
nemesis has a lane of its own, so partitions compose with kills. In a lane a fault lasts
``duration_ms`` and faults begin ``interval_ms`` apart, each varied by up to ``jitter`` (a
fraction); between two faults of a lane there is at least MIN_CALM_MS. Every draw is keyed by seed
and lane (harness/core/rng.py), so adding a nemesis does not move another one's faults.

The promise of the safe profile is that killing one node at a time loses nothing, and a restarted
mirror is empty until it is synchronised: killing its master before that loses messages by our own
doing. So where single nodes are taken and nothing else is done that could take another one, the
actions carry ``settle``: the runner fires them only when the cluster has synchronised again, or
skips them.

Corruption is bounded as in TigerBeetle's storage fault atlas: one node's disk in a whole plan, for
what has rotted stays rotten, and a second node's would be the last copy of something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from shalott.harness.core.errors import UsageError
from shalott.harness.core.plan import FaultAction
from shalott.harness.core.rng import Stream, stream_key
from shalott.nemesis import grudges
from shalott.nemesis.kinds import (
    ALL_NODES,
    FAILOVER,
    FATAL_DISK,
    KINDS,
    PARTITIONS,
    REDECLARE,
    STRAY_REPORT,
    UNNOTICED_REDECLARE,
    WIPE,
    is_one_way,
)
from shalott.nemesis.targets import check_target, draw_nodes, is_role, is_single

PROCESS_KINDS = (
    *("kill", REDECLARE, "stop", "power", UNNOTICED_REDECLARE),
    *("restart-all", "kill-all", "power-all", FAILOVER, WIPE),
)
DISK_KINDS = ("disk-slow", "disk-full", "disk-error", "disk-short", "disk-corrupt")
NEMESES = ("partition", *KINDS)
# Kinds that take a single node, if their target is one, until it has synchronised again.
TAKING = ("kill", REDECLARE, "stop", "power", UNNOTICED_REDECLARE, FAILOVER, WIPE, *FATAL_DISK)
# Kinds beside which a plan still takes one node at a time.
HARMLESS = ("clock-skew", "clock-jump", "disk-slow", "disk-short", STRAY_REPORT)

MIN_CALM_MS = 1000  # between two faults of one lane
TAIL_MS = 500  # between the last fault's end and the end of the load
RESTART_JITTER_MS = 3000


def make_schedule(
    *,
    nemeses: Sequence[str],
    nodes: Sequence[str],
    time_limit_ms: int,
    quiet_ms: int = 2000,
    interval_ms: int = 10000,
    duration_ms: int = 5000,
    targets: str = "one",
    seed: int = 0,
    jitter: float = 0.25,
    restart_jitter_ms: int = RESTART_JITTER_MS,
) -> tuple[FaultAction, ...]:
    """Every fault of a run, in order of time. Raises UsageError for what can't be scheduled."""
    wanted = [name for name in dict.fromkeys(nemeses) if name != "none"]
    for name in wanted:
        if name not in NEMESES:
            raise UsageError(f"unknown nemesis {name}: one of {', '.join((*NEMESES, 'none'))}")
    check_target(targets, nodes)
    if interval_ms <= 0 or duration_ms <= 0 or not 0 <= jitter < 1:
        raise UsageError(
            "a nemesis needs an interval and a duration above 0, and a jitter in [0, 1)"
        )
    drawn: list[FaultAction] = []
    settle = set(wanted) <= {*TAKING, *HARMLESS} and is_single(targets)
    for lane in _lanes(wanted):
        timing = _times(
            Stream(seed, "nemesis", lane[0], "times"),
            range_ms=(quiet_ms, time_limit_ms - TAIL_MS),
            interval_ms=interval_ms,
            duration_ms=duration_ms,
            jitter=jitter,
        )
        for number, (at_ms, lasts_ms) in enumerate(timing):
            rng = Stream(seed, "nemesis", lane[0], number)
            kind = shape_of(rng.choice(lane), nodes, rng)
            amounts = KINDS[kind].amounts
            draft = FaultAction(
                id=0,
                at_ms=at_ms,
                duration_ms=lasts_ms,
                kind=kind,
                target=targets,
                amount=Stream(seed, "nemesis", lane[0], number, "amount").choice(amounts or (0,)),
                seed=stream_key(seed, "nemesis", lane[0], number, "firing") >> 1,
                settle=settle and kind in TAKING,
            )
            drawn.append(aim(draft, nodes, rng, atlas(seed, nodes), restart_jitter_ms))
    if wanted and not drawn:
        raise UsageError(
            f"a time limit of {time_limit_ms} ms leaves no room for a fault of {duration_ms} ms "
            f"after {quiet_ms} ms of quiet: raise the limit or shorten the faults"
        )
    drawn.sort(key=lambda action: (action.at_ms, action.kind))
    return tuple(renumbered(drawn))


def required_capabilities(actions: Iterable[FaultAction]) -> frozenset[str]:
    """What a cluster must be able to do to run these."""
    return frozenset(need for action in actions for need in KINDS[action.kind].needs)


def atlas(seed: int, nodes: Sequence[str]) -> str:
    """The only node whose disk this seed's plan may corrupt."""
    return Stream(seed, "atlas").choice(nodes)


def _lanes(wanted: Sequence[str]) -> list[tuple[str, ...]]:
    alone = [(name,) for name in wanted if name not in (*PROCESS_KINDS, *DISK_KINDS)]
    shared = [
        tuple(name for name in wanted if name in kinds) for kinds in (PROCESS_KINDS, DISK_KINDS)
    ]
    return [*alone, *(lane for lane in shared if lane)]


def _times(
    rng: Stream,
    *,
    range_ms: tuple[int, int],
    interval_ms: int,
    duration_ms: int,
    jitter: float,
) -> Iterator[tuple[int, int]]:
    """(begin, length) of one lane's faults, the last of them shortened by no more than jitter."""
    begin_ms, end_ms = range_ms

    def varied(length_ms: float) -> float:
        return length_ms * rng.between(1 - jitter, 1 + jitter)

    at_ms = begin_ms + jitter * rng.random() * interval_ms
    while True:
        lasts_ms = int(varied(duration_ms))
        room_ms = end_ms - int(at_ms)
        if room_ms < lasts_ms:
            lasts_ms = room_ms if room_ms >= duration_ms * (1 - jitter) else 0
        if lasts_ms <= 0:
            return
        yield int(at_ms), lasts_ms
        at_ms += max(varied(interval_ms), lasts_ms + MIN_CALM_MS)


def shape_of(name: str, nodes: Sequence[str], rng: Stream) -> str:
    """The kind itself, or for ``partition`` one of the shapes that so many nodes allow."""
    if name != "partition":
        return name
    few = len(nodes) < 3
    return rng.choice(
        [
            kind
            for kind in PARTITIONS
            if not (few and kind in ("partition-majorities-ring", "partition-bridge"))
        ]
    )


_Shape = Callable[[Sequence[str], Stream, tuple[str, ...]], grudges.Links]
_SHAPES: Mapping[str, _Shape] = {
    "partition-halves": lambda nodes, rng, hit: grudges.halves(nodes),
    "partition-random-halves": lambda nodes, rng, hit: grudges.random_halves(nodes, rng),
    "partition-one": lambda nodes, rng, hit: grudges.isolate(nodes, hit),
    "partition-majorities-ring": lambda nodes, rng, hit: grudges.majorities_ring(nodes, rng),
    "partition-bridge": lambda nodes, rng, hit: grudges.bridge(nodes, rng),
    "partition-one-way": lambda nodes, rng, hit: grudges.one_way(nodes, hit),
    "partition-isolate-master": lambda nodes, rng, hit: grudges.isolate(nodes, hit),
}
AIMED = ("partition-one", "partition-one-way", "partition-isolate-master")


def aimed_links(
    kind: str, nodes: Sequence[str], hit: tuple[str, ...], rng: Stream
) -> grudges.Links:
    """The links of a partition or link fault; ``hit`` are the nodes it is aimed at, if it is."""
    if kind in _SHAPES:
        return _SHAPES[kind](nodes, rng, hit)
    return grudges.touching(nodes, hit, outgoing_only=is_one_way(kind))


def aim(
    draft: FaultAction, nodes: Sequence[str], rng: Stream, rotten: str, restart_jitter_ms: int
) -> FaultAction:
    """Resolve nodes and links, as far as they can be before the run.

    ``rotten``: the only node whose disk may be corrupted.
    """
    kind, target = draft.kind, draft.target
    if kind in ALL_NODES:
        target = "all"
    elif kind == "disk-corrupt":
        target = rotten
    elif kind in FATAL_DISK and not is_single(target):
        target = "one"
    elif kind == "partition-isolate-master":
        target = "master"
    elif kind in ("partition-one", "partition-one-way") and not is_single(target):
        target = "one"
    elif kind.startswith("partition") and kind not in AIMED:
        target = ""
    hit = None if is_role(target) else draw_nodes(target, nodes, rng) if target else ()
    links = None
    if KINDS[kind].family in ("partition", "link"):
        links = None if hit is None else aimed_links(kind, nodes, hit, rng)
    return msgspec.structs.replace(
        draft,
        target=target,
        nodes=hit,
        links=links,
        jitter_ms=restart_jitter_ms if kind in ALL_NODES else 0,
    )


def renumbered(actions: Sequence[FaultAction]) -> Iterator[FaultAction]:
    for number, action in enumerate(actions, start=1):
        yield msgspec.structs.replace(action, id=number)
