"""The three engines agree, and each with the checkers: worker processes, Spark's, and plain SQL.

Runs are those of conftest.py, of which much is wrong, in names that paths can't take easily.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from shalott.checkers.mastership.mastership import Mastership
from shalott.checkers.queues.total_queue import TotalQueue
from shalott.checkers.runs.availability import Availability
from shalott.core.history import History
from shalott.spark_analysis.kernels import rules
from shalott.spark_analysis.kernels.judge import judge_here
from shalott.spark_analysis.kernels.tables import BY_SQL, TABLES, sort_table
from shalott.spark_analysis.report import make_line
from shalott.spark_analysis.report_rows import COMPARED
from shalott.spark_analysis.stored_runs import Run, find_runs
from tests.spark_analysis.conftest import broken_history, store_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = range(24)
ODD_NAMES = {0: "plus+sign/100% [a-c]{x} & more", 1: "with space/ünïcode ☂"}


@dataclass(frozen=True)
class Store:
    runs: tuple[Run, ...]
    histories: Mapping[str, History]
    local: Mapping[str, pa.Table]


def sorted_tables(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    return {name: sort_table(name, table) for name, table in tables.items()}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    base = tmp_path_factory.mktemp("a store+of %20 runs")
    names = {seed: ODD_NAMES.get(seed, f"run/{seed:03d}") for seed in SEEDS}
    histories = {names[seed]: broken_history(seed) for seed in SEEDS}
    for name, history in histories.items():
        store_run(base, name, history)
    runs = find_runs(base).runs
    assert len(runs) == len(SEEDS)
    return Store(runs, histories, sorted_tables(judge_here([run.task for run in runs])))


@pytest.mark.unit
def test_every_count_agrees_with_the_checkers(store: Store) -> None:
    total: dict[str, int] = {}
    for run in store.runs:
        history = store.histories[run.run]
        counts = TotalQueue().check(history).counts | Mastership().check(history).counts
        rows = {
            name: [row for row in store.local[name].to_pylist() if row["run"] == run.run]
            for name in TABLES
        }
        line = make_line(run, rows, "local")
        assert line.counts == {name: counts[COMPARED[name]] for name in COMPARED}, run.run
        by_master = sum(row["by_one_master"] for row in rows["redeliveries"])
        assert by_master == counts["unflagged-count"]
        for name, number in line.counts.items():
            total[name] = total.get(name, 0) + number
    assert all(number > 10 for number in total.values()), total


@pytest.mark.unit
def test_unavailability_is_what_the_checker_tells(store: Store) -> None:
    told = 0
    for run in store.runs:
        detail = Availability().check(store.histories[run.run]).detail
        rows = [r for r in store.local["unavailability"].to_pylist() if r["run"] == run.run]
        faults = {row["fault_id"]: row for row in rows if row["kind"] == "fault"}
        for fault in detail["faults"]:
            row = faults[int(fault["fault"].split()[0])]
            recovery = fault["recovery_ms"]
            assert row["recovery_ns"] == (None if recovery is None else round(recovery * 1e6))
            assert row["gap_ns"] == round(fault["longest_gap_ms"] * 1e6)
            assert row["operations"] == fault["operations"]
            told += 1
        longest = max(row["gap_ns"] for row in rows if row["kind"] == "load")
        assert longest == round(detail["longest-gap"]["ms"] * 1e6)
    assert told > 10


@pytest.mark.unit
@pytest.mark.parametrize("buckets", [2, 5])
def test_a_run_that_is_split_by_value_gives_the_same(
    store: Store, buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = max(run.files.size for run in store.runs)
    monkeypatch.setattr(rules, "SPLIT_BYTES", -(-largest // buckets))
    pieces = [len(rules.split(run.task)) for run in store.runs]
    assert max(pieces) == buckets + 1
    split = sorted_tables(judge_here([run.task for run in store.runs]))
    for name, table in store.local.items():
        assert split[name].equals(table), name


@pytest.mark.unit
def test_workers_give_the_same(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shalott.spark_analysis.kernels.judge.HERE_BYTES", 0)
    found = sorted_tables(judge_here([run.task for run in store.runs], workers=2))
    for name, table in store.local.items():
        assert found[name].equals(table), name


@pytest.mark.unit
def test_a_bad_run_is_named_and_the_rest_is_judged(store: Store, tmp_path: Path) -> None:
    torn = tmp_path / "history.parquet"
    torn.write_bytes(b"PAR1")
    tasks = [run.task for run in store.runs[:3]]
    tasks[1] = msgspec.structs.replace(tasks[1], history=str(torn))
    found = judge_here(tasks)
    assert found["problems"]["run"].to_pylist() == [tasks[1].run]
    assert set(found["lost_messages"]["run"].to_pylist()) == {tasks[0].run, tasks[2].run}


@pytest.mark.spark
def test_spark_gives_the_same_tables_to_the_last_cell(spark: SparkSession, store: Store) -> None:
    from shalott.spark_analysis.spark_kernels import judge_with_spark

    found = sorted_tables(judge_with_spark(spark, [run.task for run in store.runs]))
    for name, table in store.local.items():
        assert found[name].equals(table), name


@pytest.mark.spark
def test_spark_reads_through_hadoop_what_it_reads_itself(spark: SparkSession, store: Store) -> None:
    """As of a store elsewhere: the files' contents come from the JVM."""
    from shalott.spark_analysis.spark_kernels import judge_with_spark

    tasks = [
        msgspec.structs.replace(t, history=f"file:{t.history}", events=f"file:{t.events}")
        for t in (run.task for run in store.runs)
    ]
    found = sorted_tables(judge_with_spark(spark, tasks, elsewhere=True))
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    for name, table in store.local.items():
        assert found[name].equals(table), name


@pytest.mark.spark
def test_plain_sql_counts_the_same(spark: SparkSession, store: Store) -> None:
    from shalott.spark_analysis.sql_engine import judge_with_sql

    found = sorted_tables(judge_with_sql(spark, store.runs))
    for name in BY_SQL:
        ours, theirs = store.local[name], found[name]
        # Which of several operations prove something is each engine's own, and why is words.
        columns = [
            field.name
            for field in TABLES[name]
            if field.type in (pa.string(), pa.int64()) and field.name not in ("why", "epoch")
        ]
        assert sorted_rows(ours, columns) == sorted_rows(theirs, columns), name
    for kind in ("lost", "duplicated", "phantom"):
        name = f"{kind}_operations"
        for one, other in zip(
            store.local["lost_messages"].to_pylist(), found["lost_messages"].to_pylist(),
            strict=True,
        ):  # fmt: skip
            assert one[name] == other[name]


def sorted_rows(table: pa.Table, columns: list[str]) -> list[str]:
    return sorted(map(repr, table.select(columns).to_pylist()))


@pytest.mark.unit
def test_what_is_read_for_speed_is_what_the_harness_reads(store: Store) -> None:
    from shalott.checkers.history.columns import client_operations
    from shalott.checkers.history.faults import read_surroundings
    from shalott.spark_analysis.kernels.run_data import read_run

    for run in store.runs:
        history = store.histories[run.run]
        data = read_run(run.files.history, run.files.events, run.complete)
        assert data.around == read_surroundings(history)
        wanted, found = client_operations(history), data.ops
        for name in wanted.__slots__:
            ours, theirs = getattr(found, name), getattr(wanted, name)
            if hasattr(ours, "names"):
                ours, theirs = (np.array(w.names)[w.codes] for w in (ours, theirs))
            assert np.array_equal(ours, theirs), name


@pytest.mark.unit
def test_evidence_is_in_order_and_of_its_queue(store: Store) -> None:
    for row in store.local["lost_messages"].to_pylist():
        ops = store.histories[row["run"]].ops
        lost = row["lost_operations"]
        assert lost == sorted(lost)
        assert len(lost) == min(row["lost"], 32)
        rows = ops.filter(pc.is_in(ops["index"], pa.array(lost, pa.int64())))
        assert set(rows["key"].to_pylist()) <= {row["queue"]}
        assert set(rows["f"].to_pylist()) <= {"enqueue"}
