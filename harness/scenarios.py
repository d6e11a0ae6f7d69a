"""Scenarios: narrow swarms, each of which must find one known bug or one documented loss window.

An entry says which bugs are switched on, which faults and settings bring them out, the anomaly that
the search must report, and within how many seeds. It narrows the swarm no more than the trigger
needs: what is not named is drawn as ever. ``shalott search --bug ID`` and ``--scenario ID`` run
one; tests/planted/ runs them all, and each must find nothing of its anomaly with ``sound`` in
place of it (the switch off, or the setting that closes the window).

The loss windows are RabbitMQ's documented ones (docs/loss-windows.md).
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError
from harness.swarm import Range, Subject, Swarm


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """``id``: the known bug's (KB-RMQ-02), or the loss window's (L1)."""

    id: str
    title: str
    anomaly: str  # the class that the search must report
    seed_budget: int  # seeds within which it must
    bugs: tuple[str, ...] = ()
    system: str = "mirrored"
    profile: str = "safe"
    swarm: Swarm = field(default_factory=Swarm)
    # What closes the window: settings laid over the swarm's. Bugs need none: their switch goes off.
    sound: Mapping[str, Any] = field(default_factory=dict)

    def subject(self) -> Subject:
        """What to search to find it."""
        return Subject(
            system=self.system,
            profile=self.profile,
            bugs=self.bugs,
            swarm=self.swarm,
            name=f"{self.system}-{self.id.lower()}",
        )

    def sound_subject(self) -> Subject:
        """The same search with nothing to find."""
        swarm = dataclasses.replace(self.swarm, **self.sound)
        return dataclasses.replace(
            self.subject(), bugs=(), swarm=swarm, name=f"{self.system}-{self.id.lower()}-sound"
        )


_KILLS = {"kill": 1.0}
_PARTITIONS = {"partition": 1.0}
_MANUAL = {"ha-mode": "all"}
_WHEN_SYNCED = {
    "ha-mode": "all",
    "ha-sync-mode": "automatic",
    "ha-promote-on-failure": "when-synced",
}

LOSS_WINDOWS: tuple[Scenario, ...] = (
    Scenario(
        id="L1",
        title="An unsynchronised mirror is promoted when its master fails",
        anomaly="lost",
        seed_budget=100,
        profile="upstream",
        swarm=Swarm(
            policies=(_MANUAL,), faults=_KILLS, fault_share=1, targets=("master", "one"),
            interval_ms=Range(3000, 6000, 500),
        ),
        sound={"policies": (_WHEN_SYNCED,)},
    ),
    Scenario(
        id="L2",
        title="A mirror joins empty, nothing synchronises it, and its master dies",
        anomaly="lost",
        seed_budget=100,
        profile="upstream",
        swarm=Swarm(
            policies=(_MANUAL,), faults=_KILLS, fault_share=1, targets=("master", "one"),
            interval_ms=Range(3000, 6000, 500), enqueue_fraction=Range(0.8, 1.0, 0.1),
        ),
        sound={"policies": (_WHEN_SYNCED,)},
    ),
    Scenario(
        id="L3",
        title="After a partition the losing side's confirmed messages are discarded",
        anomaly="lost",
        seed_budget=100,
        profile="upstream",
        swarm=Swarm(
            partition_modes=("ignore", "autoheal"), faults=_PARTITIONS, fault_share=1,
            net_tick_ms=(1000,), shortest_ms=Range(3000, 5000, 500),
            longest_ms=Range(5000, 15_000, 500),
        ),
        # What waits when the minority pauses may be confirmed: cuts that are over before a net
        # tick are the same faults without that moment.
        sound={
            "partition_modes": ("pause_minority",),
            "shortest_ms": Range(200, 400, 100),
            "longest_ms": Range(400, 700, 100),
        },
    ),
    Scenario(
        id="L4",
        title="A restarted mirror begins empty: restarts without synchronisation wear copies out",
        anomaly="lost",
        seed_budget=100,
        profile="upstream",
        swarm=Swarm(
            policies=(_MANUAL,), faults={"stop": 1.0, "kill": 1.0}, fault_share=1,
            targets=("one",), interval_ms=Range(3000, 5000, 500),
            longest_ms=Range(500, 2000, 500), enqueue_fraction=Range(0.8, 1.0, 0.1),
        ),
        sound={"policies": (_WHEN_SYNCED,)},
    ),
    Scenario(
        id="L8",
        title="An orderly stop of the master promotes a mirror that is not synchronised",
        anomaly="lost",
        seed_budget=200,
        profile="upstream",
        swarm=Swarm(
            policies=({**_MANUAL, "ha-promote-on-shutdown": "always"},), faults={"stop": 1.0},
            fault_share=1, targets=("master", "one"), interval_ms=Range(3000, 5000, 500),
            longest_ms=Range(500, 2000, 500), enqueue_fraction=Range(0.8, 1.0, 0.1),
        ),
        sound={"policies": ({**_WHEN_SYNCED, "ha-promote-on-shutdown": "when-synced"},)},
    ),
)  # fmt: skip

# One entry for each known bug: the ids are those of broker/known_bugs.py.
KNOWN_BUGS: tuple[Scenario, ...] = (
    Scenario(
        id="KB-RMQ-22",
        title="An unsynchronised mirror is promoted when its master crashes",
        anomaly="lost",
        seed_budget=200,
        bugs=("KB-RMQ-22",),
        swarm=Swarm(
            faults=_KILLS, fault_share=1, targets=("master", "one"),
            interval_ms=Range(3000, 6000, 500),
        ),
    ),
)  # fmt: skip

SCENARIOS: Mapping[str, Scenario] = {
    scenario.id: scenario for scenario in (*KNOWN_BUGS, *LOSS_WINDOWS)
}


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
    """The scenario that looks for a known bug; None if nobody has written one."""
    return next((entry for entry in KNOWN_BUGS if bug_id in entry.bugs), None)
