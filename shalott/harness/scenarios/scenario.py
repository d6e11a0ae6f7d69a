"""A scenario: a narrow swarm that must find one known bug or one documented loss window.

It says which bugs are switched on, which faults and settings bring them out, the anomaly that the
search must report, and within how many seeds. It narrows the swarm no more than the trigger needs:
what is not named is drawn as ever. The entries are in the files beside this one, a file a family,
and catalogue.py finds one by its id. Runs are short and small (``SHORT``), because a search pays
for events, and a bug that needs a minute of load is not found sooner by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shalott.core.plan import FaultAction
from shalott.core.rng import Range
from shalott.harness.scenarios.swarm import USUAL, Subject, Swarm


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """``id``: the known bug's (KB-RMQ-02), or the loss window's (L1). ``title``: the window's; that
    of a bug is in the catalogue (broker/known_bugs.py)."""

    id: str
    title: str = ""
    anomaly: str  # the class that the search must report
    seed_budget: int  # seeds within which it must
    bugs: tuple[str, ...] = ()
    system: str = "mirrored"
    profile: str = "safe"
    swarm: Swarm = field(default_factory=Swarm)
    # What closes the window: settings laid over the swarm's. Bugs need none: their switch goes off.
    sound: Mapping[str, object] = field(default_factory=dict)
    # Classes of anomaly that the sound search shows nevertheless, and why.
    remains: Mapping[str, str] = field(default_factory=dict)
    stage: tuple[str, ...] = ()  # bugs that set the stage only: on in the sound search as well

    def subject(self) -> Subject:
        """What to search to find it."""
        return Subject(
            system=self.system,
            profile=self.profile,
            bugs=(*self.bugs, *self.stage),
            swarm=self.swarm,
            name=f"{self.system}-{self.id.lower()}",
        )

    def sound_subject(self) -> Subject:
        """The same search with nothing to find."""
        swarm = self.swarm.but(**self.sound)
        name = f"{self.system}-{self.id.lower()}-sound"
        return replace(self.subject(), bugs=self.stage, swarm=swarm, name=name)


# A few seconds of load on one queue of three nodes that notice quickly who is gone.
SHORT = USUAL.but(
    nodes=(3,),
    net_tick_ms=(1000,),
    startup_delay_ms=(0,),
    recovery_delay_ms=(0,),
    snapshot_entries=(1000,),
    vhosts=("/",),
    limits=({},),
    memory_limit_bytes=(0, 0, 0, 20_000, 60_000),
    rate_hz=Range(20, 40),
    clients_a_node=(1, 2),
    queues=(1,),
    body_bytes=(12, 64),
    batch=(1,),
    transactional=(0.0,),
    popping=(0.0,),
    grows=(False,),
    behind=(0,),
    patient=(False,),
    copied=(False,),
    op_timeout_ms=(2000,),
    time_limit_ms=(12_000,),
    settle_timeout_ms=(20_000,),
    quiet_ms=(1000,),
    fault_share=1,
)

ALL = {"ha-mode": "all"}
WHEN_SYNCED = {
    "ha-sync-mode": "automatic",
    "ha-promote-on-failure": "when-synced",
    "ha-promote-on-shutdown": "when-synced",
}
TWO = {"ha-mode": "exactly", "ha-params": 2}
BY_HAND = {"ha-sync-mode": "manual"}  # no mirror is synchronised by itself

KILLS = {"kill": 1.0}
STOPS = {"stop": 1.0}

# Four nodes, the last three with replicas, so that no link to the first one, which leads, is slow.
SLOW_LINKS = SHORT.but(
    nodes=(4,), policies=({"ha-mode": "nodes", "ha-params": ["n2", "n3", "n4"]},),
    net_tick_ms=(4000,), op_timeout_ms=(10_000,), latency_us=(300,), jitter_us=(0,),
    link_spread_us=(0,), enqueue_fraction=Range(0.5, 0.7, 0.1), power_loss=("drop",),
)  # fmt: skip


def slow(
    fault: int,
    link: tuple[str, str],
    delay_ms: float,
    *,
    at_ms: int = 1500,
    duration_ms: int = 10_000,
) -> FaultAction:
    """One direction of a link; by default when the mirrors are there, for the rest of the run."""
    return FaultAction(
        id=fault, at_ms=at_ms, duration_ms=duration_ms, kind="delay-one-way", target=link[0],
        nodes=(link[0],), links=(link,), amount=delay_ms,
    )  # fmt: skip
