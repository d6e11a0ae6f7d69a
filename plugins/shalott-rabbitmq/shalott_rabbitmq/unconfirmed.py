"""unconfirmed: publishes that got no answer although others did, on a cluster that was whole.

A confirm may be late while nodes are down or apart; none is promised in any time. But where no
fault is in force any more, and the same queue confirms to another channel of the same node what was
sent later, one that is still missing ``PATIENCE_S`` after that won't come: its channel waits for
ever. Only a run whose operations may take that long (``--op-timeout``) can show it; in others
nothing is judged.
"""

from __future__ import annotations

from dataclasses import dataclass

import shalott.api as api

PATIENCE_S = 12.0
S = 1_000_000_000
NEVER = 2**63 - 1  # when what did not complete did


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    name: str = "unconfirmed"

    def check(self, history: api.History) -> api.Result:
        ops = api.client_operations(history)
        faults = api.read_surroundings(history).injected
        whole_ns = max((fault.end_ns for fault in faults), default=0)
        sends = ops.f.equal("enqueue")
        silent = sends & ops.type.equal("info")
        silent &= ops.complete_ns != NEVER  # the run ended first
        silent &= ops.complete_ns - int(PATIENCE_S * S) >= ops.invoke_ns
        rows = []
        for row in silent.nonzero()[0].tolist():
            later = sends & ops.type.equal("ok")
            later &= ops.node.codes == ops.node.codes[row]
            later &= ops.key.codes == ops.key.codes[row]
            later &= ops.invoke_ns >= max(whole_ns, int(ops.invoke_ns[row]))
            later &= ops.complete_ns <= ops.complete_ns[row] - int(PATIENCE_S * S)
            if later.any():
                rows.append(row)
        shown = tuple(int(ops.index[row]) for row in rows[:10])
        found = (
            api.Anomaly(
                kind="unconfirmed",
                summary=f"{len(rows)} publishes got no confirm, {PATIENCE_S:.0f} s after the same"
                " queue had confirmed a later one through the same node",
                operations=shown,
            ),
        )
        return api.Result(
            checker=self.name,
            valid=not rows,
            counts={"unconfirmed-count": len(rows)},
            anomalies=found if rows else (),
            headline="no channel waited for ever",
            words={"unconfirmed": ("a channel waits for ever", "channels wait for ever")},
        )


CHECKER = api.CheckerRecord(
    name="unconfirmed",
    summary="whether publishes wait for ever on a cluster that is whole (RabbitMQ)",
    make=lambda plan: Unconfirmed(),
    reads=("operations", "faults"),
    promise="On a cluster that is whole a publish is confirmed or refused.",
    source="https://www.rabbitmq.com/docs/confirms",
    fits=lambda plan: (
        plan.system.name == "rabbitmq4" and plan.workload.op_timeout_ms > 1000 * PATIENCE_S
    ),
)
