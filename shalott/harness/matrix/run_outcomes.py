"""The outcomes of runs, read off their rows, of this night and of earlier nights of a matrix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from shalott.harness.store.columns import RUN, Row

FAILED = "harness-failed"
FIRST = "first"  # the pass in which a run is due; others repeat it: "repeat 2", "again 1"
AGAIN = "again"
EXPECT, ANOMALIES = "expect", "anomalies"  # tags of a run: what its cell expects, with commas
_COLUMNS = (
    *("run", "cell", "night", "seed", "tags", "started_wall_ns", "valid", "anomalies"),
    *("failed_checkers", "unknown_checkers", "harness_failures"),
)


class RunTags(msgspec.Struct, frozen=True):
    """What a matrix says of each of its runs; runs of no matrix, and of before, lack some of it."""

    matrix: str = ""
    turn: str = ""
    expect: str = ""
    anomalies: str = ""

    @property
    def is_again(self) -> bool:
        """Whether it was run because another had failed: such runs are no sample of the cell."""
        return self.turn.startswith(AGAIN)

    def expects(self, verdict: str, kinds: Sequence[str]) -> bool:
        """Whether the tags say that a run of this verdict is as its cell expects."""
        anomalies = tuple(filter(None, self.anomalies.split(",")))
        known = bool(self.expect)
        return known and not surprising(verdict, kinds, self.expect.split(","), anomalies)


def tags_of(text: str | None) -> RunTags:
    """Of a row's ``tags``; of damaged ones nothing is known."""
    try:
        return msgspec.json.decode(text or "{}", type=RunTags)
    except (msgspec.MsgspecError, UnicodeError):
        return RunTags()


def surprising(
    verdict: str, kinds: Sequence[str], expect: Sequence[str], anomalies: Sequence[str]
) -> tuple[str, ...]:
    """The kinds of a run's anomalies that its cell does not expect (definition.py, Rule)."""
    if verdict in expect:
        if verdict != "invalid" or not anomalies:
            return ()
        return tuple(kind for kind in kinds if kind not in anomalies)
    return tuple(kinds) if kinds else (verdict,)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a night. ``verdict``: valid, invalid, unknown or harness-failed. ``kinds``: of its
    anomalies, because of which it is not valid; of an unknown run, who could not say.

    ``run``: its directory, relative to the store; "" if it came to none. ``turn``: the pass.
    ``refused``: nothing was run, because the machine or the system can't have what the cell asks.
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
    refused: bool = False

    @property
    def is_again(self) -> bool:
        """Whether it was run because it had failed: such runs are no sample of the cell."""
        return self.turn.startswith(AGAIN)


def outcome_of(row: Row, *, cell: str, seed: int, turn: str) -> Outcome:
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


def verdict_of(row: Row) -> tuple[str, tuple[str, ...]]:
    """(verdict, kinds) of a row of the table of runs."""
    if row.get("harness_failures") or row.get("valid") not in ("true", "false", "unknown"):
        return FAILED, (FAILED,)
    if row["valid"] == "true":
        return "valid", ()
    if row["valid"] == "unknown":
        return "unknown", _distinct(f"unknown {each}" for each in row["unknown_checkers"] or ())
    broken = [each["kind"] for each in row["anomalies"] or () if each["broken"]]
    return "invalid", _distinct(broken) or _distinct(row["failed_checkers"] or ("invalid",))


def _distinct(kinds: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(kinds))


def is_unknown(kinds: Sequence[str]) -> bool:
    """Whether all of these say that the verdict is unknown."""
    return all(kind.startswith("unknown") for kind in kinds)


@dataclass(slots=True)
class CellNight:
    """A cell in one night: of each seed, the kinds that each of its runs showed."""

    night: str
    began_ns: int
    runs: dict[int, list[tuple[str, ...]]] = field(default_factory=dict)
    verdicts: dict[str, int] = field(default_factory=dict)

    def shows(self, kind: str) -> bool:
        return any(kind in kinds for each in self.runs.values() for kinds in each)

    def seeds(self, kind: str) -> list[int]:
        return [seed for seed, runs in self.runs.items() if any(kind in kinds for kinds in runs)]

    def was_flaky(self, kind: str) -> bool:
        """Whether a seed that showed it did not show it each time."""
        return any(any(kind not in kinds for kinds in self.runs[seed]) for seed in self.seeds(kind))


@dataclass(frozen=True, slots=True)
class EarlierNights:
    """``nights``: of each cell the nights that ran it, the newest first. ``last_ns``: when each
    (cell, seed) was last begun."""

    nights: Mapping[str, list[CellNight]]
    last_ns: Mapping[tuple[str, int], int]


def earlier_nights(
    table: pa.Table, matrix_name: str, *, but: Sequence[str], before_ns: int, at_most: int
) -> EarlierNights:
    """``matrix_name``: "" is runs that belong to no matrix, where the user gave them nights and
    cells. ``but``: tonight's names. ``before_ns``: later nights are none that came before."""
    rows = pc.and_(pc.equal(table["kind"], RUN), pc.not_equal(table["cell"], ""))
    rows = pc.and_(rows, pc.invert(pc.is_in(table["night"], pa.array(but, pa.string()))))
    rows = pc.and_(rows, pc.less(table["started_wall_ns"], before_ns))
    found: dict[tuple[str, str], CellNight] = {}
    last_ns: dict[tuple[str, int], int] = {}
    for row in table.filter(rows).select(_COLUMNS).to_pylist():
        tags = msgspec.json.decode(row["tags"] or "{}")
        if tags.get("matrix", "") != matrix_name:
            continue
        _add(found, last_ns, row, str(tags.get("turn", "")))
    nights: dict[str, list[CellNight]] = {}
    for (cell, _), one in sorted(found.items(), key=lambda item: -item[1].began_ns):
        if len(nights.setdefault(cell, [])) < at_most:
            nights[cell].append(one)
    return EarlierNights(nights, last_ns)


def _add(
    found: dict[tuple[str, str], CellNight],
    last_ns: dict[tuple[str, int], int],
    row: Row,
    turn: str,
) -> None:
    cell, seed, began_ns = row["cell"], row["seed"] or 0, row["started_wall_ns"]
    one = found.setdefault((cell, row["night"]), CellNight(row["night"], began_ns))
    one.began_ns = min(one.began_ns, began_ns)
    verdict, kinds = verdict_of(row)
    if verdict != FAILED:
        one.runs.setdefault(seed, []).append(kinds)
    if not turn.startswith(AGAIN):
        one.verdicts[verdict] = one.verdicts.get(verdict, 0) + 1
    last_ns[cell, seed] = max(last_ns.get((cell, seed), 0), began_ns)
