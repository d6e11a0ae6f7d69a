"""What a shrinker may try: for each pass the smaller plans that one step leads to, and the order
that says what smaller is. Pure; nothing here knows whether a plan fails.

Every candidate is a plan that could have been drawn: actions keep their own end, targets that were
resolved are narrowed rather than drawn again, and the seed never changes, so what stays draws what
it drew before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from shalott.cluster.systems.record import SYSTEMS, serving_nodes
from shalott.core.plan import DiskPlan, FaultAction, NetworkPlan, Plan, SimPlan
from shalott.nemesis.sequence import relinked
from shalott.nemesis.weaker import strength, weaker_actions
from shalott.workloads.record import WORKLOADS

replace = msgspec.structs.replace

_ROUND_MS = (1000, 500, 100)
_SHORTEST_MS = 100
_RATES_HZ = (1.0, 2.0, 5.0, 10.0, 20.0)
CALM_NETWORK = NetworkPlan()
CALM_DISK = DiskPlan(call_us=(50, 50), sync_us=(1000, 1000), power_loss="keep")


def measure(plan: Plan) -> tuple[float, ...]:
    """Smaller in this order is better: fewer, then weaker, then shorter, calmer and rounder."""
    faults, workload = plan.faults, plan.workload
    times_ms = [plan.time_limit_ms, *(t for a in faults for t in (a.at_ms, a.duration_ms))]
    return (
        len(faults),
        sum(strength(action) for action in faults),
        sum(_extent(action, len(plan.cluster.nodes)) for action in faults),
        sum(each.count + bool(each.files) for action in faults for each in action.triggers),
        len(plan.cluster.nodes),
        round(workload.rate_hz * plan.time_limit_ms),
        workload.concurrency,
        sum(_lowerable(plan).values()),
        plan.time_limit_ms,
        sum(action.duration_ms for action in faults),
        sum(action.at_ms for action in faults),
        _loudness(plan.sim),
        len(_noise(plan)),
        sum(_roughness(time_ms) for time_ms in times_ms),
    )


def _extent(action: FaultAction, node_count: int) -> int:
    """How much it hits. Who is not resolved yet may be anybody."""
    links = len(action.links) if action.links is not None else 0
    nodes = len(action.nodes) if action.nodes is not None else node_count
    return links + nodes + bool(action.jitter_ms) + len(action.triggers)


def _loudness(sim: SimPlan | None) -> int:
    """Buggify off, then with as many silenced sites as possible."""
    if sim is None or not (sim.buggify or sim.buggify_on):
        return 0
    return 1_000_000 - len(sim.buggify_off)


def _roughness(time_ms: int) -> int:
    return next((i for i, step in enumerate(_ROUND_MS) if time_ms % step == 0), len(_ROUND_MS))


# -- fewer -----------------------------------------------------------------------------------------


def with_faults(plan: Plan, faults: Sequence[FaultAction]) -> Plan:
    """The same plan with these faults; their ids stay, for they name them in both plans."""
    return replace(plan, faults=relinked(plan.faults, faults))


def cut_at(plan: Plan, limit_ms: int) -> Plan:
    """The load ends at ``limit_ms``; faults end with it, later ones are gone."""
    faults = [
        replace(action, duration_ms=min(action.duration_ms, limit_ms - action.at_ms))
        for action in plan.faults
        if action.at_ms < limit_ms
    ]
    return replace(with_faults(plan, faults), time_limit_ms=limit_ms)


def fewer_operations(plan: Plan) -> Iterator[Plan]:
    """Slower, fewer clients, fewer queues."""
    workload = plan.workload
    smaller = [replace(workload, rate_hz=rate) for rate in _RATES_HZ if rate < workload.rate_hz]
    smaller += [
        replace(workload, concurrency=count)
        for count in _below(workload.concurrency, len(serving_nodes(plan)))
    ]
    smaller += [
        replace(workload, parameters={**workload.parameters, name: count})
        for name, value in _lowerable(plan).items()
        for count in _below(value, 1)
    ]
    for other in smaller:
        yield replace(plan, workload=other)


def _lowerable(plan: Plan) -> dict[str, int]:
    """The workload's whole numbers that may be made smaller."""
    names = WORKLOADS.find(plan.workload.name).lower
    return {name: int(plan.workload.parameters.get(name, 1)) for name in names}


def _below(value: int, least: int) -> list[int]:
    """The least, half, one less: what is worth trying."""
    tries = dict.fromkeys((least, (value + least) // 2, value - 1))
    return [number for number in tries if least <= number < value]


def fewer_nodes(plan: Plan) -> Iterator[Plan]:
    """Without one of the nodes, the last one first; who was aimed at it alone is gone too. The last
    one that hosts a service stays."""
    layouts = SYSTEMS.find(plan.system.name).layouts
    nodes, system = plan.cluster.nodes, plan.system
    for gone in reversed(nodes) if len(nodes) > 1 else ():
        kept = tuple(node for node in nodes if node != gone)
        services = {node: own for node, own in system.services.items() if node != gone}
        if layouts is not None and system.services and layouts.missing(services, system.parameters):
            continue
        faults = [_without(action, gone) for action in plan.faults]
        sim = plan.sim
        if sim is not None:
            clocks = tuple(clock for clock in sim.clocks if clock.node != gone)
            sim = replace(sim, clocks=clocks)
        yield replace(
            plan,
            cluster=replace(plan.cluster, nodes=kept),
            system=replace(system, services=services),
            faults=relinked(plan.faults, [each for each in faults if each is not None]),
            sim=sim,
        )


def _without(action: FaultAction, gone: str) -> FaultAction | None:
    """The action with one node less; None if nothing of it is left."""
    if any(gone in (trigger.node, trigger.sender) for trigger in action.triggers):
        return None
    names = action.target.split("+")
    target = "+".join(name for name in names if name != gone)
    nodes, links = action.nodes, action.links
    if nodes is not None:
        nodes = tuple(node for node in nodes if node != gone)
    if links is not None:
        links = tuple(link for link in links if gone not in link)
    emptied = (action.nodes and not nodes) or (action.links and not links)
    if emptied or (action.target and not target):
        return None
    return replace(action, target=target, nodes=nodes, links=links)


# -- weaker ----------------------------------------------------------------------------------------


def weaker(plan: Plan) -> Iterator[Plan]:
    """One action replaced by a weaker one."""
    for place, action in enumerate(plan.faults):
        for other in weaker_actions(action):
            yield with_faults(plan, (*plan.faults[:place], other, *plan.faults[place + 1 :]))


# -- shorter and rounder ---------------------------------------------------------------------------


def shorter(plan: Plan) -> Iterator[Plan]:
    """Less waiting between faults, shorter faults, rounder times."""
    yield from _closer_together(plan)
    for place, action in enumerate(plan.faults):
        for duration_ms in _shorter_times(action.duration_ms):
            yield _with_action(plan, place, replace(action, duration_ms=duration_ms))
    for place, action in enumerate(plan.faults):
        for at_ms in _rounded_down(action.at_ms):
            yield _with_action(plan, place, replace(action, at_ms=at_ms))
    for limit_ms in _rounded_down(plan.time_limit_ms):
        if limit_ms > max((action.at_ms for action in plan.faults), default=0):
            yield cut_at(plan, limit_ms)


def _with_action(plan: Plan, place: int, action: FaultAction) -> Plan:
    return with_faults(plan, (*plan.faults[:place], action, *plan.faults[place + 1 :]))


def _closer_together(plan: Plan) -> Iterator[Plan]:
    """From the first gap on, everything later happens earlier, and the load ends earlier by as
    much."""
    in_time = sorted({action.at_ms for action in plan.faults})
    for before_ms, at_ms in zip([0, *in_time], in_time, strict=False):
        for shift_ms in dict.fromkeys((at_ms - before_ms - 1000, (at_ms - before_ms) // 2)):
            limit_ms = plan.time_limit_ms - shift_ms
            if shift_ms < _SHORTEST_MS or limit_ms < 1:
                continue
            moved = [
                replace(action, at_ms=action.at_ms - shift_ms) if action.at_ms >= at_ms else action
                for action in plan.faults
            ]
            yield replace(plan, time_limit_ms=limit_ms, faults=tuple(moved))


def _shorter_times(time_ms: int) -> list[int]:
    quarters = [time_ms // 4, time_ms // 2, time_ms * 3 // 4]
    rounded = [number for part in (*quarters, time_ms) for number in _rounded_down(part)[:1]]
    return [t for t in dict.fromkeys((*rounded, *quarters)) if _SHORTEST_MS <= t < time_ms]


def _rounded_down(time_ms: int) -> list[int]:
    """Rounder times before ``time_ms``, the roundest first."""
    rounded = dict.fromkeys(time_ms // step * step for step in _ROUND_MS)
    return [number for number in rounded if 0 < number < time_ms]


# -- calmer ----------------------------------------------------------------------------------------


def quieter_sites(plan: Plan, silenced: Sequence[str]) -> Plan:
    """Without these buggify sites; with none given, without any at all."""
    assert plan.sim is not None
    if not silenced:
        return replace(plan, sim=replace(plan.sim, buggify=False, buggify_off=(), buggify_on=()))
    return replace(plan, sim=replace(plan.sim, buggify_off=tuple(silenced)))


def calmer(plan: Plan) -> Iterator[Plan]:
    """Everything calm at once; else one knob after the other."""
    noise = _noise(plan)
    if len(noise) > 1:
        calm = plan
        for knob in noise:
            calm = _calmed(calm, knob)
        yield calm
    for knob in noise:
        yield _calmed(plan, knob)


def _noise(plan: Plan) -> list[str]:
    """The knobs that are not at rest."""
    found = [f"system.{name}" for name in _restless(plan.system.parameters, _calm_system(plan))]
    found += [
        f"workload.{name}" for name in _restless(plan.workload.parameters, _calm_workload(plan))
    ]
    sim = plan.sim
    if sim is None:
        return found
    if sim.clocks:
        found.append("clocks")
    if sim.callback_cost_ns:
        found.append("cost")
    if sim.schedule is not msgspec.UNSET:
        found += ["schedule", *(f"point.{each}" for each in sim.schedule.points)]
    found += [f"network.{name}" for name in _differing(sim.network, CALM_NETWORK)]
    return found + [f"disk.{name}" for name in _differing(sim.disk, CALM_DISK)]


def _calm_system(plan: Plan) -> Mapping[str, object]:
    return SYSTEMS.find(plan.system.name).calm


def _calm_workload(plan: Plan) -> Mapping[str, object]:
    return WORKLOADS.find(plan.workload.name).calm


def _restless(values: Mapping[str, object], calm: Mapping[str, object]) -> list[str]:
    return [name for name, rest in calm.items() if values.get(name, rest) != rest]


def _differing(struct: msgspec.Struct, calm: msgspec.Struct) -> list[str]:
    return [
        name for name in struct.__struct_fields__ if getattr(struct, name) != getattr(calm, name)
    ]


def _without_point(sim: SimPlan, gone: int) -> SimPlan:
    own = sim.schedule
    if own is msgspec.UNSET:
        return sim
    points = tuple(each for each in own.points if each != gone)
    return replace(sim, schedule=replace(own, points=points))


def _calmed(plan: Plan, knob: str) -> Plan:
    part, _, name = knob.partition(".")
    if part == "system":
        own = {**plan.system.parameters, name: _calm_system(plan)[name]}
        return replace(plan, system=replace(plan.system, parameters=own))
    if part == "workload":
        own = {**plan.workload.parameters, name: _calm_workload(plan)[name]}
        return replace(plan, workload=replace(plan.workload, parameters=own))
    assert plan.sim is not None
    if knob == "clocks":
        return replace(plan, sim=replace(plan.sim, clocks=()))
    if knob == "schedule":
        return replace(plan, sim=replace(plan.sim, schedule=msgspec.UNSET))
    if part == "point":
        return replace(plan, sim=_without_point(plan.sim, int(name)))
    if knob == "cost":
        return replace(plan, sim=replace(plan.sim, callback_cost_ns=0))
    if part == "network":
        network = replace(plan.sim.network, **{name: getattr(CALM_NETWORK, name)})
        return replace(plan, sim=replace(plan.sim, network=network))
    disk = replace(plan.sim.disk, **{name: getattr(CALM_DISK, name)})
    return replace(plan, sim=replace(plan.sim, disk=disk))
