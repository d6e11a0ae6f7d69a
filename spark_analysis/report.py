"""``shalott report STORE``: lost messages and dual masters over every run of a store.

Reads the runs with Spark, prints one line a run, and writes into ``out``:

    lost_messages.parquet   one row a run and queue (spark_analysis.schema.LOST_MESSAGES)
    consumed_messages.parquet  of runs with consumers: one row a run and queue, or group (CONSUMED)
    dual_masters.parquet    two nodes that were masters of one queue at once (DUAL_MASTERS)
    tenure_times.parquet     how often and how long that was, by queue (TENURE_TIMES)
    report.json, report.md  the table of runs
    spark.log               what the JVM had to say

The jobs are a second implementation of what the harness's checkers say of each run; where a stored
verdict counts something else, the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shalott.harness.core.errors import StoreError
from shalott.spark_analysis.consumer_counts import GROUPS, QUEUES, counted
from shalott.spark_analysis.runs import Run, find_runs, read_ops, runs_frame, runs_rows
from shalott.spark_analysis.spark import cache_directory, local_session, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUT = "_report"  # beside the runs; what begins with "_" is no run
RUNS_A_TASK = 8  # a Python worker costs more to start than so many runs to read

# Column of LOST_MESSAGES -> the checker's count of the same thing.
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
    """One run. ``counts`` has the names of COMPARED; ``differs`` what its checkers counted else."""

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


class FleetReport(msgspec.Struct, frozen=True, kw_only=True):
    """What report.json holds."""

    version: int = 1
    store: str
    runs: tuple[RunLine, ...]
    unreadable: tuple[str, ...]


class _Tables(msgspec.Struct, frozen=True):
    lost: pa.Table
    consumed: pa.Table
    dual: pa.Table
    times: pa.Table
    undrained: Mapping[str, tuple[str, ...]]


def run_report(store: Path, out: Path | None, console: Console) -> FleetReport:
    """Analyse every run under ``store``. Raises UsageError, StoreError, HarnessError."""
    require_spark()
    found = find_runs(store)
    out = out or store / OUT
    try:
        out.mkdir(parents=True, exist_ok=True)
        with local_session(out / "spark.log", cache=cache_directory()) as spark:
            tables = _analyse(spark, store, found.runs)
            lines = tuple(_line(run, tables) for run in found.runs)
            report = FleetReport(store=str(store), runs=lines, unreadable=found.unreadable)
            _write(out, tables, report)
            _print(report, out, console)  # before the JVM ends, which may take its time
    except OSError as error:
        raise StoreError(f"cannot write the report to {out}: {error.strerror}") from error
    return report


def _analyse(spark: SparkSession, store: Path, runs: Sequence[Run]) -> _Tables:
    from shalott.spark_analysis import schema
    from shalott.spark_analysis.claims import UNDRAINED, claims, claims_here
    from shalott.spark_analysis.dual_masters import dual_masters, tenure_times

    with ThreadPoolExecutor(1) as beside:
        # Python reads while the JVM is at work on the other job.
        if len(runs) <= RUNS_A_TASK:
            reading = beside.submit(claims_here, runs_rows(runs))
        else:
            tasks = -(-len(runs) // RUNS_A_TASK)
            reading = beside.submit(claims(runs_frame(spark, runs), tasks).toArrow)
        lost = _lost(spark, store, [run for run in runs if not run.has_consumers])
        consumed = _consumed(spark, store, [run for run in runs if run.has_consumers])
        claimed = reading.result()
    undrained: dict[str, tuple[str, ...]] = {}
    for row in claimed.filter(pc.equal(claimed["source"], UNDRAINED)).to_pylist():
        undrained[row["run"]] = (*undrained.get(row["run"], ()), row["group"])
    # Small from here on: a row for each claim, not for each operation.
    dual = dual_masters(spark.createDataFrame(claimed, schema.CLAIMS)).toArrow()
    times = tenure_times(spark.createDataFrame(dual, schema.DUAL_MASTERS)).toArrow()
    return _Tables(
        lost=_sorted(lost, "run", "queue"),
        consumed=_sorted(consumed, "run", "lane"),
        dual=_sorted(dual, "run", "group", "kind", "begin_ns"),
        times=_sorted(times, "run", "group", "kind"),
        undrained=undrained,
    )


def _lost(spark: SparkSession, store: Path, runs: Sequence[Run]) -> pa.Table:
    """Of runs without consumers (schema LOST_MESSAGES)."""
    from shalott.spark_analysis import schema
    from shalott.spark_analysis.log_messages import log_messages
    from shalott.spark_analysis.lost_messages import lost_messages

    if not runs:
        return spark.createDataFrame([], schema.LOST_MESSAGES).toArrow()
    ops = read_ops(spark, store, runs)
    return lost_messages(ops).unionByName(log_messages(ops)).toArrow()


def _consumed(spark: SparkSession, store: Path, runs: Sequence[Run]) -> pa.Table:
    """Of runs with consumers (schema CONSUMED)."""
    from shalott.spark_analysis import schema
    from shalott.spark_analysis.consumed_messages import consumed_messages
    from shalott.spark_analysis.group_messages import group_messages

    found = spark.createDataFrame([], schema.CONSUMED)
    queues = [run for run in runs if run.workload == QUEUES]
    if queues:
        rows = [(run.run, queue) for run in queues for queue in run.taking]
        taking = spark.createDataFrame(rows, "run string, queue string")
        found = found.unionByName(consumed_messages(read_ops(spark, store, queues), taking))
    groups = [run for run in runs if run.workload == GROUPS]
    if groups:
        found = found.unionByName(group_messages(read_ops(spark, store, groups)))
    return found.toArrow()


def _sorted(table: pa.Table, *names: str) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in names])


def _line(run: Run, tables: _Tables) -> RunLine:
    undrained = tables.undrained.get(run.run, ())
    counts = dict.fromkeys(COMPARED, 0)
    for row in _rows_of(tables.lost, run):
        for name in counts.keys() & row.keys():
            counts[name] += row[name]
        counts["lost_provably"] += 0 if row["queue"] in undrained else row["lost"]
    for row in _rows_of(tables.dual, run):
        counts[row["kind"]] += 1
    consumed = counted(_rows_of(tables.consumed, run), undrained)
    counts |= _as_messages(consumed, _rows_of(tables.consumed, run))
    effective = [row for row in _rows_of(tables.times, run) if row["kind"] == "effective"]
    return RunLine(
        run=run.run,
        system=run.system,
        profile=run.profile,
        partition_mode=run.partition_mode,
        seed=run.seed,
        valid=run.valid,
        complete=run.complete,
        counts=counts,
        double_tenure_ns=sum(row["total_ns"] for row in effective),
        undrained=undrained,
        differs={
            name: (count, run.judged[COMPARED[name]])
            for name, count in counts.items()
            if run.judged.get(COMPARED[name], count) != count
        }
        | {
            name: (count, run.judged_consumers[name])
            for name, count in consumed.items()
            if run.judged_consumers.get(name, count) != count
        },
        consumed=consumed,
    )


def _as_messages(consumed: Mapping[str, int], rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
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


def _rows_of(table: pa.Table, run: Run) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.filter(pc.equal(table["run"], run.run)).to_pylist()
    return rows


def _write(out: Path, tables: _Tables, report: FleetReport) -> None:
    for name, table in (
        ("lost_messages", tables.lost),
        ("consumed_messages", tables.consumed),
        ("dual_masters", tables.dual),
        ("tenure_times", tables.times),
    ):
        pq.write_table(table, out / f"{name}.parquet", compression="zstd")
    content = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    (out / "report.json").write_bytes(content)
    (out / "report.md").write_text("\n".join(_markdown(report)) + "\n")


HEADINGS = (
    *("run", "system", "verdict", "acked", "lost", "again", "phantom", "skipped", "dead letters"),
    *("claimed", "effective", "both masters"),
)

LEFT_OUT = (
    "system",
    "phantom",
    "skipped",
    "dead letters",
)  # on the terminal, whose lines are short


def _cells(line: RunLine) -> list[str]:
    counts = line.counts
    doubt = "?" if counts["lost"] != counts["lost_provably"] else ""
    seconds = f"{line.double_tenure_ns / 1e9:.1f} s" if line.double_tenure_ns else "-"
    return [
        line.run,
        " ".join(filter(None, (line.system, line.profile, line.partition_mode))),
        {True: "valid", False: "invalid", None: "-"}.get(line.valid, "unknown")  # type: ignore[arg-type]
        + (" *" if line.differs else ""),
        f"{counts['acknowledged']:,}",
        f"{counts['lost']:,}{doubt}",
        f"{counts['duplicated'] + counts['redelivered']:,}",
        f"{counts['phantom']:,}",
        f"{line.consumed.get('skipped', 0):,}",
        f"{line.consumed.get('dead_lettered', 0):,}",
        f"{counts['claimed']:,}",
        f"{counts['effective']:,}",
        seconds,
    ]


def _remarks(report: FleetReport) -> list[str]:
    """What the table can't say."""
    remarks = list(report.unreadable)
    for line in report.runs:
        if line.undrained and line.counts["lost"]:
            queues = ", ".join(line.undrained)
            remarks.append(f"? {line.run}: {queues} was not drained; messages may still be there")
        for name, (here, there) in line.differs.items():
            remarks.append(
                f"* {line.run}: {name} is {here:,} here and {there:,} in its results.json; "
                f"`shalott analyze` judges it anew"
            )
    return remarks


def _summary(report: FleetReport) -> str:
    total = {name: sum(line.counts[name] for line in report.runs) for name in COMPARED}
    lossy = sum(line.counts["lost"] > 0 for line in report.runs)
    torn = sum(line.counts["effective"] > 0 for line in report.runs)
    return (
        f"{len(report.runs):,} runs, {total['acknowledged']:,} acknowledged messages: "
        f"{total['lost']:,} lost in {lossy:,} runs; two masters acknowledged in {torn:,} runs."
    )


def _markdown(report: FleetReport) -> list[str]:
    rows = [_cells(line) for line in report.runs]
    return [
        f"# {_summary(report)}",
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|{'|'.join(['---'] * 3 + ['---:'] * (len(HEADINGS) - 3))}|",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        *(f"- {remark}" for remark in _remarks(report)),
    ]


def _print(report: FleetReport, out: Path, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = [place for place, heading in enumerate(HEADINGS) if heading not in LEFT_OUT]
    for place in shown:
        is_name = place == 0
        justify: Literal["left", "right"] = "left" if place < 3 else "right"
        table.add_column(HEADINGS[place], justify=justify, overflow="fold", no_wrap=not is_name)
    for line in report.runs:
        is_bad = line.counts["lost"] or line.counts["effective"] or line.consumed.get("skipped")
        cells = _cells(line)
        table.add_row(*(Text(cells[place]) for place in shown), style="red" if is_bad else None)
    console.print(table)
    for remark in _remarks(report):
        console.print(Text(remark))
    console.print(Text(f"{_summary(report)} Written to {out}."))
