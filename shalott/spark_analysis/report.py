"""``shalott report STORE``: what happened over every run of a store.

Judges the runs by the engine that suits (spark_analysis/findings.py), prints one line a run, and
writes into ``out``: a file for each table (spark_analysis/kernels/tables.py), report.json and
report.md with the table of runs, and spark.log with what the JVM had to say, where there was one.
The caller may draw a page of it (harness/fleet).

Where a stored verdict counts something else than is found here, the report says so: it was judged
by another version, or its history is no longer the one that was judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
from rich.console import Console

from shalott.core.errors import StoreError, UsageError
from shalott.spark_analysis.consumer_counts import counted
from shalott.spark_analysis.engine_choice import is_elsewhere, local_path
from shalott.spark_analysis.findings import FleetFindings, Wanted, find
from shalott.spark_analysis.kernels.tables import BY_SQL, TABLES, Row
from shalott.spark_analysis.report_rows import (
    COMPARED,
    FleetReport,
    RunLine,
    markdown,
    print_report,
)
from shalott.spark_analysis.stored_runs import Run

OUT = "_report"  # beside the runs; what begins with "_" is no run
Draw = Callable[[FleetFindings, FleetReport, Path], None]  # where to


def run_report(
    store: str | Path,
    out: Path | None,
    console: Console,
    wanted: Wanted | None = None,
    draw: Draw | None = None,
) -> FleetReport:
    """Analyse every run under ``store``; ``draw`` writes what is to be beside the files here.

    Raises UsageError, StoreError, HarnessError.
    """
    out = out or report_directory(str(store))
    wanted = wanted or Wanted()
    try:
        found = find(store, replace(wanted, keep=out, log=out / "spark.log"))
        report = write_report(found, out, draw)
    except OSError as error:
        raise StoreError(f"cannot write the report to {out}: {error.strerror}") from error
    print_report(report, out, console)
    return report


def report_directory(store: str) -> Path:
    """Where a report goes by default. Raises UsageError: the store is on another machine."""
    if is_elsewhere(store):
        raise UsageError(f"say with --out where the report on {store} is to be written here")
    return Path(local_path(store)) / OUT


def write_report(found: FleetFindings, out: Path, draw: Draw | None = None) -> FleetReport:
    """Every file of the report. Raises OSError, and what ``draw`` raises."""
    out.mkdir(parents=True, exist_ok=True)
    report = make_report(found)
    for name in TABLES:
        if found.engine != "sql" or name in BY_SQL:
            pq.write_table(
                found.tables[name],
                out / f"{name}.parquet",
                compression="zstd",
                write_page_checksum=True,
            )
        else:
            (out / f"{name}.parquet").unlink(missing_ok=True)  # of an earlier report
    content = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    (out / "report.json").write_bytes(content)
    (out / "report.md").write_text("\n".join(markdown(report)) + "\n")
    if draw is not None:
        draw(found, report, out)
    return report


def make_report(found: FleetFindings) -> FleetReport:
    """One line a run."""
    rows = {name: _by_run(found, name) for name in TABLES if name != "problems"}
    lines = tuple(
        make_line(run, {name: own.get(run.run, []) for name, own in rows.items()}, found.engine)
        for run in found.runs
    )
    return FleetReport(
        store=found.store,
        engine=found.engine,
        judged=found.judged,
        runs=lines,
        unreadable=found.unreadable,
    )


def _by_run(found: FleetFindings, name: str) -> dict[str, list[Row]]:
    """Without the evidence, which would be the most of it."""
    table = found.tables[name]
    told = [field.name for field in TABLES[name] if not field.name.endswith("operations")]
    by_run: dict[str, list[Row]] = {}
    for row in table.select(told).to_pylist():
        by_run.setdefault(row["run"], []).append(row)
    return by_run


Rows = Mapping[str, Sequence[Row]]  # of one run, by table


def make_line(run: Run, rows: Rows, engine: str) -> RunLine:
    undrained = tuple(row["queue"] for row in rows["undrained"])
    counts = dict.fromkeys(COMPARED, 0)
    for row in rows["lost_messages"]:
        for name in counts.keys() & row.keys():
            counts[name] += row[name]
        counts["lost_provably"] += 0 if row["queue"] in undrained else row["lost"]
    for row in rows["dual_masters"]:
        counts[row["kind"]] += 1
    consumed = counted(rows["consumed_messages"], undrained)
    counts |= _as_messages(consumed, rows["consumed_messages"])
    effective = [row for row in rows["tenure_times"] if row["kind"] == "effective"]
    return RunLine(
        run=run.run,
        system=run.system,
        profile=run.profile,
        partition_mode=run.partition_mode,
        workload=run.workload,
        seed=run.seed,
        valid=run.valid,
        failed=run.failed,
        complete=run.complete,
        counts=counts,
        double_tenure_ns=sum(row["total_ns"] for row in effective),
        undrained=undrained,
        differs=_differing(run, counts, consumed, engine),
        consumed=consumed,
        found=_found(rows),
    )


def _found(rows: Rows) -> dict[str, int]:
    """What the other jobs found, in one number each; without what there was none of."""
    gaps = [row["gap_ns"] for row in rows["unavailability"] if row["kind"] == "load"]
    recoveries = [row["recovery_ns"] or 0 for row in rows["unavailability"]]
    valid = [row["valid"] for row in rows["linearizability"]]
    numbers = {
        "longest_gap_ns": max(gaps, default=0),
        "longest_recovery_ns": max(recoveries, default=0),
        "order_breaches": sum(row["count"] for row in rows["order"]),
        "stuck": sum(row["stuck"] for row in rows["consumer_gaps"]),
        "longest_consumer_gap_ns": max((row["longest_ns"] for row in rows["consumer_gaps"]),
                                       default=0),
        "elections": sum(row["elections"] for row in rows["elections"]),
        "truncations": sum(row["truncations"] for row in rows["elections"]),
        "objects": len(valid),
        "not_linearizable": valid.count("false"),
        "undecided": valid.count("unknown"),
    }  # fmt: skip
    return {name: number for name, number in numbers.items() if number}


def _differing(
    run: Run, counts: Mapping[str, int], consumed: Mapping[str, int], engine: str
) -> dict[str, tuple[int, int]]:
    """What its checkers counted otherwise."""
    # SQL does not know what a policy took: it calls nothing lost in such queues.
    unknown = ("lost",) if engine == "sql" and run.taking else ()
    return {
        name: (count, run.judged[COMPARED[name]])
        for name, count in counts.items()
        if run.judged.get(COMPARED[name], count) != count
    } | {
        name: (count, run.judged_consumers[name])
        for name, count in consumed.items()
        if run.judged_consumers.get(name, count) != count and name not in unknown
    }


def _as_messages(consumed: Mapping[str, int], rows: Sequence[Row]) -> dict[str, int]:
    """A run's counts under the names of COMPARED, for the table of all runs."""
    if not consumed:
        return {}
    bare = sum(row["again_unflagged"] for row in rows)
    return {
        "attempts": consumed["attempts"],
        "acknowledged": consumed["acknowledged"],
        "lost": sum(row["lost"] for row in rows),
        "lost_provably": consumed["lost"],
        "duplicated": bare,
        "redelivered": consumed["again"] - bare,
    }
