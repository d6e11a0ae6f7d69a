"""What became of a run, read off its row: its verdict and the kinds of anomaly that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

FAILED = "harness-failed"
FIRST = "first"  # the pass in which a run is due; others repeat it: "repeat 2", "again 1"
AGAIN = "again"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a night. ``verdict``: valid, invalid, unknown or harness-failed. ``kinds``: of its
    anomalies, because of which it is not valid; of an unknown run, who could not say.

    ``run``: its directory, relative to the store; "" if it came to none. ``turn``: the pass.
    """

    cell: str
    seed: int
    turn: str = FIRST
    verdict: str
    kinds: tuple[str, ...] = ()
    headline: str = ""
    run: str = ""
    command: str = ""
    elapsed_s: float = 0.0

    @property
    def is_again(self) -> bool:
        """Whether it was run because it had failed: such runs are no sample of the cell."""
        return self.turn.startswith(AGAIN)


def outcome_of(row: Mapping[str, Any], *, cell: str, seed: int, turn: str) -> Outcome:
    """Of a run that has a row."""
    verdict, kinds = verdict_of(row)
    failures = row.get("harness_failures") or ()
    headline = f"The harness failed: {failures[0]}" if failures else row.get("headline") or ""
    if verdict == FAILED and not headline:
        headline = "The run did not end."
    return Outcome(
        cell=cell,
        seed=seed,
        turn=turn,
        verdict=verdict,
        kinds=kinds,
        headline=headline,
        run=row["run"],
        command=row.get("command") or "",
        elapsed_s=round((row.get("elapsed_ns") or 0) / 1e9, 3),
    )


def verdict_of(row: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """(verdict, kinds) of a row of the table of runs."""
    if row.get("harness_failures") or row.get("valid") not in ("true", "false", "unknown"):
        return FAILED, (FAILED,)
    if row["valid"] == "true":
        return "valid", ()
    if row["valid"] == "unknown":
        return "unknown", _distinct(f"unknown {each}" for each in row["unknown_checkers"] or ())
    broken = [each["kind"] for each in row["anomalies"] or () if each["broken"]]
    return "invalid", _distinct(broken) or _distinct(row["failed_checkers"] or ("invalid",))


def _distinct(kinds: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(kinds))


def is_unknown(kinds: Sequence[str]) -> bool:
    """Whether all of these say that nobody knows."""
    return all(kind.startswith("unknown") for kind in kinds)
