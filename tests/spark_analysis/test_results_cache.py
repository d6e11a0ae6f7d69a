"""What was judged once is not judged again, and whatever changed is. No JVM is started here."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from shalott.core.history import write_history
from shalott.core.plan import dump_plan
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.results import render_results
from shalott.spark_analysis import engine_choice as choice
from shalott.spark_analysis import results_cache as kept
from shalott.spark_analysis.findings import FleetFindings, Wanted, find
from shalott.spark_analysis.report import run_report
from tests.spark_analysis.conftest import broken_history, store_run
from tests.world.harness.report_run import example_plan

pytestmark = pytest.mark.unit

SEEDS = range(4)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for seed in SEEDS:
        store_run(tmp_path / "store", f"run/{seed}", broken_history(seed))
    return tmp_path / "store"


def judged(store: Path, out: Path) -> FleetFindings:
    return find(store, Wanted(engine="local", keep=out))


def test_a_second_report_judges_nothing_and_says_the_same(store: Path, tmp_path: Path) -> None:
    first, second = judged(store, tmp_path / "out"), judged(store, tmp_path / "out")
    assert (first.judged, second.judged) == (len(SEEDS), 0)
    assert all(table.equals(first.tables[name]) for name, table in second.tables.items())


def test_a_new_run_and_a_changed_one_are_judged(store: Path, tmp_path: Path) -> None:
    judged(store, tmp_path / "out")
    store_run(store, "run/9", broken_history(9))
    write_history(broken_history(77).ops, store / "run" / "0" / "history.parquet")
    again = judged(store, tmp_path / "out")
    assert again.judged == 2
    anew = judged(store, tmp_path / "elsewhere")
    assert all(table.equals(anew.tables[name]) for name, table in again.tables.items())


def test_a_plan_that_says_otherwise_is_a_change(store: Path, tmp_path: Path) -> None:
    judged(store, tmp_path / "out")
    plan = msgspec.structs.replace(example_plan(), observe_interval_ms=900)
    (store / "run" / "1" / "plan.json").write_bytes(dump_plan(plan))
    assert judged(store, tmp_path / "out").judged == 1


def test_other_kernels_judge_all_anew_and_what_was_kept_goes(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(store, tmp_path / "out")
    monkeypatch.setattr(kept, "kernels_version", lambda: "others")
    assert judged(store, tmp_path / "out").judged == len(SEEDS)
    assert [path.name for path in (tmp_path / "out" / "kept").iterdir()] == ["others"]


def test_damaged_segments_are_judged_again(store: Path, tmp_path: Path) -> None:
    first = judged(store, tmp_path / "out")
    for path in (tmp_path / "out").rglob("lost_messages.parquet"):
        path.write_bytes(b"PAR1")
    again = judged(store, tmp_path / "out")
    assert again.judged == len(SEEDS)
    assert again.tables["lost_messages"].equals(first.tables["lost_messages"])


def test_many_segments_become_one(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "SEGMENTS_MAX", 3)
    for seed in range(20, 27):
        store_run(store, f"run/{seed}", broken_history(seed))
        found = judged(store, tmp_path / "out")
        (kernels,) = (tmp_path / "out" / "kept").iterdir()
        assert len(list(kernels.iterdir())) <= 3
    assert judged(store, tmp_path / "out").judged == 0
    anew = judged(store, tmp_path / "elsewhere")
    assert all(table.equals(anew.tables[name]) for name, table in found.tables.items())


def test_an_invalid_run_that_lost_nothing_is_shown_as_invalid(tmp_path: Path) -> None:
    from shalott.checkers.checker import Result

    results = [Result(checker="availability", valid=False, counts={})]
    data = render_results(example_plan(), results, ReportMeta(command="", started_wall_ns=0))
    store_run(tmp_path / "s", "quiet", broken_history(3).__class__(
        ops=broken_history(3).ops.slice(0, 0), events=broken_history(3).events.slice(0, 0)
    ), data)  # fmt: skip
    console = Console(width=120, record=True)
    report = run_report(tmp_path / "s", None, console)
    text = console.export_text()
    assert report.runs[0].is_bad
    assert "1 runs, 1 of them invalid" in text
    assert "quiet: invalid by availability" in text
    assert report.engine == "local"


def test_which_engine_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choice.choose("auto", "", 1 << 20) == "local"
    assert choice.choose("auto", "spark://there:7077", 1) == "spark"
    monkeypatch.setattr("shalott.spark_analysis.engine_choice.why_no_spark", lambda: "no Java")
    assert choice.choose("auto", "", choice.LOCAL_BYTES + 1) == "local"
    monkeypatch.setattr("shalott.spark_analysis.engine_choice.why_no_spark", lambda: "")
    assert choice.choose("auto", "", choice.LOCAL_BYTES + 1) == "spark"
    assert choice.is_elsewhere("s3a://bucket/runs") and choice.is_elsewhere("hdfs:/runs")
    assert not choice.is_elsewhere("/runs") and not choice.is_elsewhere("file:///a%20b")
    assert choice.local_path("file:///a%20b") == "/a b"
