"""Finding runs, and what is said when something is missing; no JVM is started here."""

from __future__ import annotations

import importlib.util
import os
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from shalott.checkers.runs.compose import check_all
from shalott.checkers.runs.standard import standard_checkers
from shalott.core.errors import UsageError
from shalott.core.history import read_history
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.results import render_results
from shalott.spark_analysis.engine_choice import ClassArchive
from shalott.spark_analysis.findings import Wanted
from shalott.spark_analysis.kernels.judge import judge_here
from shalott.spark_analysis.report import run_report
from shalott.spark_analysis.spark_session import cache_directory, write_archive
from shalott.spark_analysis.stored_runs import find_runs
from tests.spark_analysis.conftest import broken_history, history_of, op, store_run
from tests.world.harness.report_run import example_plan

pytestmark = pytest.mark.unit

SMALL = history_of([op("enqueue", 0, 1, value=1)])


def test_runs_are_found_at_any_depth_and_links_are_not_followed(tmp_path: Path) -> None:
    first = store_run(tmp_path, "a/20260101T000000.000Z", SMALL)
    store_run(tmp_path, "b/deep/er/2", SMALL)
    store_run(tmp_path, "_report/x", SMALL)
    store_run(tmp_path, ".hidden/x", SMALL)
    (tmp_path / "latest").symlink_to(first, target_is_directory=True)
    (tmp_path / "a" / "empty").mkdir()
    found = find_runs(tmp_path)
    assert [run.run for run in found.runs] == ["a/20260101T000000.000Z", "b/deep/er/2"]
    assert found.unreadable == ()
    assert found.runs[0].system == "mirrored"
    assert found.runs[0].partition_mode == "autoheal"


def test_a_run_of_before_a_column_was_added_is_read(tmp_path: Path) -> None:
    history = store_run(tmp_path, "old", SMALL) / "history.parquet"
    pq.write_table(pq.read_table(history).drop_columns(["due_ns"]), history)
    assert [run.run for run in find_runs(tmp_path).runs] == ["old"]
    assert read_history(history).ops.column("due_ns").null_count == SMALL.ops.num_rows


def test_a_run_with_one_more_column_is_read(tmp_path: Path) -> None:
    history = store_run(tmp_path, "newer", SMALL) / "history.parquet"
    table = pq.read_table(history)
    pq.write_table(table.append_column("shard", pa.array([7] * table.num_rows)), history)
    (run,) = find_runs(tmp_path).runs
    rows = judge_here([run.task])["lost_messages"].to_pylist()
    assert [(row["queue"], row["lost"]) for row in rows] == [("q1", 1)]


def test_a_single_run_is_a_store_of_one(tmp_path: Path) -> None:
    directory = store_run(tmp_path, "a/x", SMALL)
    (run,) = find_runs(directory).runs
    assert run.run == "x"
    link = tmp_path / "latest"
    link.symlink_to(directory, target_is_directory=True)
    (linked,) = find_runs(link).runs
    assert linked.run == "x"


def test_what_the_harness_judged_is_read(tmp_path: Path) -> None:
    history = broken_history(3)
    results = check_all(standard_checkers(), history).results
    meta = ReportMeta(command="", started_wall_ns=0)
    store_run(tmp_path, "x", history, render_results(example_plan(), results, meta))
    (run,) = find_runs(tmp_path).runs
    assert run.valid is False
    assert run.judged["lost-count"] == results[0].counts["lost-count"]
    assert "dual-master-claimed-count" in run.judged


def test_damaged_runs_are_named_and_do_not_stop_the_rest(tmp_path: Path) -> None:
    store_run(tmp_path, "good", SMALL)
    (store_run(tmp_path, "plan", SMALL) / "plan.json").write_text('{"name": 1}')
    (store_run(tmp_path, "torn", SMALL) / "history.parquet").write_bytes(b"PAR1")
    other = store_run(tmp_path, "other", SMALL) / "history.parquet"
    pq.write_table(pa.table({"index": [1]}), other)
    (store_run(tmp_path, "results", SMALL) / "results.json").write_text("{")
    found = find_runs(tmp_path)
    assert [run.run for run in found.runs] == ["good", "results"]
    assert found.runs[1].valid is None
    assert len(found.unreadable) == 3
    assert any("other" in line and "no column process" in line for line in found.unreadable)


def test_a_store_that_is_not_there_is_refused_and_an_empty_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no store"):
        find_runs(tmp_path / "store")
    found = find_runs(tmp_path)
    assert found.runs == ()
    assert found.unreadable == (f"There is no finished run in {tmp_path}.",)


def test_a_name_that_no_table_can_hold_is_told_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    store_run(tmp_path, "good", SMALL)
    store_run(tmp_path, "other", SMALL).rename(tmp_path / os.fsdecode(b"bytes-\xff"))
    found = find_runs(tmp_path)
    assert [run.run for run in found.runs] == ["good"]
    (sentence,) = found.unreadable
    assert "bytes-\ufffd was left out: its name is no UTF-8" in sentence
    sentence.encode()


def test_without_java_the_command_that_installs_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    store_run(tmp_path, "run", SMALL)
    with pytest.raises(UsageError, match="apt-get install -y default-jre-headless"):
        run_report(tmp_path, None, Console(), Wanted(engine="spark"))
    assert not (tmp_path / "_report").exists()


def test_without_pyspark_the_command_that_installs_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install .*\[spark\]"):
        run_report(tmp_path, None, Console(), Wanted(engine="spark"))


def test_a_class_archive_fits_one_jvm_and_one_set_of_jars(tmp_path: Path) -> None:
    java, jars, cache = tmp_path / "java", tmp_path / "jars", tmp_path / "cache"
    jars.mkdir()
    java.write_bytes(b"1")
    (jars / "spark.jar").write_bytes(b"1")
    first = ClassArchive.of(java, jars, cache)
    assert ClassArchive.of(java, jars, cache) == first
    (jars / "spark.jar").write_bytes(b"12")
    assert ClassArchive.of(java, jars, cache) != first
    assert any("ArchiveClassesAtExit" in option for option in first.options())
    first.unfinished.write_bytes(b"classes")
    first.keep()
    assert first.options()[0] == f"-XX:SharedArchiveFile={first.path}"
    assert list(cache.iterdir()) == [first.path]


def test_a_cache_that_can_not_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "java").touch()
    (tmp_path / "cache").write_text("a file in the way")
    archive = ClassArchive.of(tmp_path / "java", tmp_path / "jars", tmp_path / "cache" / "shalott")
    assert archive.options() == []


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_directory() == Path("/elsewhere/shalott")


def test_executors_are_sent_every_room_that_kernels_import(tmp_path: Path) -> None:
    with zipfile.ZipFile(write_archive(tmp_path / "code.zip")) as archive:
        names = archive.namelist()
    for file in ("core/op.py", "checkers/checker.py", "spark_analysis/kernels/judge.py"):
        assert f"shalott/{file}" in names
    assert any(name.startswith("msgspec/") for name in names)
