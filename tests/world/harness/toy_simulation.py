"""A toy in the place of the simulation: a pure function of the plan, with a planted bug.

It loses a message if the plan powers a node off while another fault is in force or shortly after
one ended, and nothing else matters. The digest is the plan's own, so the same plan has the same
one. The variants misbehave in one way each; all are at the top of the module, for other processes
find them by name.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

from shalott.broker.rocket.autoswitch.epochs import without_suffix
from shalott.broker.rocket.autoswitch.packets import EpochStart
from shalott.checkers.checker import Anomaly, Result
from shalott.cluster.sim.loop.trace import Trace
from shalott.core.history import EMPTY_EVENTS, HISTORY_SCHEMA, History
from shalott.core.plan import Plan, dump_plan
from shalott.harness.run.simulate import SimOutcome

NEAR_MS = 6000
NO_HISTORY = History(ops=HISTORY_SCHEMA.empty_table(), events=EMPTY_EVENTS)


def loses(plan: Plan) -> bool:
    """The planted bug: a power loss soon after another fault began."""
    return any(
        second.kind == "power"
        and any(
            first.id != second.id and 0 <= second.at_ms - first.at_ms <= NEAR_MS
            for first in plan.faults
        )
        for second in plan.faults
    )


def simulate_toy(
    plan: Plan, *, stop_early: bool = True, label_chunk: int | None = None, order: bool = False
) -> SimOutcome:
    """One run."""
    return _outcome(plan, loses(plan), label_chunk)


def simulate_epochs(
    plan: Plan, *, stop_early: bool = True, label_chunk: int | None = None, order: bool = False
) -> SimOutcome:
    """A function of the broker is asked, so it makes a difference if that is changed. What it says
    matters in each fourth seed; the harness has a bug in seed 2, and seed 3 loses anyhow."""
    kept = without_suffix((EpochStart(1, 0), EpochStart(2, 10)), 10)
    if plan.seed == 2:
        raise KeyError("no such thing")
    loses_it = plan.seed == 3 or (plan.seed % 4 == 0 and len(kept) != 1)
    return _outcome(plan, loses_it, label_chunk)


def _outcome(plan: Plan, bad: bool, label_chunk: int | None) -> SimOutcome:
    anomalies = (Anomaly(kind="lost", summary="1 message was lost"),) if bad else ()
    remark = Anomaly(kind="dual-master-claimed", summary="two said master")
    results = (
        Result(checker="toy-queue", valid=not bad, anomalies=anomalies),
        Result(checker="toy-masters", valid=True, anomalies=(remark,)),
    )
    trace = Trace(label_chunk=label_chunk)
    trace.words += [len(plan.faults), *(action.at_ms for action in plan.faults)]
    trace.labels.append("t=0.000000001s n1#1 starts")
    trace.digest()
    return SimOutcome(
        valid=not bad,
        results=results,
        anomalies=("lost",) if bad else (),
        digest=hashlib.blake2b(dump_plan(plan), digest_size=16).hexdigest(),
        callbacks=1000,
        segments=100,
        virtual_ns=plan.time_limit_ms * 1_000_000,
        wall_s=0.01,
        sometimes={"promoted": len(plan.faults), "client_ok": 7},
        buggified={},
        plan=plan,
        history=NO_HISTORY,
        trace=trace,
    )


def simulate_wobbling(
    plan: Plan, *, stop_early: bool = True, label_chunk: int | None = None, order: bool = False
) -> SimOutcome:
    """No two processes agree."""
    outcome = simulate_toy(plan)
    return replace(outcome, digest=f"{outcome.digest}-{os.getpid()}")


def simulate_unknown(
    plan: Plan, *, stop_early: bool = True, label_chunk: int | None = None, order: bool = False
) -> SimOutcome:
    """Nothing is ever proved."""
    doubt = Result(checker="toy-stats", valid="unknown", notes=("Too few operations.",))
    return replace(simulate_toy(plan), valid="unknown", results=(doubt,), anomalies=())


def simulate_mortal(
    plan: Plan, *, stop_early: bool = True, label_chunk: int | None = None, order: bool = False
) -> SimOutcome:
    """The process dies in seed 3; in seed 5 the harness has a bug."""
    if plan.seed == 3:
        os._exit(9)
    if plan.seed == 5:
        raise KeyError("no such thing")
    return simulate_toy(plan)
