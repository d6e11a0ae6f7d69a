"""helpers: what the harness runs for its nodes lives as long as the run.

Relays of local links, the file systems under the nodes' data, packet engines, agents of hosts, the
watch for ends of containers: when one of them ends, nodes meet what no plan asked for, or nothing
is seen of what they do. The row ``helper-ended`` tells of it (harness/run/node_watch.py). Such a
run is unknown with all else that was found in it: ``without_verdicts`` takes what other checkers
said no to out of the verdict, and leaves what they saw. The same holds when the harness itself
failed, and when the history that is judged is damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from shalott.checkers.checker import Result
from shalott.checkers.history.faults import read_surroundings
from shalott.core.history import History

S = 1_000_000_000
DOUBT = "It said no, which is no verdict here: the harness, or what it runs for the nodes, failed."


@dataclass(frozen=True, slots=True)
class Helpers:
    """``failures``: what went wrong with the harness itself, ``damage``: with the history that is
    judged, as sentences."""

    failures: Sequence[str] = ()
    damage: Sequence[str] = ()
    name: str = "helpers"

    def check(self, history: History) -> Result:
        ends = read_surroundings(history).helper_ends
        told = [f"The harness failed: {failure}" for failure in self.failures]
        told += [f"The history is damaged, so this is no verdict: {each}." for each in self.damage]
        told += [
            f"A helper of the harness ended at {end.at_ns / S:.1f} s, so this is no verdict on the"
            f" system: {end.reason or end.helper}"
            for end in ends
        ]
        return Result(
            checker=self.name,
            valid="unknown" if told else True,
            counts={"helper-ended-count": len(ends)},
            notes=tuple(told),
        )


def without_verdicts(results: Sequence[Result]) -> tuple[Result, ...]:
    """The results of a run whose harness failed: none of them says no."""
    return tuple(
        msgspec.structs.replace(each, valid="unknown", notes=(*each.notes, DOUBT))
        if each.valid is False
        else each
        for each in results
    )
