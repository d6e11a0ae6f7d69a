"""What is known of each run: its row of the table of runs, and its line of the report.

A run may have only one of the two: the report leaves out what has no history (its verdict alone was
kept, or the harness failed), and the table may be out of reach, as that of a store elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

import msgspec
import pyarrow as pa

from shalott.harness.fleet.page_data import Axes
from shalott.harness.matrix.cell_names import CELL_AXES, asked_of, group_of, joined
from shalott.harness.matrix.run_outcomes import AGAIN
from shalott.harness.store.columns import CAMPAIGN, FINDING, RUN, Row
from shalott.spark_analysis.report_rows import RunLine

COLUMNS = (
    *("run", "kind", "started_wall_ns", "commit", "system", "profile", "workload", "cluster"),
    *("seed", "nemesis", "bugs", "parameters", "rate_asked_hz", "time_limit_ns", "nodes"),
    *("concurrency", "valid", "anomalies", "failed_checkers", "unknown_checkers"),
    *("harness_failures", "headline", "command", "tags", "night", "cell", "campaign"),
    *("acknowledged", "lost", "unavailable_ms_max", "elapsed_ns", "seeds_wanted"),
    *("seeds_judged", "seeds_valid", "seeds_invalid", "seeds_unknown", "seeds_not_booted"),
)
NOT_KNOWN = "?"
_WORDS = {"true": "valid", "false": "invalid", "unknown": "unknown"}
_VALID = {True: "true", False: "false", "unknown": "unknown"}
_TIME_MAX_NS = 2**62  # some century that is not ours


@dataclass(frozen=True)
class Fact:
    """A run. ``row`` has all of COLUMNS; ``line`` is None of runs without a history."""

    run: str
    row: Row
    line: RunLine | None
    is_tabled: bool = True

    @property
    def kind(self) -> str:
        return self.row["kind"] or RUN

    @cached_property
    def tags(self) -> Mapping[str, object]:
        try:
            found = msgspec.json.decode(self.row["tags"] or "{}")
        except msgspec.MsgspecError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def turn(self) -> str:
        """The pass of a matrix's night in which it was run; "" of others."""
        return str(self.tags.get("turn", ""))

    @property
    def is_again(self) -> bool:
        """Whether it was run because another had failed: chosen, and so no sample."""
        return self.turn.startswith(AGAIN)

    @property
    def verdict(self) -> str:
        """valid, invalid, unknown or none."""
        if self.row["harness_failures"]:
            return "none"
        return _WORDS.get(self.row["valid"] or "", "none")

    @cached_property
    def axes(self) -> Axes:
        row = self.row
        return Axes(
            row["system"] or NOT_KNOWN,
            row["profile"] or NOT_KNOWN,
            row["workload"] or NOT_KNOWN,
            self._nemesis(),
            row["cluster"] or NOT_KNOWN,
        )

    def _nemesis(self) -> str:
        """What a matrix or a command asked for; else what the plan came to have."""
        asked = (self.row["cell"] or "").split("/", CELL_AXES - 1)
        if len(asked) == CELL_AXES:
            kinds, at, label = asked[-1].partition("@")
            return joined(kinds.split("+")) + at + label
        drawn = self.row["nemesis"]
        if not drawn:
            return NOT_KNOWN if drawn is None else "none"
        return asked_of(self.row["command"] or "") or joined(map(group_of, filter(None, drawn)))

    @property
    def started_ns(self) -> int | None:
        """By the true clock."""
        started_ns = self.row["started_wall_ns"]
        return started_ns if started_ns is not None and 0 < started_ns < _TIME_MAX_NS else None

    @cached_property
    def day(self) -> str:
        """In UTC; "" if it is not known."""
        if self.started_ns is None:
            return ""
        return f"{datetime.fromtimestamp(self.started_ns // 10**9, UTC):%Y-%m-%d}"


@dataclass(frozen=True)
class Facts:
    """``sample``: runs that were not chosen by what they showed; ``again`` and ``findings`` were.
    All are in the order of time."""

    sample: tuple[Fact, ...]
    again: tuple[Fact, ...]
    findings: tuple[Fact, ...]
    campaigns: tuple[Fact, ...]

    @property
    def by_run(self) -> Mapping[str, Fact]:
        """The sample, by name."""
        return {fact.run: fact for fact in self.sample}


def gather(table: pa.Table, lines: Sequence[RunLine]) -> Facts:
    """Of the table of runs, in its schema, and the report's lines; either may lack runs."""
    by_run = {line.run: line for line in lines}
    rows = table.select(COLUMNS).to_pylist()
    facts = [Fact(row["run"], row, by_run.pop(row["run"], None)) for row in rows]
    facts += [Fact(line.run, _row_of(line), line, is_tabled=False) for line in by_run.values()]
    facts.sort(key=lambda fact: (fact.started_ns or 0, fact.run))
    runs = [fact for fact in facts if fact.kind == RUN]
    return Facts(
        sample=tuple(fact for fact in runs if not fact.is_again),
        again=tuple(fact for fact in runs if fact.is_again),
        findings=tuple(fact for fact in facts if fact.kind == FINDING),
        campaigns=tuple(fact for fact in facts if fact.kind == CAMPAIGN),
    )


def _row_of(line: RunLine) -> Row:
    """What the report's line knows of a row."""
    known = {
        "run": line.run,
        "kind": RUN,
        "system": line.system,
        "profile": line.profile,
        "workload": line.workload,
        "seed": line.seed,
        "valid": None if line.valid is None else _VALID.get(line.valid),
        "failed_checkers": list(line.failed),
    }
    return dict.fromkeys(COLUMNS) | known


def worst_first(facts: Iterable[Fact]) -> tuple[str, ...]:
    """Runs that are not valid, the newest first; of valid ones alone the newest."""
    order = {"invalid": 0, "none": 1, "unknown": 2, "valid": 3}
    ranked = sorted(facts, key=lambda fact: (order[fact.verdict], -(fact.started_ns or 0)))
    red = [fact.run for fact in ranked if fact.verdict != "valid"]
    return tuple(red or [fact.run for fact in ranked[:1]])
