"""The page of a fleet report is the same whichever engine counted.

The runs are those of conftest.py, of which much is wrong, with their verdicts; so every section has
rows. What plain SQL does not tell is unknown on its page, and all else is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from shalott.checkers.runs.compose import check_all
from shalott.checkers.runs.standard import standard_checkers
from shalott.harness.fleet.page_builder import page_of
from shalott.harness.fleet.page_data import PageData
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.results import render_results
from shalott.spark_analysis.engine_choice import Engine
from shalott.spark_analysis.findings import FleetFindings
from shalott.spark_analysis.kernels.judge import judge_here
from shalott.spark_analysis.kernels.tables import TABLES, sort_table
from shalott.spark_analysis.report import make_report
from shalott.spark_analysis.stored_runs import find_runs
from tests.spark_analysis.conftest import broken_history, store_run
from tests.world.harness.report_run import example_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = range(12)
MADE_NS, DAY_NS = 1_772_600_400 * 10**9, 86_400 * 10**9


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made on four days; one run has no verdict."""
    base = tmp_path_factory.mktemp("page") / "store"
    for seed in SEEDS:
        history = broken_history(seed)
        meta = ReportMeta(command="", started_wall_ns=MADE_NS + seed % 4 * DAY_NS)
        results = check_all(standard_checkers(), history).results
        data = render_results(example_plan(), results, meta)
        store_run(base, f"run/{seed:03d}", history, data if seed else None)
    return base


def page_by(store: Path, tables: Mapping[str, pa.Table], engine: Engine) -> PageData:
    """What the page shows of what an engine found."""
    found = FleetFindings(
        store=str(store),
        runs=find_runs(store).runs,
        tables={name: sort_table(name, tables[name]) for name in TABLES},
        unreadable=(),
        engine=engine,
        judged=len(SEEDS),
    )
    return page_of(found, make_report(found))[0]


@pytest.fixture(scope="module")
def local(store: Path) -> Mapping[str, pa.Table]:
    return judge_here([run.task for run in find_runs(store).runs])


@pytest.mark.unit
def test_worker_processes_make_the_same_page_and_it_has_everything(
    store: Path, local: Mapping[str, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = page_by(store, local, "local")
    monkeypatch.setattr("shalott.spark_analysis.kernels.judge.HERE_BYTES", 0)
    apart = judge_here([run.task for run in find_runs(store).runs], workers=2)
    assert page_by(store, apart, "local") == page
    assert page.verdicts.total == len(SEEDS)
    assert page.verdicts.invalid > 5
    assert page.verdicts.none == 1
    assert sum(row.lost for row in page.losses.rows.rows) > 10
    assert page.outages is not None
    assert len(page.outages.rows.rows) == len(SEEDS)
    assert page.recoveries is not None
    assert len(page.recoveries.rows.rows) >= 3
    assert len(page.duals.rows.rows) >= 3
    assert len(page.days.rows.rows) >= 4
    assert page.changes is not None


@pytest.mark.spark
def test_spark_makes_the_same_page(
    spark: SparkSession, store: Path, local: Mapping[str, pa.Table]
) -> None:
    from shalott.spark_analysis.spark_kernels import judge_with_spark

    found = judge_with_spark(spark, [run.task for run in find_runs(store).runs])
    assert page_by(store, found, "spark") == page_by(store, local, "local")


@pytest.mark.spark
def test_plain_sql_makes_the_same_page_but_for_what_it_does_not_tell(
    spark: SparkSession, store: Path, local: Mapping[str, pa.Table]
) -> None:
    from shalott.spark_analysis.sql_engine import judge_with_sql

    page = page_by(store, judge_with_sql(spark, find_runs(store).runs), "sql")
    assert page == page_by(store, local, "sql")
    told = page_by(store, local, "local")
    for name in ("verdicts", "cells", "losses", "days", "changes", "differs"):
        assert getattr(page, name) == getattr(told, name), name
    assert page.outages is None
    assert sum(row.effective for row in page.duals.rows.rows) == sum(
        row.effective for row in told.duals.rows.rows
    )
