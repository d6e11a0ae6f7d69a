"""Noticed: which faults did anything that could be seen, and what became of the others.

A fault that a probe has proved is in force need not matter: a partition that is over before the
nodes' net tick is up, or a pause between two heartbeats, changes nothing, and a run of such faults
is a run without faults. So the history is asked, fault by fault, whether it was noticed while
it lasted or shortly after: ``noticed_by`` names who.

- events: a node wrote down what it does not write down in quiet times (a change of role or of who
  is a mirror, a partition, a restart, a crash);
- observations: a node that was polled did not answer, or said something else of masters, of its
  peers or of partitions than before;
- clients: an operation whose outcome is unknown, an error that there is not in quiet times, or an
  operation that took longer than any in quiet times, by far.

All err on the side of "noticed": what this checker says was not noticed was not. A run is
"unknown" if its faults include some that must be noticed (they end or suspend processes, or cut
links, or clients off) and not one of all its faults was. Faults that were refused or skipped, or
that take nothing away (slow links and disks, clocks), are counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np

from shalott.checkers.checker import Result
from shalott.checkers.history.columns import NEVER, Bools, Ints, Operations, asked_operations
from shalott.checkers.history.faults import Fault, Observation, Surroundings, read_surroundings
from shalott.checkers.history.tenures import NodeEvent, read_events
from shalott.core.history import History
from shalott.core.plan import Effect

MS = 1_000_000
AFTER_NS = 3_000 * MS  # what shows so soon after the end still belongs to the fault
# What nodes write down in quiet times as well.
ROUTINE = ("acked", "replica", "events_dropped", "loss_window")
MUST_SHOW: tuple[Effect, ...] = ("ends-processes", "suspends", "cuts-links", "cuts-clients")
# A latency is a sign if it is above the quiet times' longest, and that much above the usual.
LONGER_FACTOR, LONGER_BY_NS = 3.0, 100 * MS
QUIET_LEAST = 20  # operations; of fewer it is unknown what is usual, and the median of all must do


@dataclass(frozen=True, slots=True)
class Noticed:
    name: str = "noticed"

    def check(self, history: History) -> Result:
        around = read_surroundings(history)
        witnesses = _Witnesses.of(history, around)
        rows = [_judged(fault, witnesses) for fault in around.faults]
        count = Counter(row["outcome"] for row in rows)
        made = [row for row in rows if row["outcome"] == "effective"]
        noticed = [row for row in made if row["noticed_by"]]
        must = [row for row in made if not row["is_mild"]]
        unseen = [row for row in must if not row["noticed_by"]]
        doubt = bool(must) and not noticed
        told = ", ".join(str(row["name"]) for row in unseen)
        doubts = [f"No fault was noticed ({told}): nothing was tested."] if doubt else []
        if rows and not made and count["refused"]:
            doubts.append("Every fault of the plan was refused or skipped: nothing was broken.")
        return Result(
            checker=self.name,
            valid="unknown" if doubts else True,
            counts={
                "effective-fault-count": len(made),
                "mild-fault-count": len(made) - len(must),
                "noticed-fault-count": len(noticed),
                "unnoticed-fault-count": len(unseen),
                "refused-fault-count": count["refused"],
                "skipped-fault-count": count["skipped"],
                "unproved-fault-count": count["unproved"],
            },
            notes=(*doubts, *(f"Fault {row['name']} was refused: {row['why']}."
                              for row in rows if row["outcome"] == "refused")),
            detail={"faults": rows, "summary": _summary(rows, made, noticed, unseen)},
        )  # fmt: skip


def _summary(
    rows: Sequence[JudgedFault],
    made: Sequence[JudgedFault],
    noticed: Sequence[JudgedFault],
    unseen: Sequence[JudgedFault],
) -> str:
    """Faults: 6 took effect, 5 were noticed (not: 3 pause n1); 2 skipped (why, why); 1 refused."""
    if not rows:
        return ""
    parts = [f"{len(made)} took effect, {len(noticed)} {_were(noticed)} noticed"]
    if unseen:
        parts[0] += f" (not: {', '.join(str(row['name']) for row in unseen)})"
    for outcome, words in (
        ("skipped", "skipped"),
        ("refused", "refused"),
        ("unproved", "not proved"),
    ):
        found = [row for row in rows if row["outcome"] == outcome]
        reasons = Counter(row["why"] for row in found if row["why"])
        why = "; ".join(f"{n} x {reason}" if n > 1 else reason for reason, n in reasons.items())
        if found:
            parts.append(f"{len(found)} {_were(found)} {words}" + (f" ({why})" if why else ""))
    return f"Faults: {', '.join(parts)}."


def _were(rows: Sequence[object]) -> str:
    return "was" if len(rows) == 1 else "were"


class JudgedFault(TypedDict):
    fault: int
    name: str
    operation: int
    outcome: Literal["effective", "skipped", "refused", "unproved"]
    why: str
    is_mild: bool
    noticed_by: list[str]


def _judged(fault: Fault, witnesses: _Witnesses) -> JudgedFault:
    outcome: Literal["effective", "skipped", "refused", "unproved"] = "effective"
    why = ""
    if fault.skipped:
        outcome, why = "skipped", fault.skipped
    elif fault.refused:
        outcome, why = "refused", fault.refused
    elif not fault.proved_effective:
        outcome = "unproved"
    return {
        "fault": fault.id,
        "name": fault.name,
        "operation": fault.index,
        "outcome": outcome,
        "why": why,
        "is_mild": not any(effect in fault.effects for effect in MUST_SHOW),
        "noticed_by": [] if fault.skipped else witnesses.of_fault(fault),
    }


@dataclass(frozen=True, slots=True)
class _Witnesses:
    """Who could have noticed something. ``quiet``: operations that no fault touches."""

    events: Sequence[NodeEvent]
    observations: Sequence[Observation]
    ops: Operations
    ends_ns: Ints  # of operations; of those that never ended, the run's end
    is_failure: Bools
    is_stalled: Bools  # what waited for a harness that stood still tells nothing of the system
    quiet_errors: Sequence[str]
    long_ns: float  # an operation that took longer is a sign

    @staticmethod
    def of(history: History, around: Surroundings) -> _Witnesses:
        ops = asked_operations(history)
        ends_ns = np.where(ops.complete_ns == NEVER, around.end_ns, ops.complete_ns)
        quiet = np.ones(len(ops), dtype=np.bool_)
        for fault in around.injected:
            quiet &= (ends_ns < fault.invoke_ns) | (ops.invoke_ns > fault.end_ns + AFTER_NS)
        stalled = np.zeros(len(ops), dtype=np.bool_)
        for stall in around.stalls:
            stalled |= (ends_ns >= stall.begin_ns) & (ops.invoke_ns <= stall.end_ns + AFTER_NS)
        fails = ops.type.equal("fail")
        quiet_errors = [ops.error.names[code] for code in np.unique(ops.error.codes[fails & quiet])]
        return _Witnesses(
            events=[event for event in read_events(history) if event.kind not in ROUTINE],
            observations=[seen for seen in around.observations if not seen.is_stalled],
            ops=ops,
            ends_ns=ends_ns,
            is_failure=ops.type.equal("info") | fails,
            is_stalled=stalled,
            quiet_errors=[*quiet_errors, "empty"],
            long_ns=_long_ns(ops, ends_ns, quiet, stalled),
        )

    def of_fault(self, fault: Fault) -> list[str]:
        begin_ns, end_ns = fault.effective_ns, fault.end_ns + AFTER_NS
        found = {
            "events": any(begin_ns <= event.run_ns <= end_ns for event in self.events),
            "observations": self._polls_differ(fault, end_ns),
            "clients": self._clients_differ(begin_ns, end_ns),
        }
        return [witness for witness, noticed in found.items() if noticed]

    def _polls_differ(self, fault: Fault, end_ns: int) -> bool:
        before: dict[str, object] = {}
        for seen in self.observations:
            if seen.end_ns < fault.invoke_ns:
                if seen.ok:
                    before[seen.node] = _believed(seen)
                continue
            believed = _believed(seen)
            in_time = seen.end_ns >= fault.effective_ns and seen.begin_ns <= end_ns
            if in_time and (not seen.ok or before.get(seen.node, believed) != believed):
                return True
        return False

    def _clients_differ(self, begin_ns: int, end_ns: int) -> bool:
        touched = (self.ends_ns >= begin_ns) & (self.ops.invoke_ns <= end_ns) & ~self.is_stalled
        if not touched.any():
            return False
        failed = touched & self.is_failure
        if (failed & self.ops.type.equal("info")).any():
            return True
        errors = [self.ops.error.names[code] for code in np.unique(self.ops.error.codes[failed])]
        if any(error not in self.quiet_errors for error in errors):
            return True
        took_ns = self.ends_ns[touched] - self.ops.invoke_ns[touched]
        return bool(took_ns.max() > self.long_ns)


def _long_ns(ops: Operations, ends_ns: Ints, quiet: Bools, stalled: Bools) -> float:
    """Longer than any quiet operation, and than is usual by far; so long is no accident."""
    took_ns = (ends_ns - ops.invoke_ns)[~stalled & ops.type.equal("ok")]
    calm_ns = (ends_ns - ops.invoke_ns)[quiet & ~stalled]
    if len(calm_ns) >= QUIET_LEAST:
        usual_ns, longest_ns = float(np.quantile(calm_ns, 0.99)), float(calm_ns.max())
    elif len(took_ns):
        usual_ns = longest_ns = float(np.median(took_ns))
    else:
        return float(LONGER_BY_NS)
    return max(longest_ns, LONGER_FACTOR * usual_ns, usual_ns + LONGER_BY_NS)


def _believed(seen: Observation) -> object:
    """What a node says of masters, of peers and of partitions; offsets grow in quiet times too."""
    claims = sorted((claim.group, claim.role, claim.epoch) for claim in seen.claims)
    return claims, seen.running, seen.partitions
