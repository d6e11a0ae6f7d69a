"""Mutations of plans: what a search tries next to a plan that showed something new. Pure.

A step adds, doubles, drops, retargets, moves or stretches one fault, has it wait for another
moment, changes the load or the world, or goes on with another plan's faults. What is added comes
from plans that were drawn for the same subject, so a mutated plan has nothing that a search could
not have drawn; and what the promise says stays true: faults that come alone stay apart, and lasting
harm stays where it was drawn (``draw_atlas``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from shalott.cluster.nodes import CLIENTS
from shalott.cluster.system import NamesMessages
from shalott.cluster.systems.record import SYSTEMS
from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction, Plan, Trigger, canonical
from shalott.core.rng import Stream
from shalott.harness.run.plan_checks import check_plan, requirements_of
from shalott.nemesis.aiming import renumbered
from shalott.nemesis.drawing import STEP_MS
from shalott.nemesis.drawn_triggers import apart, draw_triggers, together
from shalott.nemesis.record import FAULTS
from shalott.nemesis.schedule import MIN_CALM_MS, TAIL_MS

STEPS = (1, 1, 2, 3)  # taken at once
TRIES = 6
replace = msgspec.structs.replace
Faults = tuple[FaultAction, ...]


@dataclass(frozen=True, slots=True)
class _Case:
    """``fresh``: drawn for this very number. ``other``: one more that had shown something new."""

    plan: Plan
    fresh: Plan
    other: Plan
    rng: Stream

    @property
    def faults(self) -> Faults:
        return self.plan.faults

    def one(self) -> FaultAction:
        return self.rng.choice(self.faults)

    def round_ms(self, least: float, most: float) -> int:
        return max(STEP_MS, int(self.rng.between(least, most)) // STEP_MS * STEP_MS)


def mutate(parent: Plan, *, fresh: Plan, other: Plan, seed: int) -> Plan:
    """A plan that differs from its parent by a step or a few; ``fresh`` if none can be taken."""
    rng = Stream(seed, "mutation")
    again = {**_again(fresh), **_again(other), **_again(parent)}
    bare, fresh_bare, other_bare = _bare(parent), _bare(fresh), _bare(other)
    plan = bare
    for _ in range(rng.choice(STEPS)):
        plan = _step(plan, fresh_bare, other_bare, rng)
    child = canonical(_followed(plan, again))
    return fresh if plan == bare or child == parent else child


# What hits a node a second time goes where the fault goes that it counts since.


def _again(plan: Plan) -> dict[int, FaultAction]:
    """By the seed of the fault that each counts since."""
    seeds = {action.id: action.seed for action in plan.faults}
    return {seeds[first]: action for action, first in apart(plan.faults)[1]}


def _bare(plan: Plan) -> Plan:
    """With other faults queues may be without an answer for longer."""
    gates = replace(plan.gates, max_rto_ms=None)
    return replace(plan, faults=tuple(renumbered(apart(plan.faults)[0])), gates=gates)


def _followed(plan: Plan, again: Mapping[int, FaultAction]) -> Plan:
    end_ms = plan.time_limit_ms - TAIL_MS
    more = [
        (replace(again[first.seed], at_ms=first.at_ms + 1), first.id)
        for first in plan.faults
        if first.seed in again and first.at_ms + 1 + again[first.seed].duration_ms <= end_ms
    ]
    followed = replace(plan, faults=together(plan.faults, more))
    return replace(followed, requires=requirements_of(followed))


def _step(plan: Plan, fresh: Plan, other: Plan, rng: Stream) -> Plan:
    """A step that leads to a plan that may be run; the plan itself if some tries lead to none."""
    for _ in range(TRIES):
        step, needs_faults = rng.choice(_STEPS)
        if needs_faults and not plan.faults:
            continue
        taken = _in_order(step(_Case(plan, fresh, other, rng)))
        if taken != plan and keeps_promise(taken) and _is_sound(taken):
            return taken
    return plan


def _in_order(plan: Plan) -> Plan:
    plan = replace(plan, faults=tuple(renumbered(sorted(plan.faults, key=_time))))
    return replace(plan, requires=requirements_of(plan))


def _is_sound(plan: Plan) -> bool:
    try:
        check_plan(plan)
    except UsageError:
        return False
    return True


def keeps_promise(plan: Plan) -> bool:
    """Whether faults that come alone are apart, and all end before the load does."""
    end_ms = plan.time_limit_ms - TAIL_MS
    alone = sorted((action for action in plan.faults if action.settle), key=_time)
    are_apart = all(
        before.at_ms + before.duration_ms + MIN_CALM_MS <= after.at_ms
        for before, after in zip(alone, alone[1:], strict=False)
    )
    takes_all = any(FAULTS.find(action.kind).hits_all for action in alone)
    if takes_all and any(FAULTS.find(action.kind).does_not_heal for action in plan.faults):
        return False  # a node that can't start again is one more than all
    return are_apart and all(
        action.at_ms >= 0 and action.duration_ms > 0 and action.at_ms + action.duration_ms <= end_ms
        for action in plan.faults
    )


def _time(action: FaultAction) -> tuple[int, str]:
    return action.at_ms, action.kind


def _with(case: _Case, *faults: FaultAction, without: FaultAction | None = None) -> Plan:
    kept = (each for each in case.faults if each is not without)
    return replace(case.plan, faults=(*kept, *faults))


def _may_come(action: FaultAction, plan: Plan) -> bool:
    """Whether a fault of another plan may be in this one."""
    record = FAULTS.find(action.kind)
    lasts = record.does_not_heal or record.may_hit_minority
    nodes = plan.cluster.nodes
    named = (*(action.nodes or ()), *(node for link in action.links or () for node in link))
    own = (end for each in action.triggers for end in (each.node, each.sender) if end)
    return not lasts and all(node in (*nodes, CLIENTS) for node in (*named, *own))


# -- steps -----------------------------------------------------------------------------------------


def _add(case: _Case) -> Plan:
    """A drawn fault more, at any time."""
    offered = [each for each in case.fresh.faults if _may_come(each, case.plan)]
    if not offered:
        return case.plan
    action = case.rng.choice(offered)
    latest_ms = max(STEP_MS, case.plan.time_limit_ms - TAIL_MS - action.duration_ms)
    return _with(case, replace(action, at_ms=case.round_ms(0, latest_ms)))


def _double(case: _Case) -> Plan:
    """The same again, soon after."""
    action = case.one()
    later_ms = action.at_ms + action.duration_ms + MIN_CALM_MS + case.round_ms(0, 3000)
    return _with(case, replace(action, at_ms=later_ms))


def _drop(case: _Case) -> Plan:
    return _with(case, without=case.one())


def _stretch(case: _Case) -> Plan:
    """Longer or shorter."""
    action = case.one()
    lasts_ms = case.round_ms(action.duration_ms * 0.3, action.duration_ms * 3)
    return _with(case, replace(action, duration_ms=lasts_ms), without=action)


def _move(case: _Case) -> Plan:
    """Earlier or later, by a little or by much."""
    action = case.one()
    reach_ms = case.rng.choice((500, 3000, 20_000))
    at_ms = case.round_ms(action.at_ms - reach_ms, action.at_ms + reach_ms)
    return _with(case, replace(action, at_ms=at_ms), without=action)


def _retarget(case: _Case) -> Plan:
    """The nodes change places in one fault."""
    action = case.one()
    if FAULTS.find(action.kind).does_not_heal or FAULTS.find(action.kind).may_hit_minority:
        return case.plan
    nodes = case.plan.cluster.nodes
    places = dict(zip(nodes, case.rng.shuffled(nodes), strict=True))
    return _with(case, _placed(action, places), without=action)


def _placed(action: FaultAction, places: Mapping[str, str]) -> FaultAction:
    def at(name: str) -> str:
        return places.get(name, name)

    def of_trigger(trigger: Trigger) -> Trigger:
        return replace(trigger, node=at(trigger.node), sender=at(trigger.sender))

    nodes, links = action.nodes, action.links
    when, until = action.when, action.until
    return replace(
        action,
        target="+".join(map(at, action.target.split("+"))),
        nodes=None if nodes is None else tuple(map(at, nodes)),
        links=None if links is None else tuple((at(a), at(b)) for a, b in links),
        when=when if when is msgspec.UNSET else of_trigger(when),
        until=until if until is msgspec.UNSET else of_trigger(until),
    )


def _await(case: _Case) -> Plan:
    """One fault waits for a moment that is drawn for it, or for none."""
    action = case.one()
    if action.triggers:
        timely = replace(action, when=msgspec.UNSET, until=msgspec.UNSET)
        return _with(case, timely, without=action)
    system = SYSTEMS.find(case.plan.system.name).make(case.plan)
    names = system if isinstance(system, NamesMessages) else None
    (drawn,) = draw_triggers(
        case.rng.next_u64() >> 1,
        (action,),
        messages=() if names is None else names.message_names,
        files=() if names is None else names.data_files,
        changes=not any(each.settle for each in case.faults),
    )
    return _with(case, drawn, without=action)


def _reload(case: _Case) -> Plan:
    """The clients' rate, patience or number is another's."""
    told = case.rng.choice((case.fresh, case.other)).workload
    own = case.plan.workload
    if told.name != own.name:
        return case.plan
    changed = case.rng.choice(
        (
            replace(own, rate_hz=told.rate_hz),
            replace(own, op_timeout_ms=told.op_timeout_ms),
            replace(own, parameters=told.parameters),
        )
    )
    return replace(case.plan, workload=changed)


def _reseed(case: _Case) -> Plan:
    """What clients do, or what the world is like, is drawn anew; the faults stay."""
    plan, fresh = case.plan, case.fresh
    if case.rng.random() < 0.5 or plan.sim is None or fresh.sim is None:
        return replace(plan, seed=fresh.seed)
    clocks = tuple(each for each in fresh.sim.clocks if each.node in plan.cluster.nodes)
    return replace(plan, sim=replace(fresh.sim, clocks=clocks))


def _splice(case: _Case) -> Plan:
    """Up to a moment its own faults, and another plan's from then on."""
    at_ms = case.round_ms(0, case.plan.time_limit_ms)
    own = [each for each in case.faults if each.at_ms + each.duration_ms <= at_ms]
    rest = [
        each
        for each in case.other.faults
        if each.at_ms >= at_ms + MIN_CALM_MS and _may_come(each, case.plan)
    ]
    return replace(case.plan, faults=(*own, *rest))


# Each, and whether it needs a fault.
_STEPS: Sequence[tuple[Callable[[_Case], Plan], bool]] = (
    (_add, False),
    (_double, True),
    (_drop, True),
    (_stretch, True),
    (_move, True),
    (_retarget, True),
    (_await, True),
    (_reload, False),
    (_reseed, False),
    (_splice, False),
)
