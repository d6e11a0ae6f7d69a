"""What stands still that should not: the harness itself, or what it runs besides the nodes.

A harness that does not run for a while (SIGSTOP, a suspended machine, no CPU, a long garbage
collection) gives no answers, and what it measures meanwhile is its own absence. Such times become
rows of the history (harness/run/watchdog.py), so that they are not charged to the system
(checkers/runs/stalls.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from shalott.cluster.precedence import STALL_S as STALL_S
from shalott.cluster.precedence import TICK_S as TICK_S

# - stopped: the process did not run, and did not want to (SIGSTOP, a debugger)
# - starved: it wanted to run, and had no CPU: others had it
# - steal: the same, and the machine's own CPU was taken by its host
# - busy: it ran, and its event loop did something else (a long computation, garbage collection)
# - blocked: its event loop waited for the kernel (a slow disk)
# - suspended: the whole machine slept; its monotonic clock did not count that
# - relays: the process that carries the nodes' traffic did not run
# - relays-ended: it ended, and the nodes don't hear each other any more
StallKind = Literal[
    "stopped", "starved", "steal", "busy", "blocked", "suspended", "relays", "relays-ended"
]


@dataclass(frozen=True, slots=True)
class Stall:
    """Times are seconds on this machine's monotonic clock (CLOCK_MONOTONIC), the event loop's.

    ``asleep_s``: how long the machine slept, of the kind suspended, whose end is its beginning.
    """

    kind: StallKind
    begin_s: float
    end_s: float
    asleep_s: float = 0.0


@runtime_checkable
class CarriesTraffic(Protocol):
    """A Cluster whose nodes talk through a process of the harness's, which may stall as well."""

    def tell_stalls(self, tell: Callable[[Stall], None]) -> None:
        """Call this of every stall of that process from now on, on the event loop."""
        ...
