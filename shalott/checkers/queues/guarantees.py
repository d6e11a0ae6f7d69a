"""What clients do, and do not do, against loss; and the losses that careless ones bring on.

Three documented windows need no replica to fail in its duty. They are told from what the clients
were up to, together with the history:

- L5: consumers that do not acknowledge. What was delivered is gone from the queue, also if the
  answer never arrived. A run of losses is explained by as many dequeues of its queue that ended
  without an answer after its first message had been acknowledged to its sender.
- L6: transient queues or messages. Mirrors keep them over the loss of nodes, but what is recovered
  from a disk comes without them: a restart of every node (L12 for who is careful), or a lone
  master that comes back.
- L7: publishing without confirms. "ok" says that the channel took the message, not that a queue
  has it. Near a fault (before it is noticed, messages go to who is no longer there), a loss that
  nothing else explains is of this kind; so is what went to a master that found itself in a
  minority and paused, which for who awaits confirms is the last moment of L3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.history.columns import Operations
from shalott.checkers.history.faults import Surroundings
from shalott.checkers.history.loss import Run
from shalott.checkers.queues.loss_windows import CLOCK_SLACK_NS, Explanation, S
from shalott.core.documented_loss import DocumentedLoss

UNNOTICED_NS = 5 * S  # how long after its end a fault may still swallow what is not confirmed


@dataclass(frozen=True, slots=True)
class ClientGuarantees:
    """What RabbitMQ's manual asks of who must not lose messages, and what its settings close."""

    manual_acks: bool = True
    durable: bool = True  # queues
    persistent: bool = True  # messages
    confirms: bool = True
    closed: tuple[str, ...] = ()  # windows of loss that the system's settings rule out
    documented: tuple[DocumentedLoss, ...] = ()  # those that its record names besides

    @property
    def transient(self) -> str:
        """What does not outlive a restart; empty if everything does."""
        if not self.durable:
            return "the queue was not durable"
        return "" if self.persistent else "the messages were not persistent"


CAREFUL = ClientGuarantees()


@dataclass(frozen=True, slots=True)
class Excuses:
    """What the clients' missing guarantees explain."""

    ops: Operations
    around: Surroundings
    guarantees: ClientGuarantees

    def untold_delivery(self, run: Run) -> Explanation | None:
        """L5: enough dequeues that were never answered took what was lost."""
        if self.guarantees.manual_acks:
            return None
        ops = self.ops
        untold = ops.f.among(("dequeue", "drain")) & ops.key.equal(run.queue)
        untold &= ~ops.has_value & ~ops.type.among(("ok", "fail"))
        untold &= ops.complete_ns >= run.begin_ns - CLOCK_SLACK_NS  # of what never ended: NEVER
        rows = np.flatnonzero(untold)
        if len(rows) < run.length:
            return None
        first = int(rows[0])
        count = "a dequeue" if len(rows) == 1 else f"{len(rows)} dequeues"
        return Explanation(
            window="L5",
            text=f"{count} without acknowledgement ended without an answer, the first of them"
            f" through {ops.node.names[ops.node.codes[first]]} at"
            f" {ops.invoke_ns[first] / S:.1f} s",
            evidence={"operation": int(ops.index[first])},
        )

    def unconfirmed(self, run: Run) -> Explanation | None:
        """L7: a fault was near when the channel took what was lost."""
        if self.guarantees.confirms:
            return None
        near = [
            fault
            for fault in self.around.injected
            if fault.invoke_ns <= run.end_ns + UNNOTICED_NS
            and run.begin_ns <= fault.end_ns + UNNOTICED_NS
        ]
        if not near:
            return None
        fault = near[0]
        return Explanation(
            window="L7",
            text=f"fault {fault.name} began at {fault.invoke_ns / S:.1f} s",
            evidence={"operation": fault.index},
        )
