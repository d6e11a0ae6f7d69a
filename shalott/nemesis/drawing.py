"""Drawing faults for a search: a schedule for a seed, by weights of kinds, under a promise. Pure.

The load's time is cut into slots of ``interval_ms``, and each slot has at most one action that is a
function of (seed, its number) alone: taking a slot away, or letting a kind go, moves no other one.
Every action carries its own end, and its target as far as it is known before the run, so any subset
of the result is a schedule.

``promise`` says what the system under test promises to survive, for a fault that goes further finds
nothing but our own doing (nemesis/schedule.py). *one-at-a-time*, that of the safe profile: one
node at a time is killed, stopped, powered off, paused, or has a disk that fails, or the cluster is
partitioned, each ending within its slot and each waiting (``settle``) until mirrors are
synchronised again. Only what takes nothing away (``FaultRecord.is_calm``, with mild amounts) may
last longer and overlap. *one-or-all*: the same, and all nodes at once count as one. *anything* has
no bounds but the atlas of faults that do not heal: several nodes, overlapping, and all at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction
from shalott.core.rng import Stream, stream_key
from shalott.nemesis.aiming import aim, draw_atlas, draw_member, draw_parameters, renumbered
from shalott.nemesis.record import FaultRecord, check_nemesis, members
from shalott.nemesis.schedule import MIN_CALM_MS, TAIL_MS
from shalott.nemesis.targets import check_target, is_single

Promise = Literal["one-at-a-time", "one-or-all", "anything"]
PROMISES: tuple[Promise, ...] = ("one-at-a-time", "one-or-all", "anything")
BEGIN_SHARE = 0.4  # of faults that come one at a time each begins within so much of its slot
STEP_MS = 100  # times are round numbers, for who reads and who shrinks them


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """How the load's time is cut: slots of ``interval_ms`` after ``quiet_ms``, with a fault in each
    that lasts between the two ``duration_ms``."""

    quiet_ms: int = 2000
    interval_ms: int = 8000
    duration_ms: tuple[int, int] = (500, 5000)


def draw_faults(
    seed: int,
    *,
    nodes: Sequence[str],
    time_limit_ms: int,
    kinds: Mapping[str, float],
    promise: Promise,
    slots: Slots = Slots(),
    count: int | None = None,
    targets: Sequence[str] = ("one", "one", "master"),
) -> tuple[FaultAction, ...]:
    """The seed's faults, in order of time; () if nothing has a weight.

    ``kinds``: weight by name, those of ``--nemesis`` (``partition`` draws a shape). At most
    ``count`` actions, the first ones; one for each slot that has room for it otherwise. Raises
    UsageError for what can't be drawn, or what the promise rules out.
    """
    _check(nodes, kinds, promise, slots, targets)
    drawn: list[FaultAction] = []
    end_ms = time_limit_ms - TAIL_MS
    for number, slot_ms in enumerate(range(slots.quiet_ms, end_ms, slots.interval_ms)):
        name = _weighted(kinds, Stream(seed, "faults", number, "kind"))
        if name is None or (count is not None and number >= count):
            break
        rng = Stream(seed, "faults", number, "aim")
        record = draw_member(name, nodes, rng)
        alone = promise != "anything" and not record.is_calm
        when = Stream(seed, "faults", number, "when")
        at_ms, lasts_ms = _times(when, slot_ms, end_ms, slots, alone=alone)
        if lasts_ms <= 0:
            continue
        draft = FaultAction(
            id=0,
            at_ms=at_ms,
            duration_ms=lasts_ms,
            kind=record.name,
            target=Stream(seed, "faults", number, "target").choice(targets),
            amount=_amount(record, promise, Stream(seed, "faults", number, "amount")),
            parameters=draw_parameters(
                record, partial(Stream, seed, "faults", number, "parameter")
            ),
            seed=stream_key(seed, "faults", number, "firing") >> 1,
            settle=alone,
        )
        drawn.append(aim(draft, record, nodes, rng, atlas=draw_atlas(seed, nodes)))
    drawn.sort(key=lambda action: (action.at_ms, action.kind))
    return tuple(renumbered(drawn))


def _check(
    nodes: Sequence[str],
    kinds: Mapping[str, float],
    promise: str,
    slots: Slots,
    targets: Sequence[str],
) -> None:
    if promise not in PROMISES:
        raise UsageError(f"unknown promise {promise}: choose one of {', '.join(PROMISES)}")
    for name, weight in kinds.items():
        check_nemesis(name)
        if weight < 0:
            raise UsageError(f"the weight of {name} is {weight:g}: it must not be below 0")
        hits_all = any(record.hits_all for record in members(name))
        if weight and promise == "one-at-a-time" and hits_all:
            raise UsageError(f"{name} takes every node, which the promise one-at-a-time rules out")
    for target in targets:
        check_target(target, nodes)
        if promise != "anything" and not is_single(target):
            raise UsageError(
                f"the target {target} may be several nodes, which the promise {promise} rules out"
            )
    least_ms, most_ms = slots.duration_ms
    if not targets or not 0 < least_ms <= most_ms:
        raise UsageError("faults need a target, and durations above 0, the shorter one first")
    if slots.interval_ms < 2 * MIN_CALM_MS:
        raise UsageError(
            f"faults must be at least {2 * MIN_CALM_MS} ms apart, not {slots.interval_ms}"
        )


def _weighted(kinds: Mapping[str, float], rng: Stream) -> str | None:
    """A kind by weight, in any order of the mapping; None if none has any."""
    names = sorted(name for name, weight in kinds.items() if weight > 0)
    if not names:
        return None
    left = rng.random() * sum(kinds[name] for name in names)
    for name in names:
        left -= kinds[name]
        if left < 0:
            return name
    return names[-1]


def _times(
    rng: Stream,
    slot_ms: int,
    end_ms: int,
    slots: Slots,
    *,
    alone: bool,
) -> tuple[int, int]:
    """(begin, length); a length of 0 if there is no room for it."""
    share = BEGIN_SHARE if alone else 1.0
    at_ms = slot_ms + _round(rng.random() * share * slots.interval_ms)
    lasts_ms = _round(rng.between(*slots.duration_ms))
    limit_ms = min(end_ms, slot_ms + slots.interval_ms - MIN_CALM_MS) if alone else end_ms
    return at_ms, min(max(lasts_ms, 1), limit_ms - at_ms)


def _round(time_ms: float) -> int:
    return int(time_ms) // STEP_MS * STEP_MS


def _amount(record: FaultRecord, promise: Promise, rng: Stream) -> float:
    amounts = record.amounts
    if promise != "anything" and record.is_calm and record.amount is not None:
        amounts = amounts[: record.amount.mild]
    return rng.choice(amounts or (0,))
