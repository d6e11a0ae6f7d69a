"""Violations: a checker that said no, and the class of anomaly because of which it did.

What a checker merely remarked on beside that is none. Runs that fail are told apart by these
classes, in searches and from night to night.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shalott.checkers.checker import Result

# What a checker reports and may have said no without.
REMARKS = ("dual-master-claimed", "epoch-regression")
# The gravest first: what a finding with several classes is called after.
GRAVEST = (
    "lost",
    "lost-write",
    "corrupted",
    "unexpected",
    "dual-master-effective",
    "diverged",
    "crashed",
)


class Violation(NamedTuple):
    """What the same checker must find again for a plan to fail in the same way."""

    checker: str
    kind: str


def violations(results: Sequence[Result]) -> tuple[Violation, ...]:
    """Every reason for which a checker said no, the gravest first, then by name."""
    found: dict[Violation, None] = {}
    for result in results:
        if result.valid is not False:
            continue
        broken = result.detail.get("broken") or [anomaly.kind for anomaly in result.anomalies]
        kinds = [kind for kind in broken if kind not in REMARKS] or broken or ["invalid"]
        found |= {Violation(result.checker, str(kind)): None for kind in kinds}
    return tuple(sorted(found, key=lambda one: (gravity(one.kind), one)))


def gravity(kind: str) -> int:
    """For sorting: 0 is the gravest."""
    return GRAVEST.index(kind) if kind in GRAVEST else len(GRAVEST)


def classes(found: Sequence[Violation]) -> tuple[str, ...]:
    """The distinct kinds, in the order of ``found``."""
    return tuple(dict.fromkeys(violation.kind for violation in found))
