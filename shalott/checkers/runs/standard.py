"""The checkers that judge a run of any workload, as records, and what they are made of.

The three gated ones judge only where a plan asks for them.
"""

from __future__ import annotations

from typing import Final

from shalott.checkers.checker import Checker, CheckerRecord
from shalott.checkers.mastership.mastership import Mastership
from shalott.checkers.queues.guarantees import CAREFUL, ClientGuarantees
from shalott.checkers.queues.total_queue import TotalQueue
from shalott.checkers.runs.availability import Availability
from shalott.checkers.runs.convergence import Convergence
from shalott.checkers.runs.deaths import Crashes, Deaths
from shalott.checkers.runs.fault_effects import Noticed
from shalott.checkers.runs.liveness import Liveness
from shalott.checkers.runs.oracles import OF_ORACLES
from shalott.checkers.runs.programs import Programs
from shalott.checkers.runs.stalls import Stalls
from shalott.checkers.runs.stats import Rates, Stats
from shalott.core.plan import GatePlan

NO_GATES: Final = GatePlan()
_MIRRORING: Final = "RabbitMQ's manual, Classic Queue Mirroring"

# What the distribution's own entry point of shalott.checkers names.
RUN_WIDE: Final = (
    CheckerRecord(
        name="mastership",
        summary="whether two nodes ruled one queue at once",
        make=lambda plan: Mastership(
            strict=plan.gates.one_master, poll_round_ms=plan.observe_interval_ms
        ),
        reads=("operations", "events", "observations"),
        promise="A queue has one master, and only it acknowledges writes.",
        source=f"{_MIRRORING}; Ongaro & Ousterhout 2014, Election Safety",
    ),
    CheckerRecord(
        name="availability",
        summary="how long no client got an acknowledgement",
        make=lambda plan: Availability(max_rto_ms=plan.gates.max_rto_ms),
        reads=("operations", "faults", "phases"),
        promise="After a fault writes are acknowledged again in the time that the plan allows.",
        source="the plan's gate max_rto_ms",
    ),
    CheckerRecord(
        name="stats",
        summary="what was asked and answered, and whether the run means anything",
        make=lambda plan: Stats(min_acked=plan.gates.min_acked),
        reads=("operations", "faults", "phases"),
        promise="A run in which too little was acknowledged or proved is unknown.",
        source="jepsen.checker/stats; the plan's gate min_acked",
    ),
    CheckerRecord(
        name="rates",
        summary="how many operations a second were begun of those that were asked for",
        make=lambda plan: Rates(
            plan.workload.rate_hz, plan.time_limit_ms, plan.gates.min_rate_share
        ),
        reads=("operations", "phases"),
        promise="A run that reaches less than the plan's share of its rate is unknown.",
        source="the plan's gate min_rate_share",
    ),
    CheckerRecord(
        name="noticed",
        summary="whether the faults were noticed, and what became of those that were not made",
        make=lambda plan: Noticed(),
        reads=("operations", "events", "faults", "observations"),
        promise="A run in which no fault was noticed is unknown.",
        source="etcd's robustness tests, which assert that a failpoint was hit",
    ),
    CheckerRecord(
        name="client-programs",
        summary="how often a client that is a program died, stalled or talked nonsense",
        make=lambda plan: Programs(),
        reads=("operations",),
        promise="What a client does is no verdict on the system.",
        source="shalott/clients/programs/process.py",
        fits=lambda plan: bool(plan.workload.client),
    ),
    CheckerRecord(
        name="stalls",
        summary="when the harness itself did not run, and whether that spoilt the run",
        make=lambda plan: Stalls({fault.id: fault.duration_ms for fault in plan.faults}),
        reads=("faults", "phases"),
        promise="A run that a stall of the harness has spoilt is unknown.",
        source="shalott/harness/run/watchdog.py",
    ),
    CheckerRecord(
        name="liveness",
        summary="whether the healed cluster came to rest and could be emptied",
        make=lambda plan: Liveness(plan.gates.must_settle),
        reads=("operations", "events", "faults", "phases"),
        promise="Once all is healed, the cluster settles and its queues can be emptied.",
        source="the plan's gate must_settle",
    ),
    CheckerRecord(
        name="crashes",
        summary="whether a process of the broker ended by an exception of its own",
        make=lambda plan: Crashes(plan.gates.crash_text, plan.gates.must_not_crash),
        reads=("events", "faults"),
        promise="No process crashes but by an error of its disk.",
        source="the plan's gate must_not_crash",
    ),
    CheckerRecord(
        name="deaths",
        summary="whether a node ended that nothing had ended",
        make=lambda plan: Deaths(plan.gates.must_stay_up, plan.gates.orderly_exits),
        reads=("operations", "events", "faults"),
        promise="A node runs until an operator ends it, or a fault does.",
        source="what the system's record promises (stays_up); the plan's gate must_stay_up",
    ),
    CheckerRecord(
        name="convergence",
        summary="whether synchronised replicas hold what their master holds",
        make=lambda plan: Convergence(),
        reads=("replicas", "phases"),
        promise="A mirror that is called synchronised holds what its master holds.",
        source=f"{_MIRRORING}; the plan's gate must_converge",
        fits=lambda plan: plan.gates.must_converge,
    ),
    *OF_ORACLES,
)


def standard_checkers(
    gates: GatePlan = NO_GATES, *, poll_round_ms: int = 500, guarantees: ClientGuarantees = CAREFUL
) -> tuple[Checker, ...]:
    """What every run of the queue workload is judged by; some only where the plan asks for it."""
    return (
        TotalQueue(delivery=gates.delivery, guarantees=guarantees),
        *common_checkers(gates, poll_round_ms=poll_round_ms),
    )


def common_checkers(gates: GatePlan = NO_GATES, *, poll_round_ms: int = 500) -> tuple[Checker, ...]:
    """What a run of any workload is judged by besides its own checkers."""
    return (
        Mastership(strict=gates.one_master, poll_round_ms=poll_round_ms),
        Availability(max_rto_ms=gates.max_rto_ms),
        Stats(min_acked=gates.min_acked),
        Liveness(gates.must_settle),
        Crashes(gates.crash_text, gates.must_not_crash),
        Deaths(gates.must_stay_up, gates.orderly_exits),
        *((Convergence(),) if gates.must_converge else ()),
    )
