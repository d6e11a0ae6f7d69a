"""Why messages were delivered again: by what became of the delivery before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.history.columns import NEVER, Ints
from shalott.harness.report.consumers import deliveries as outcomes
from shalott.harness.report.consumers.deliveries import Again, Deliveries

_CHANNELS = {
    "channel-closed": "its channel was closed",
    "hung-up": "its client dropped the connection",
    "lost": "its connection was lost",
    "closed": "the load was over",
}
_LISTENERS = {
    "later": "sent back for a retry",
    "suspend": "suspended by an orderly listener",
    "dropped": "its queue was given up meanwhile",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """``flagged``: redelivered (consume), reconsumed (group)."""

    words: str
    flagged: int
    bare: int

    @property
    def total(self) -> int:
        return self.flagged + self.bare


def causes_of(kind: str, found: Deliveries, again: Again) -> list[Cause]:
    """Each cause with how often, the most frequent first."""
    if not len(again.row):
        return []
    codes, names = _codes(kind, found, again)
    flagged = found.again[again.row]
    with_flag = np.bincount(codes[flagged], minlength=len(names))
    without = np.bincount(codes[~flagged], minlength=len(names))
    causes = [
        Cause(name, int(yes), int(no))
        for name, yes, no in zip(names, with_flag, without, strict=True)
        if yes or no
    ]
    return sorted(causes, key=lambda cause: (-cause.total, cause.words))


def _codes(kind: str, found: Deliveries, again: Again) -> tuple[Ints, list[str]]:
    before = again.before
    outcome, known = found.outcome[before], found.known[before]
    early = found.end_ns[before] > found.begin_ns[again.row]
    why = found.why.codes[before]
    if kind == "group":
        names = [_LISTENERS.get(name, "") for name in found.why.names]
        base = ["its member died", "while another member was at it",
                "consumed, but its offset was not kept"]  # fmt: skip
        code = np.full(len(before), 0)
        code = np.where(outcome == outcomes.ACKED, 2, code)
        said = np.array([*(bool(name) for name in names), False])[why]
        code = np.where(said, len(base) + why, code)
        # Until the listener of the one before returned, whatever it said later.
        code = np.where(early & (found.end_ns[before] < NEVER), 1, code)
        return code, [*base, *names]
    names = [_CHANNELS.get(name, f"its channel ended: {name}") for name in found.why.names]
    base = [
        "nacked or rejected, and requeued",
        "recovered",
        "acknowledged, and the broker had heard it",
        "acknowledged, and nobody knows whether the broker heard it",
        "refused for good",
        "delivered without acknowledgements",
        "while another consumer had it",
    ]
    code = np.full(len(before), 6)
    for place, wanted in ((0, outcomes.REQUEUED), (1, outcomes.RECOVERED), (3, outcomes.ACKED),
                          (4, outcomes.DROPPED), (5, outcomes.NO_ACK)):  # fmt: skip
        code = np.where(outcome == wanted, place, code)
    code = np.where((outcome == outcomes.ACKED) & known, 2, code)
    code = np.where(outcome == outcomes.ENDED, len(base) + why, code)
    # A broker may notice that a connection is gone long before its client does.
    return np.where(early & (outcome != outcomes.ENDED), 6, code), [*base, *names]
