"""FaultContext: what a fault may use while it is injected, proved and healed.

A record's functions (record.py) get it with the action. It is all that they may touch:

- ``cluster`` and ``system``: to act on nodes and links, and to ask what runs there;
- ``processes``, ``cuts``, ``client_cuts`` and ``settings``: the same with overlapping faults taken
  into account. A fault that stops a node, cuts a link or sets a link, a clock or a disk goes
  through these, or the end of one fault would undo another one;
- ``rng``: random streams of the action's own, so that a replay draws the same;
- ``wait_ms``: waiting that ends early when the run is over; ``now_ns``: the history's clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from shalott.cluster.cluster import Cluster
from shalott.cluster.system import System
from shalott.core.errors import HarnessError, MissingCapability
from shalott.core.plan import FaultAction
from shalott.core.rng import Stream
from shalott.nemesis.cuts import ClientCuts, CountedCuts
from shalott.nemesis.process_states import ProcessStates
from shalott.nemesis.settings import OverlappingSettings

log = logging.getLogger("shalott.nemesis")

WaitMs = Callable[[float], Awaitable[bool]]
FAILURES = (HarnessError, MissingCapability, OSError)  # what the backend can't do


@dataclass(slots=True, kw_only=True)
class FaultContext:
    """Of one fault of one run; the three mechanisms are shared by all faults of the run.

    ``errors``: what the backend did not do; with any, the fault counts as unproved. ``refused``:
    what the system did not do for an operator, and why; that is no error of the fault, and checkers
    judge it. ``left``: what ``inject`` leaves for ``heal``, by names that they agree on.
    ``took_hold_ns``: when it took hold, if ``inject`` went on after that. ``told``: what the
    fault's row says besides, by name. ``queues``: the workload's.
    """

    fault: int  # the action's id
    cluster: Cluster
    system: System
    processes: ProcessStates
    cuts: CountedCuts
    client_cuts: ClientCuts
    settings: OverlappingSettings
    now_ns: Callable[[], int]
    wait_ms: WaitMs  # whether that time passed; false if the run was over first
    refused: str = ""
    errors: list[str] = field(default_factory=list)
    left: dict[str, Any] = field(default_factory=dict)
    told: dict[str, object] = field(default_factory=dict)
    queues: tuple[str, ...] = ()
    took_hold_ns: int | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node of the cluster."""
        return self.cluster.nodes

    def rng(self, action: FaultAction, name: str) -> Stream:
        """The action's random stream of that name, from its beginning."""
        return Stream(action.seed, name)

    async def at_once(self, steps: Iterable[Coroutine[object, object, None]]) -> None:
        """Do all steps at once; what fails is noted in ``errors``, and the others go on."""
        for outcome in await asyncio.gather(*steps, return_exceptions=True):
            if isinstance(outcome, BaseException):
                self.note(outcome)

    def note(self, error: BaseException) -> None:
        """Keep what the backend could not do. Every other error is raised again."""
        if not isinstance(error, FAILURES):
            raise error
        self.errors.append(str(error))
        log.error("fault %d: %s", self.fault, error)
