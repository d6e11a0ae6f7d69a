"""What report.json holds: one line a run."""

from __future__ import annotations

import msgspec

# Column of LOST_MESSAGES, or kind of DUAL_MASTERS -> the checker's count of the same thing.
COMPARED = {
    "attempts": "attempt-count",
    "acknowledged": "acknowledged-count",
    "delivered_once": "delivered-once-count",
    "recovered": "recovered-count",
    "lost": "lost-count",
    "duplicated": "duplicated-count",
    "redelivered": "redelivered-count",
    "phantom": "phantom-count",
    "not_enqueued": "not-enqueued-count",
    "unexpected": "unexpected-count",
    "corrupted": "corrupted-count",
    "too_early": "too-early-count",
    "lost_provably": "lost-provably-count",
    "claimed": "dual-master-claimed-count",
    "effective": "dual-master-effective-count",
}


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """One run. ``counts`` has the names of COMPARED; ``differs`` what its checkers counted else.

    ``failed``: the checkers that say false. ``found``: what the other jobs found, one number each.
    """

    run: str
    system: str
    profile: str
    partition_mode: str
    seed: int
    valid: bool | str | None
    complete: bool
    counts: dict[str, int]
    double_tenure_ns: int  # effective, no instant counted twice
    undrained: tuple[str, ...]
    differs: dict[str, tuple[int, int]]  # name -> here, by the checkers
    consumed: dict[str, int] = {}  # of runs with consumers, by the names of CONSUMED
    workload: str = ""
    failed: tuple[str, ...] = ()
    found: dict[str, int] = {}

    @property
    def is_bad(self) -> bool:
        """By its stored verdict, or by what was found here."""
        bad = ("order_breaches", "not_linearizable", "stuck")
        return bool(
            self.valid is False
            or self.counts["lost"]
            or self.counts["effective"]
            or self.consumed.get("skipped")
            or any(self.found.get(name) for name in bad)
        )


class FleetReport(msgspec.Struct, frozen=True, kw_only=True):
    """What report.json holds. ``judged``: so many runs were judged now, of the others results were
    kept."""

    version: int = 1
    store: str
    runs: tuple[RunLine, ...]
    unreadable: tuple[str, ...]
    engine: str = ""
    judged: int = 0
