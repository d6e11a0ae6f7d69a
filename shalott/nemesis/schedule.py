"""The schedule of faults: what is broken when, drawn from a seed before the run. Pure.

Faults that share a lane (their records say which: those that take processes away do, and those that
spoil disks) never overlap. Every other nemesis has a lane of its own, so partitions compose with
kills. In a lane a fault lasts ``duration_ms`` and faults begin ``interval_ms`` apart, each varied
by up to ``jitter`` (a fraction); between two faults of a lane there is at least MIN_CALM_MS. Every
draw is keyed by seed and lane (core/rng.py), so adding a nemesis does not move another
one's faults.

The promise of the safe profile is that killing one node at a time loses nothing, and a restarted
mirror is empty until it is synchronised: killing its master before that loses messages by our own
doing. So where single nodes are taken and nothing else is done that could take another one, the
actions carry ``settle``: the runner fires them only when the cluster has synchronised again, or
skips them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction
from shalott.core.rng import Stream, stream_key
from shalott.nemesis.aiming import aim, draw_atlas, draw_member, draw_parameters, renumbered
from shalott.nemesis.fault_words import Told
from shalott.nemesis.record import check_nemesis, members
from shalott.nemesis.targets import check_target, is_single

MIN_CALM_MS = 1000  # between two faults of one lane
TAIL_MS = 500  # between the last fault's end and the end of the load


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """When faults come: the first after ``quiet_ms``, then one every ``interval_ms`` for
    ``duration_ms``, each a little longer or shorter: by up to ``jitter`` of it."""

    quiet_ms: int = 2000
    interval_ms: int = 10000
    duration_ms: int = 5000
    jitter: float = 0.25


def make_schedule(
    *,
    nemeses: Sequence[str],
    nodes: Sequence[str],
    time_limit_ms: int,
    rhythm: Rhythm = Rhythm(),
    targets: str = "one",
    seed: int = 0,
    told: Mapping[str, Told] = MappingProxyType({}),
) -> tuple[FaultAction, ...]:
    """Every fault of a run, in order of time. Raises UsageError for what can't be scheduled.

    ``told``: by kind or group, what is not drawn.
    """
    wanted = [name for name in dict.fromkeys(nemeses) if name != "none"]
    _check(wanted, nodes, rhythm, targets)
    for name in told:
        if name not in (each for one in wanted for each in (one, *_kinds(one))):
            raise UsageError(f"--fault {name}: --nemesis does not name it; add it there")
    drawn: list[FaultAction] = []
    aims = [targets, *(each.target for each in told.values() if each.target)]
    settle = all(map(is_single, aims)) and all(_takes_at_most_one(name) for name in wanted)
    for lane in _lanes(wanted):
        timing = _times(
            Stream(seed, "nemesis", lane[0], "times"),
            until_ms=time_limit_ms - TAIL_MS,
            rhythm=rhythm,
        )
        for number, (at_ms, lasts_ms) in enumerate(timing):
            key = ("nemesis", lane[0], number)
            rng = Stream(seed, *key)
            name = rng.choice(lane)
            record = draw_member(name, nodes, rng)
            own = told.get(record.name, Told()).over(told.get(name, Told()))
            target = own.target or targets
            draft = FaultAction(
                id=0,
                at_ms=at_ms,
                duration_ms=lasts_ms,
                kind=record.name,
                target=target,
                amount=own.amount or Stream(seed, *key, "amount").choice(record.amounts or (0,)),
                parameters={
                    **draw_parameters(record, partial(Stream, seed, *key, "parameter")),
                    **own.parameters,
                },
                seed=stream_key(seed, *key, "firing") >> 1,
                settle=settle and record.takes_one,
            )
            atlas = (target,) if target in nodes else draw_atlas(seed, nodes)
            drawn.append(aim(draft, record, nodes, rng, atlas=atlas))
    if wanted and not drawn:
        raise UsageError(
            f"a time limit of {time_limit_ms} ms leaves no room for a fault of"
            f" {rhythm.duration_ms} ms after {rhythm.quiet_ms} ms of quiet: raise the limit or"
            " shorten the faults"
        )
    drawn.sort(key=lambda action: (action.at_ms, action.kind))
    return tuple(renumbered(drawn))


def _check(wanted: Sequence[str], nodes: Sequence[str], rhythm: Rhythm, targets: str) -> None:
    for name in wanted:
        check_nemesis(name, "none")
    check_target(targets, nodes)
    if rhythm.interval_ms <= 0 or rhythm.duration_ms <= 0 or not 0 <= rhythm.jitter < 1:
        raise UsageError(
            "a nemesis needs an interval and a duration above 0, and a jitter in [0, 1)"
        )


def _takes_at_most_one(name: str) -> bool:
    """Whether beside it, too, a plan takes one node at a time, as long as its target is one."""
    return all(record.takes_one or record.takes == "nothing" for record in members(name))


def _kinds(name: str) -> Iterator[str]:
    return (record.name for record in members(name))


def _lanes(wanted: Sequence[str]) -> list[tuple[str, ...]]:
    """Names that take turns; those with a lane of their own first."""
    lanes: dict[str, list[str]] = {}
    alone: list[tuple[str, ...]] = []
    for name in wanted:
        lane = members(name)[0].lane
        if lane:
            lanes.setdefault(lane, []).append(name)
        else:
            alone.append((name,))
    return [*alone, *(tuple(names) for names in lanes.values())]


def _times(rng: Stream, *, until_ms: int, rhythm: Rhythm) -> Iterator[tuple[int, int]]:
    """(begin, length) of one lane's faults, the last of them shortened by no more than jitter."""
    duration_ms, jitter = rhythm.duration_ms, rhythm.jitter

    def varied(length_ms: float) -> float:
        return length_ms * rng.between(1 - jitter, 1 + jitter)

    at_ms = rhythm.quiet_ms + jitter * rng.random() * rhythm.interval_ms
    while True:
        lasts_ms = int(varied(duration_ms))
        room_ms = until_ms - int(at_ms)
        if room_ms < lasts_ms:
            lasts_ms = room_ms if room_ms >= duration_ms * (1 - jitter) else 0
        if lasts_ms <= 0:
            return
        yield int(at_ms), lasts_ms
        at_ms += max(varied(rhythm.interval_ms), lasts_ms + MIN_CALM_MS)
