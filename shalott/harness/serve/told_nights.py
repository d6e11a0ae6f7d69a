"""What each night was to do, and what it found: told by the matrix, or read off the table of runs.

``STORE/_nights/*/summary.json`` is what the matrix told, of a night under way too; a night in
several shards has several. Of runs that belong to no matrix, and where that file is gone, findings
are made of the rows as a matrix makes them: what the runs' tags say is expected, is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from shalott.harness.matrix.cells import cell_as_told
from shalott.harness.matrix.night_findings import (
    STATUSES,
    Finding,
    Share,
    findings_of,
    share,
)
from shalott.harness.matrix.night_journal import NIGHTS, SUMMARY
from shalott.harness.matrix.night_summary import CellSummary, NightSummary
from shalott.harness.matrix.run_outcomes import (
    FIRST,
    RunTags,
    earlier_nights,
    outcome_of,
    tags_of,
    verdict_of,
)
from shalott.harness.serve.cached_table import Runs
from shalott.harness.serve.request import Refused, StoreFiles
from shalott.harness.serve.runs_page import Filters, Mask, cells, matching
from shalott.harness.store.columns import RUN

COMPARED_NIGHTS = 7  # as a matrix does if it says nothing
SUMMARY_BYTES_MAX = 32 << 20
NIGHTS_MAX = 2000
_NOT_SEEN = (0, 0)


@dataclass(frozen=True, slots=True)
class ToldNight:
    """A night by its summaries, one a shard. ``cells``: by key, each in one or several shards."""

    summaries: tuple[NightSummary, ...]
    cells: Mapping[str, tuple[CellSummary, ...]]

    @property
    def planned(self) -> int:
        return sum(each.planned for each in self.summaries)

    @property
    def ran(self) -> int:
        return sum(each.ran for each in self.summaries)

    @property
    def over(self) -> bool:
        return all(each.over for each in self.summaries)

    @property
    def why(self) -> str:
        """Why not all was run; "" if it was, or may still be."""
        return "; ".join(dict.fromkeys(each.why for each in self.summaries if each.why))

    @property
    def compared_with(self) -> tuple[str, ...]:
        names = (name for each in self.summaries for name in each.compared_with)
        return tuple(dict.fromkeys(names))

    @property
    def shards(self) -> str:
        """Which are here, where not all are."""
        of = max(each.of_shards for each in self.summaries)
        here = sorted(dict.fromkeys(number for each in self.summaries for number in each.shards))
        return f"{', '.join(map(str, here))} of {of}" if len(here) < of else ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        if len(self.summaries) == 1:
            return self.summaries[0].findings
        return _merged([one for each in self.summaries for one in each.findings])


class NightFiles:
    """The nights that a store's matrices told of, each file read again when it has changed."""

    def __init__(self, places: StoreFiles) -> None:
        self._places = places
        self._read: dict[str, tuple[tuple[int, int], NightSummary | None]] = {}

    def current(self) -> dict[str, ToldNight]:
        """By name. A summary that can't be read is passed over: the table tells of its runs."""
        by_night: dict[str, list[NightSummary]] = {}
        for name in self._names():
            told = self._summary(name)
            if told is not None:
                by_night.setdefault(told.night, []).append(told)
        return {name: _told(own) for name, own in by_night.items()}

    def _names(self) -> list[str]:
        top = self._places.root / NIGHTS
        try:
            if top.is_symlink():
                return []
            with os.scandir(top) as listed:
                found = [each.name for each in listed if each.is_dir(follow_symlinks=False)]
        except OSError:
            return []
        return sorted(found, reverse=True)[:NIGHTS_MAX]

    def _summary(self, name: str) -> NightSummary | None:
        relative = Path(NIGHTS, name, SUMMARY)
        try:
            with self._places.opened_below(relative) as file:
                stat = os.fstat(file.fileno())
                seen = stat.st_mtime_ns, stat.st_size
                kept_seen, kept = self._read.get(name, (_NOT_SEEN, None))
                if seen != kept_seen:
                    kept = msgspec.json.decode(file.read(SUMMARY_BYTES_MAX), type=NightSummary)
                    self._read[name] = seen, kept
                return kept
        except (Refused, msgspec.MsgspecError, UnicodeError, RecursionError, OSError):
            return None


def _told(summaries: Sequence[NightSummary]) -> ToldNight:
    found: dict[str, tuple[CellSummary, ...]] = {}
    for each in summaries:
        for cell in each.cells:
            found[cell.cell] = (*found.get(cell.cell, ()), cell)
    return ToldNight(tuple(summaries), found)


def _merged(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Of the shards of one night: a kind in a cell once, with the gravest status."""
    kinds: dict[tuple[str, str], list[Finding]] = {}
    for one in sorted(findings, key=lambda one: STATUSES.index(one.status)):
        kinds.setdefault((one.cell, one.kind), []).append(one)
    return tuple(
        msgspec.structs.replace(
            own[0],
            seeds=tuple(dict.fromkeys(seed for one in own for seed in one.seeds)),
            shown=_added([one.shown for one in own]),
            again=_added([one.again for one in own]),
            seen_in=tuple(dict.fromkeys(night for one in own for night in one.seen_in)),
        )
        for own in kinds.values()
    )


def _added(shares: Sequence[Share | None]) -> Share | None:
    told = [each for each in shares if each is not None]
    return share(sum(x.k for x in told), sum(x.n for x in told)) if told else None


@dataclass(frozen=True)
class Places:
    """What the matrix said of each row. ``again``: it only repeats another run, and is no sample
    of its cell. ``expected``: it is not valid, and need not be."""

    again: Mask
    expected: Mask
    findings: dict[str, tuple[Finding, ...]] = field(default_factory=dict)  # by night, once made


def placed(runs: Runs, told: Mapping[str, ToldNight]) -> Places:
    """Kept with the table, as long as no night's summary has changed what older runs expect."""
    found: Places | None = runs.made.get("placed")
    if found is None:
        found = runs.made["placed"] = _place(runs, told)
    return found


def _place(runs: Runs, told: Mapping[str, ToldNight]) -> Places:
    tags = [tags_of(text) for text in runs.table["tags"].to_pylist()]
    again = [each.is_again for each in tags]
    expected = [False] * len(tags)
    names = ("valid", "harness_failures", "unknown_checkers", "failed_checkers", "anomalies")
    not_valid = pc.indices_nonzero(pc.not_equal(pc.fill_null(runs.table["valid"], ""), "true"))
    rows = runs.table.select([*names, "night", "cell"]).take(not_valid).to_pylist()
    for number, row in zip(not_valid.to_pylist(), rows, strict=True):
        own = tags[number]
        if not own.expect and row["night"] in told:  # a run of before: its night's file says it
            summary = told[row["night"]].cells.get(row["cell"] or "", ())
            for cell in summary[:1]:
                own = RunTags(expect=",".join(cell.expect), anomalies=",".join(cell.anomalies))
        expected[number] = own.expects(*verdict_of(row))
    return Places(again=_mask(again), expected=_mask(expected))


def _mask(values: Sequence[bool]) -> Mask:
    found: Mask = pa.array(values, pa.bool_()).to_numpy(zero_copy_only=False)
    return found


def night_findings(runs: Runs, told: Mapping[str, ToldNight], night: str) -> tuple[Finding, ...]:
    """All that the night found, in the order that a matrix tells it."""
    if night in told:
        return told[night].findings
    kept = placed(runs, told).findings
    if night not in kept:
        kept[night] = _findings_of_rows(runs, night)
    return kept[night]


def _findings_of_rows(runs: Runs, night: str) -> tuple[Finding, ...]:
    table = _named(runs)
    tonight = table.filter(pa.array(matching(runs, Filters(night=night)))).to_pylist()
    if not tonight:
        return ()
    tags = [tags_of(row["tags"]) for row in tonight]
    expected = {
        row["cell"]: cell_as_told(row["cell"], own) for row, own in zip(tonight, tags, strict=True)
    }
    outcomes = [
        outcome_of(row, cell=row["cell"], seed=row["seed"] or 0, turn=own.turn or FIRST)
        for row, own in zip(tonight, tags, strict=True)
    ]
    suspects = _suspects(table, list(expected))
    earlier = earlier_nights(
        table.filter(pc.is_in(table["cell"], value_set=pa.array(suspects, pa.string()))),
        tags[0].matrix,
        but=[night],
        before_ns=min(row["started_wall_ns"] or 0 for row in tonight),
        at_most=COMPARED_NIGHTS,
    )
    own_cells = [cell for key, cell in expected.items() if key in suspects]
    return findings_of(own_cells, [one for one in outcomes if one.cell in suspects], earlier)


def _suspects(table: pa.Table, keys: Sequence[str]) -> list[str]:
    """Of these cells those that ever had a run that is not valid: of the others there is no
    finding."""
    bad = pc.not_equal(pc.fill_null(table["valid"], ""), "true")
    known = pc.is_in(table["cell"], value_set=pa.array(keys, pa.string()))
    found: list[str] = pc.unique(table["cell"].filter(pc.and_(bad, known))).to_pylist()
    return found


def _named(runs: Runs) -> pa.Table:
    """The table with each run's night and cell, as pages call them."""
    found: pa.Table | None = runs.made.get("named")
    if found is None:
        found = runs.table
        for name, values in (("night", runs.group), ("cell", cells(runs))):
            found = found.set_column(found.column_names.index(name), name, values)
        kinds = pc.fill_null(found["kind"], RUN)
        found = found.set_column(found.column_names.index("kind"), "kind", kinds)
        runs.made["named"] = found
    return found
