"""Scenarios: every known bug's and every loss window's, by id.

``shalott search --bug ID`` and ``--scenario ID`` run one (harness/scenarios/scenario.py says
what it is); tests/planted/ runs them all, and each must find nothing of its anomaly with ``sound``
in place of it (the switch off, or the setting that closes the window).

``LOSS_WINDOWS``: RabbitMQ's documented ones (docs/evidence/loss-windows.md), and what closes each.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from shalott.core.errors import UsageError
from shalott.core.plan import GatePlan
from shalott.core.rng import Range
from shalott.harness.scenarios.controller import CONTROLLER_BUGS, CONTROLLER_WINDOWS
from shalott.harness.scenarios.dledger import DLEDGER_BUGS, DLEDGER_WINDOWS
from shalott.harness.scenarios.master_slave import MASTER_SLAVE_BUGS, MASTER_SLAVE_WINDOWS
from shalott.harness.scenarios.mirrored import MIRRORED_BUGS
from shalott.harness.scenarios.scenario import (
    ALL,
    BY_HAND,
    KILLS,
    SHORT,
    STOPS,
    WHEN_SYNCED,
    Scenario,
)
from shalott.harness.scenarios.swarm import STRICT

_SAFE = {**ALL, **WHEN_SYNCED}
_ONCE = GatePlan(
    delivery="exactly-once", min_acked=20, must_settle=True, must_not_crash=True, must_converge=True
)
_WORN = SHORT.but(policies=(ALL,), promise="anything", faults=KILLS, targets=("master", "one"),
    interval_ms=Range(2000, 3000, 500), shortest_ms=Range(300, 500, 100),
    longest_ms=Range(500, 1000, 100),
)  # fmt: skip

LOSS_WINDOWS: tuple[Scenario, ...] = (
    Scenario(
        id="L1",
        title="An unsynchronised mirror is promoted when its master fails",
        anomaly="lost",
        seed_budget=50,
        profile="upstream",
        swarm=_WORN,
        sound={"policies": (_SAFE,), "promise": "one-at-a-time"},
    ),
    Scenario(
        id="L2",
        title="A mirror joins empty, nothing synchronises it, and its master dies",
        anomaly="lost",
        seed_budget=50,
        profile="upstream",
        swarm=_WORN.but(enqueue_fraction=Range(0.8, 1.0, 0.1)),
        sound={"policies": (_SAFE,), "promise": "one-at-a-time"},
    ),
    Scenario(
        id="L3",
        title="After a partition the losing side's confirmed messages are discarded",
        anomaly="lost",
        seed_budget=50,
        profile="upstream",
        swarm=SHORT.but(partition_modes=("ignore", "autoheal"), faults={"partition": 1.0},
            shortest_ms=Range(3000, 4000, 500), longest_ms=Range(4000, 6000, 500),
        ),
        sound={"partition_modes": ("pause_minority",), "policies": (_SAFE,)},
    ),
    Scenario(
        id="L4",
        title="A restarted mirror begins empty: restarts without synchronisation wear copies out",
        anomaly="lost",
        seed_budget=50,
        profile="upstream",
        swarm=_WORN.but(faults={"stop": 1.0, "kill": 1.0}, targets=("mirrors", "one", "master"),
            enqueue_fraction=Range(0.8, 1.0, 0.1),
        ),
        sound={"policies": (_SAFE,), "promise": "one-at-a-time", "targets": ("one", "master")},
    ),
    Scenario(
        id="L5",
        title="What a consumer without acknowledgements was sent is gone when it does not arrive",
        anomaly="lost",
        seed_budget=50,
        profile="safe",
        # A slow network has more deliveries under way.
        swarm=SHORT.but(ack_mode=("auto",), faults=KILLS, interval_ms=Range(2000, 3000, 500),
            shortest_ms=Range(300, 500, 100), longest_ms=Range(500, 1000, 100),
            rate_hz=Range(40, 60), clients_a_node=(4,), latency_us=(20_000,),
            enqueue_fraction=Range(0.5, 0.6, 0.1),
        ),
        sound={"ack_mode": ("manual",)},
    ),
    Scenario(
        id="L6",
        title="Transient messages, and transient queues, do not outlive a restart of every node",
        anomaly="lost",
        seed_budget=50,
        profile="safe",
        swarm=SHORT.but(durable=(False, True), persistent=(False,), promise="anything",
            faults={"restart-all": 1.0, "kill-all": 1.0}, fault_count=1, time_limit_ms=(8000,),
            shortest_ms=Range(500, 1000, 500), longest_ms=Range(1000, 1500, 500),
            enqueue_fraction=Range(0.7, 0.9, 0.1),
        ),
        sound={"durable": (True,), "persistent": (True,)},
    ),
    Scenario(
        id="L7",
        title="Who publishes without confirms is not told what was lost",
        anomaly="lost",
        seed_budget=50,
        profile="safe",
        # No mirror is synchronised, so a queue is down whenever its master is.
        swarm=SHORT.but(confirms=(False,), policies=(BY_HAND,), promise="anything", faults=KILLS,
            targets=("master", "one"), interval_ms=Range(2000, 3000, 500),
            shortest_ms=Range(300, 500, 100), longest_ms=Range(500, 1000, 100),
            enqueue_fraction=Range(0.8, 1.0, 0.1),
        ),
        sound={"confirms": (True,)},
    ),
    Scenario(
        id="L8",
        title="An orderly stop of the master promotes a mirror that is not synchronised",
        anomaly="lost",
        seed_budget=50,
        profile="upstream",
        swarm=_WORN.but(policies=({**ALL, "ha-promote-on-shutdown": "always"},), faults=STOPS,
            enqueue_fraction=Range(0.8, 1.0, 0.1),
        ),
        sound={"policies": (_SAFE,), "promise": "one-at-a-time"},
    ),
    Scenario(
        id="L9",
        title="What was acknowledged is delivered again when the mirrors had not heard of it",
        anomaly="redelivered",
        seed_budget=50,
        profile="safe",
        swarm=SHORT.but(gates=_ONCE, faults=KILLS, targets=("master",),
            interval_ms=Range(2000, 3000, 500), shortest_ms=Range(300, 500, 100),
            longest_ms=Range(500, 1000, 100), clients_a_node=(3,), latency_us=(5000,),
            enqueue_fraction=Range(0.5, 0.6, 0.1),
        ),
        # Consumers to whom a message that they have had is nothing new.
        sound={"gates": STRICT},
    ),
)  # fmt: skip


# One entry for each known bug: the ids are those of broker/known_bugs.py.
KNOWN_BUGS: tuple[Scenario, ...] = (
    *MIRRORED_BUGS,
    *CONTROLLER_BUGS,
    *DLEDGER_BUGS,
    *MASTER_SLAVE_BUGS,
)
WINDOWS: tuple[Scenario, ...] = (
    *LOSS_WINDOWS,
    *CONTROLLER_WINDOWS,
    *DLEDGER_WINDOWS,
    *MASTER_SLAVE_WINDOWS,
)

SCENARIOS: Mapping[str, Scenario] = {scenario.id: scenario for scenario in (*KNOWN_BUGS, *WINDOWS)}


def scenario_of(scenario_id: str) -> Scenario:
    """Raises UsageError, naming near ids or all."""
    if scenario_id in SCENARIOS:
        return SCENARIOS[scenario_id]
    near = difflib.get_close_matches(scenario_id.upper(), SCENARIOS, n=3, cutoff=0.7)
    advice = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"there are {', '.join(sorted(SCENARIOS))}"
    )
    raise UsageError(f"there is no scenario {scenario_id}: {advice}")


def scenario_of_bug(bug_id: str) -> Scenario | None:
    """The scenario that looks for a known bug; None if there is none."""
    return next((entry for entry in KNOWN_BUGS if bug_id in entry.bugs), None)
