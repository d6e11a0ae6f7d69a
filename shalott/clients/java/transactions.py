"""Transactions of RocketMQ's Java producer: which sends are, and what becomes of them.

A message of a transaction is stored where no consumer reads ("half"); the producer then says commit
or rollback, without an answer, or says nothing, and is asked by the broker later. What its sender
decided is in the message itself, so that any producer of the group knows it when it is asked, as an
application would know by its database.

    ok      commit, and the library says SEND_OK, as a broker had said. From then on the message is
            the brokers': it must come to consumers, sooner or later. Its offset is not known
    fail    rollback, whatever else happened: nobody may ever see it
    info    commit, and anything else. Of a message that is not SEND_OK the library itself says
            rollback, and whoever is asked later says commit

Upstream's manual (its Transaction Example, "Usage Constraint") says that a transactional
message "maybe checked or consumed more than once". A second copy is told, as ``committed-twice``,
and breaks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from shalott.clients.java.attempts import Attempt, fate_of_send
from shalott.core.op import Completion, Invocation
from shalott.core.rng import draw_float

ROLLED_BACK = "rolled back"
_ROLLBACKS, _LATER = 0.25, 0.5  # shares of transactions


class Decision(msgspec.Struct, frozen=True):
    """``told``: at once, or when a broker asks."""

    decision: Literal["commit", "rollback"]
    told: Literal["now", "later"]

    @property
    def commits(self) -> bool:
        return self.decision == "commit"


@dataclass(frozen=True, slots=True)
class Transactions:
    """``share`` of all sends; ``key`` of the random stream that says which, by message."""

    share: float = 0.0
    key: int = 0

    def of(self, value: int) -> Decision | None:
        """None: it is sent as any other."""
        drawn = [draw_float(self.key, 3 * value + place) for place in range(3)]
        if drawn[0] >= self.share:
            return None
        return Decision(
            decision="rollback" if drawn[1] < _ROLLBACKS else "commit",
            told="later" if drawn[2] < _LATER else "now",
        )


def fate_of_transaction(
    invocation: Invocation,
    said: Mapping[str, Any],
    attempts: Sequence[Attempt],
    decision: Decision,
) -> Completion:
    """As above. Raises Definite, Indefinite."""
    words = {"transaction": decision.decision, "told": decision.told}
    extra = {**(invocation.extra or {}), **words}
    if not decision.commits:
        stored = any(not attempt.is_refused for attempt in attempts)
        told = ROLLED_BACK if stored else f"{ROLLED_BACK}; nothing was stored"
        return Completion(type="fail", error=told, extra=extra)
    asked = msgspec.structs.replace(invocation, extra=extra)
    done = fate_of_send(asked, said, attempts)
    return msgspec.structs.replace(done, offset=None)
