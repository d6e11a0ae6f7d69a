"""Stalls: when the harness itself did not run, and whether the run still means anything.

A harness that stands still is a fault that no plan asked for. Its stalls are rows of the history
(harness/run/watchdog.py); what they overlap is not charged to the system: availability takes their
time off (checkers/runs/availability.py), what nodes said across them is no observation
(checkers/history/faults.py). What is left is a run that saw less than it should have. It is valid
with a remark, or "unknown" where a stall spoilt it:

- stalls cover more than a quarter of the load: clients were hardly there;
- a fault lasted twice as long as the plan says, or less than half as long, because of one;
- on ``local`` the relays, which are the network, did not run for a second, or ended;
- the machine slept: the harness's clock and the nodes' wall clocks went apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shalott.checkers.checker import Result
from shalott.checkers.history.faults import (
    Fault,
    Phase,
    Stall,
    Surroundings,
    read_surroundings,
    stalled_ns,
)
from shalott.core.history import History

MS = 1_000_000
S = 1_000_000_000
SHARE_MAX = 0.25  # of the load
RELAYS_NS_MAX = S  # a network that stands still for longer is a partition
REMARK_NS = S  # less in all is told, but makes no headline


@dataclass(frozen=True, slots=True)
class Stalls:
    """``durations_ms``: how long each fault of the plan lasts, by its id."""

    durations_ms: Mapping[int, int]
    name: str = "stalls"

    def check(self, history: History) -> Result:
        around = read_surroundings(history)
        stalls, load = around.stalls, around.phase("load")
        own = [stall for stall in stalls if not stall.of_relays]
        total_ns = sum(stall.lasted_ns for stall in own)
        reasons = tuple(self._spoilt(around, load)) if stalls else ()
        seconds = f"{total_ns / S:.1f} s"
        kinds = ", ".join(sorted({stall.kind for stall in stalls}))
        told = f"Stalls: the harness stood still for {seconds} in all ({kinds})."
        remark = f"the harness stood still for {seconds} of the run, which is charged to none"
        return Result(
            checker=self.name,
            valid="unknown" if reasons else True,
            counts={
                "stall-count": len(stalls),
                "stalled-ms": total_ns / MS,
                "stalled-ms-max": max((stall.lasted_ns for stall in own), default=0) / MS,
            },
            notes=reasons,
            detail={
                "stalls": [_shown(stall) for stall in stalls],
                "summary": told if stalls else "",
                "remark": remark if total_ns >= REMARK_NS else "",
            },
        )

    def _spoilt(self, around: Surroundings, load: Phase | None) -> Iterator[str]:
        own = [stall for stall in around.stalls if not stall.of_relays]
        if load is not None:
            end_ns = around.end_ns if load.end_ns is None else load.end_ns
            lost_ns, whole_ns = stalled_ns(own, load.begin_ns, end_ns), end_ns - load.begin_ns
            if lost_ns > SHARE_MAX * whole_ns:
                yield (
                    f"The harness stood still for {lost_ns / S:.1f} s of the load's"
                    f" {whole_ns / S:.1f} s: what was seen proves nothing."
                )
        for fault in around.injected:
            if sentence := self._changed(fault, own):
                yield sentence
        for stall in around.stalls:
            yield from _of_the_world(stall)

    def _changed(self, fault: Fault, own: list[Stall]) -> str:
        """What a stall has made of a fault; "" if it is about the plan's."""
        planned_ns = self.durations_ms.get(fault.id, 0) * MS
        lasted_ns = fault.end_ns - fault.effective_ns
        late_ns = min(lasted_ns - planned_ns, stalled_ns(own, fault.invoke_ns, fault.end_ns))
        missing_ns = planned_ns - lasted_ns
        # One that came late because of a stall ends nevertheless when the load does.
        before_ns = stalled_ns(own, fault.invoke_ns - planned_ns, fault.end_ns)
        cut_short = 2 * missing_ns > planned_ns and 2 * before_ns > missing_ns
        if not planned_ns or not (late_ns > planned_ns or cut_short):
            return ""
        return (
            f"Fault {fault.name} lasted {lasted_ns / S:.1f} s, not {planned_ns / S:.1f} s, because"
            " the harness stood still."
        )


def _of_the_world(stall: Stall) -> Iterator[str]:
    at = f"at {stall.begin_ns / S:.1f} s"
    if stall.kind == "relays-ended":
        yield f"The relays between the nodes ended {at}: from then on no node heard another."
    elif stall.of_relays and stall.lasted_ns > RELAYS_NS_MAX:
        yield (
            f"The relays between the nodes did not run for {stall.lasted_ns / S:.1f} s {at}: that"
            " was a partition which no plan asked for."
        )
    elif stall.asleep_ns:
        yield (
            f"The machine slept for {stall.asleep_ns / S:.1f} s {at}: since then the nodes' clocks"
            " and the harness's differ."
        )


def _shown(stall: Stall) -> dict[str, str | int | float]:
    shown: dict[str, str | int | float] = {
        "operation": stall.index,
        "kind": stall.kind,
        "begin_ns": stall.begin_ns,
        "end_ns": stall.end_ns,
        "ms": stall.lasted_ns / MS,
    }
    return shown
