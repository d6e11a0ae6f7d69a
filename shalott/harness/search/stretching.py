"""Stretching: a simulated plan at the pace of real nodes.

A minimal plan of the simulation is a second long and has faults of a tenth of one. Real nodes need
longer: a container takes its time to be killed or cut off, a broker notices that a peer is silent
only after its own timeouts, and clients must have been answered before and after. What came in
order still does: every stretch of time between the beginnings and ends of faults becomes at least
as long as it takes for something to come of it, and none becomes shorter. A fault that waits for an
event waits for it as before; one that waited for a moment that only a simulation can catch (a
disk's call, a message) comes at the time at which that had happened.

Where several runs are made, each but the first has stretches of lengths of its own, for what a plan
finds may hang on milliseconds that can't be carried over.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.plan import FaultAction, Plan
from shalott.core.rng import Stream
from shalott.nemesis.record import FAULTS
from shalott.nemesis.targets import THERE
from shalott.nemesis.weaker import without_trigger

BEFORE_MS = 5000  # clients are served before the first fault
AFTER_MS = 8000  # and after the last one
SEEN_MS = 1500  # for what is done to a node to be done, and to come of it
NOTICED = 1.5  # times what the system needs to notice a silent node
JITTER = (0.7, 1.6)
RATE_HZ = 20.0
OP_TIMEOUT_MS = 2000
SETTLE_MS = 60_000
SIMULATED = ("disk", "message")  # triggers
replace = msgspec.structs.replace


def timed(plan: Plan) -> Plan:
    """The plan without triggers that only a simulation has: at the times at which they fired."""
    return replace(plan, faults=tuple(_timed(action) for action in plan.faults))


def stretched(plan: Plan, trial: int = 0) -> Plan:
    """The plan for the n-th of several runs on real nodes; itself if it was real before."""
    if plan.sim is None:
        return plan
    faults = timed(plan).faults
    at = _places(plan, faults, Stream(plan.seed, "stretch", trial), jitter=trial > 0)
    moved = tuple(
        replace(
            action,
            at_ms=at[action.at_ms],
            duration_ms=at[action.at_ms + action.duration_ms] - at[action.at_ms],
        )
        for action in faults
    )
    load, end_ms = plan.workload, max(at.values(), default=BEFORE_MS) + AFTER_MS
    return replace(
        plan,
        cluster=replace(plan.cluster, power_loss=plan.sim.disk.power_loss),
        sim=None,
        faults=moved,
        time_limit_ms=max(plan.time_limit_ms, end_ms),
        settle_timeout_ms=max(plan.settle_timeout_ms, SETTLE_MS),
        workload=replace(
            load,
            rate_hz=max(load.rate_hz, RATE_HZ),
            op_timeout_ms=max(load.op_timeout_ms, OP_TIMEOUT_MS),
        ),
    )


def _timed(action: FaultAction) -> FaultAction:
    while _simulated(action):
        fewer = (each for each in without_trigger(action) if _simulated(each) < _simulated(action))
        action = next(fewer)
    if action.target == THERE and action.when is msgspec.UNSET:
        action = replace(action, target="+".join(action.nodes or ("one",)))
    return action


def _simulated(action: FaultAction) -> int:
    return sum(each.kind in SIMULATED for each in action.triggers)


def _places(
    plan: Plan, faults: tuple[FaultAction, ...], rng: Stream, *, jitter: bool
) -> Mapping[int, int]:
    """Of each time at which something begins or ends, when that is on real nodes."""
    ends = {action.at_ms + action.duration_ms for action in faults}
    moments = sorted({action.at_ms for action in faults} | ends)
    notices_ms = NOTICED * SYSTEMS.find(plan.system.name).notices_after_ms(plan)
    at: dict[int, int] = {}
    now_ms = was_ms = 0
    for moment in moments:
        least_ms = float(SEEN_MS) if at else float(BEFORE_MS)
        for action in faults:
            if action.at_ms + action.duration_ms == moment and action.at_ms in at:
                silent = not FAULTS.find(action.kind).is_calm
                needed_ms = max(SEEN_MS, notices_ms) if silent else SEEN_MS
                least_ms = max(least_ms, at[action.at_ms] + needed_ms - now_ms)
        if jitter:
            least_ms *= rng.between(*JITTER)
        now_ms += max(moment - was_ms, round(least_ms))
        was_ms, at[moment] = moment, now_ms
    return at
