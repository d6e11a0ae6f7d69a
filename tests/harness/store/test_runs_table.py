"""The table of runs: a row a run whatever its files are like, many writers, kills, old stores."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shalott.core.errors import UsageError
from shalott.harness.cli.runs import Filters, run_lines, selected
from shalott.harness.store import runs_table as table_module
from shalott.harness.store.columns import RUNS_SCHEMA
from shalott.harness.store.run_row import (
    bounds_us,
    buckets_of,
    digest,
    merged,
    quantile_ms,
)
from shalott.harness.store.runs_table import (
    forget_runs,
    note_runs,
    read_table,
    refresh,
    table_path,
)

pytestmark = pytest.mark.unit

PLAN: dict[str, Any] = {
    "version": 2,
    "name": "mirrored-safe-queue",
    "seed": 7,
    "time_limit_ms": 5000,
    "cluster": {"backend": "sim", "nodes": ["n1", "n2", "n3"]},
    "system": {"name": "mirrored", "profile": "safe", "bugs": ["KB-RMQ-02"]},
    "workload": {"name": "queue", "rate_hz": 100, "concurrency": 6, "parameters": {"queues": 3}},
    "gates": {},
    "faults": [{"kind": "kill", "id": 1}, {"kind": "partition-halves"}, {"kind": "kill"}],
}
RESULTS: dict[str, Any] = {
    "version": 1,
    "started_wall_ns": 1_700_000_000_000_000_000,
    "complete": True,
    "valid": False,
    "headline": "Invalid: 3 acknowledged messages were lost.",
    "elapsed_ns": 5,
    "tested": {"commit": "abc", "tree": "clean", "image": "none: no image"},
    "results": [
        {
            "checker": "total-queue",
            "valid": False,
            "counts": {"acknowledged-count": 90, "lost-count": 3, "redelivered-count": 1},
            "anomalies": [{"kind": "lost"}, {"kind": "lost"}, {"kind": "redelivered"}],
            "detail": {"broken": ["lost"]},
        },
        {"checker": "rates", "valid": "unknown", "counts": {"reached-hz": 80.5}},
        {
            "checker": "availability",
            "valid": True,
            "counts": {"never-recovered-count": 1, "longest-gap-ms": 40.5},
            "detail": {"faults": [{"recovery_ms": 12.5}, {"recovery_ms": None}]},
        },
        {"checker": "noticed", "valid": True, "counts": {"effective-fault-count": 2}},
    ],
}
STAMP = "20260304T050607.089Z"
STAMP_NS = round(datetime(2026, 3, 4, 5, 6, 7, 89000, UTC).timestamp() * 1000) * 1_000_000


def store_run(store: Path, run: str, plan: Any = PLAN, results: Any = RESULTS) -> Path:
    directory = store / run
    directory.mkdir(parents=True)
    for name, content in (("plan.json", plan), ("results.json", results)):
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (directory / name).write_text(text)
    return directory


def only_row(store: Path) -> dict[str, Any]:
    (row,) = refresh(store).table.to_pylist()
    return dict(row)


def test_a_row_says_what_the_files_say(tmp_path: Path) -> None:
    directory = store_run(tmp_path, f"a/{STAMP}")
    (directory / "tags.json").write_text('{"night": "n1", "cell": "c1", "build": "17"}')
    history = {
        "process": [0, 1, 0, -1, 2],
        "type": ["ok", "ok", "fail", "ok", "ok"],
        "invoke_ns": [0, 0, 0, 0, 0],
        "complete_ns": [10**6, 3 * 10**6, 9 * 10**9, 9 * 10**9, 9 * 10**9],
        "due_ns": [0, 0, 0, None, None],
        "of_a_later_version": [1, 2, 3, 4, 5],
    }
    pq.write_table(pa.table(history), directory / "history.parquet")
    row = only_row(tmp_path)
    assert {name: row[name] for name in ("run", "kind", "system", "profile", "nodes", "seed")} == {
        "run": f"a/{STAMP}",
        "kind": "run",
        "system": "mirrored",
        "profile": "safe",
        "nodes": 3,
        "seed": 7,
    }
    assert (row["started_wall_ns"], row["virtual_started_ns"]) == (STAMP_NS, 17 * 10**17)
    assert (row["nemesis"], row["bugs"]) == (["kill", "partition-halves"], ["KB-RMQ-02"])
    assert (row["valid"], row["lost"], row["rpo_messages"]) == ("false", 3, 3)
    assert row["failed_checkers"] == ["total-queue"] and row["unknown_checkers"] == ["rates"]
    assert [(a["kind"], a["count"], a["broken"]) for a in row["anomalies"]] == [
        ("lost", 3, True),
        ("redelivered", 1, False),
    ]
    assert (row["rto_ms"], row["never_recovered"], row["unavailable_ms_max"]) == (12.5, 1, 40.5)
    assert (row["commit"], row["image"], row["faults_made"]) == ("abc", None, 2)
    assert (row["night"], row["cell"]) == ("n1", "c1")
    assert sum(each["count"] for each in row["latency"]) == 2
    assert row["latency_p99_ms"] == pytest.approx(3, rel=1 / 32)
    assert row["unreadable"] == []


def test_new_results_tell_both_clocks_themselves(tmp_path: Path) -> None:
    told = {**RESULTS, "started_wall_ns": 18 * 10**17, "virtual_started_ns": 17 * 10**17}
    store_run(tmp_path, "renamed", results=told)
    row = only_row(tmp_path)
    assert (row["started_wall_ns"], row["virtual_started_ns"]) == (18 * 10**17, 17 * 10**17)


def test_no_run_of_an_old_simulation_is_dated_by_its_own_clock(tmp_path: Path) -> None:
    directory = store_run(tmp_path, "renamed")
    row = only_row(tmp_path)
    assert row["started_wall_ns"] == (directory / "plan.json").stat().st_mtime_ns
    assert row["virtual_started_ns"] == 17 * 10**17


@pytest.mark.parametrize(
    ("plan", "results", "told"),
    [
        (PLAN, None, []),
        (None, RESULTS, []),
        ("{", RESULTS, ["plan.json"]),
        (PLAN, "\x00", ["results.json"]),
        ('{"cluster": 3}', '{"results": 3}', ["plan.json", "results.json"]),
        ({**PLAN, "seed": 2**80, "later": "x"}, RESULTS, ["seed"]),
        ({**PLAN, "seed": 2**63}, RESULTS, ["seed"]),
        ({**PLAN, "later": {"a": 1}}, {**RESULTS, "later": [1]}, []),
        (PLAN, {**RESULTS, "results": [{"checker": "x", "counts": {"a": "b"}}]}, []),
    ],
)
def test_nothing_keeps_a_run_out(tmp_path: Path, plan: Any, results: Any, told: list[str]) -> None:
    store_run(tmp_path, f"a/{STAMP}", plan, results)
    store_run(tmp_path, f"b/{STAMP}")
    rows = refresh(tmp_path).table.to_pylist()
    assert [row["run"] for row in rows] == [f"a/{STAMP}", f"b/{STAMP}"]
    assert rows[0]["started_wall_ns"] == STAMP_NS
    assert len(rows[0]["unreadable"]) == len(told)
    assert all(word in text for word, text in zip(told, rows[0]["unreadable"], strict=True))
    assert rows[1]["unreadable"] == []


def test_a_torn_history_is_told_and_a_recording_is_a_run(tmp_path: Path) -> None:
    (store_run(tmp_path, "torn") / "history.parquet").write_bytes(b"PAR1")
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "history.jsonl").write_text("")
    rows = {row["run"]: row for row in refresh(tmp_path).table.to_pylist()}
    assert rows["torn"]["valid"] == "false" and "history" in rows["torn"]["unreadable"][0]
    assert rows["killed"]["valid"] is None


def test_a_refresh_takes_in_what_is_new_changed_or_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = store_run(tmp_path, "a/1"), store_run(tmp_path, "a/2")
    (tmp_path / "latest").symlink_to(first, target_is_directory=True)
    assert refresh(tmp_path).taken_in == 2
    read: list[str] = []
    real = table_module.read_run
    monkeypatch.setattr(table_module, "read_run", lambda p: (read.append(p.run), real(p))[1])
    again = refresh(tmp_path)
    assert (again.taken_in, again.removed, read) == (0, 0, [])
    (second / "results.json").write_text(json.dumps({**RESULTS, "valid": True}))
    os.utime(second / "results.json", ns=(1, time.time_ns() + 10**9))
    store_run(tmp_path, "deep/er/3")
    shutil.rmtree(first)
    found = refresh(tmp_path)
    assert (found.taken_in, found.removed) == (2, 1)
    assert sorted(read) == ["a/2", "deep/er/3"]
    assert dict(
        zip(found.table["run"].to_pylist(), found.table["valid"].to_pylist(), strict=True)
    ) == {"a/2": "true", "deep/er/3": "false"}
    assert found.table.equals(read_table(tmp_path))


def test_forgotten_runs_leave(tmp_path: Path) -> None:
    store_run(tmp_path, "a/1"), store_run(tmp_path, "a/2")
    refresh(tmp_path)
    forget_runs(tmp_path, ["a/1"])
    assert read_table(tmp_path)["run"].to_pylist() == ["a/2"]


@pytest.mark.parametrize("kind", ["torn", "foreign", "text", "other type"])
def test_an_unreadable_table_is_told_kept_and_made_anew(tmp_path: Path, kind: str) -> None:
    store_run(tmp_path, "a/1")
    refresh(tmp_path)
    path = table_path(tmp_path)
    if kind == "torn":
        path.write_bytes(path.read_bytes()[:-100])
    elif kind == "foreign":
        pq.write_table(pa.table({"x": [1]}), path)
    elif kind == "text":
        path.write_text("hello")
    else:
        pq.write_table(pa.table({"run": ["a"], "kind": ["run"], "lost": ["three"]}), path)
    damaged = path.read_bytes()
    with pytest.raises(UsageError) as caught:
        read_table(tmp_path)
    assert "\n" not in str(caught.value)
    store_run(tmp_path, "a/2")
    notes = note_runs(tmp_path, [tmp_path / "a/2"])
    assert len(notes) == 1 and "set aside" in notes[0]
    assert (tmp_path / "runs.parquet.unreadable-1").read_bytes() == damaged
    assert sorted(read_table(tmp_path)["run"].to_pylist()) == ["a/1", "a/2"]
    assert refresh(tmp_path).notes == ()


def test_columns_of_a_later_version_stay_and_rows_of_an_older_one_are_read_again(
    tmp_path: Path,
) -> None:
    store_run(tmp_path, "a/1")
    table = refresh(tmp_path).table
    later = table.append_column("mood", pa.array(["good"]))
    pq.write_table(later, table_path(tmp_path))
    store_run(tmp_path, "a/2")
    assert refresh(tmp_path).table["mood"].to_pylist() == ["good", None]
    older = read_table(tmp_path).drop_columns(["lost", "schema_version", "mood"])
    pq.write_table(older, table_path(tmp_path))
    found = refresh(tmp_path)
    assert found.taken_in == 2 and found.table["lost"].to_pylist() == [3, 3]


def _write_rows(store: Path, writer: int, count: int) -> None:
    for number in range(count):
        directory = store_run(store, f"w{writer}/{number}")
        note_runs(store, [directory])


def test_several_writers_lose_no_row(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_rows, args=(tmp_path, n, 8)) for n in range(4)]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        seen = max(seen, len(read_table(tmp_path)))  # a reader never meets half a table
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert len(read_table(tmp_path)) == 32


def _write_for_ever(store: Path) -> None:
    while True:
        note_runs(store, [store / "a/1"])


def test_a_killed_writer_leaves_a_whole_table_and_no_lock(tmp_path: Path) -> None:
    store_run(tmp_path, "a/1")
    refresh(tmp_path)
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        writer = context.Process(target=_write_for_ever, args=(tmp_path,))
        writer.start()
        before = table_path(tmp_path).stat().st_ino
        deadline = time.monotonic() + 20
        while table_path(tmp_path).stat().st_ino == before and time.monotonic() < deadline:
            pass
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        assert read_table(tmp_path)["run"].to_pylist() == ["a/1"]
        assert refresh(tmp_path).notes == ()


def test_campaigns_enter_with_their_denominators_and_findings_as_no_sample(tmp_path: Path) -> None:
    campaign = tmp_path / "search" / "mirrored-safe"
    store_run(tmp_path, "search/mirrored-safe/findings/seed-3")
    lines: list[Any] = [{"line": "campaign", "subject": "s", "code": "c", "python": "3"}]
    for seed, valid, error in ((1, True, None), (2, False, None), (3, False, None)):
        report = {"seed": seed, "valid": valid, "error": error, "violations": ["lost"][valid:]}
        lines.append({"line": "seed", "report": report})
    lines.append({"line": "seed", "report": {"seed": 4, "valid": "unknown"}})
    lines.append({"line": "seed", "report": {"seed": 5, "valid": "unknown", "error": "no boot"}})
    lines.append({"line": "again", "seed": 1, "digest": "d"})
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (campaign / "campaign.jsonl").write_text(text + '{"line": "se')
    summary = {"wanted": 10, "system": "mirrored", "profile": "safe", "started_wall_ns": 5}
    (campaign / "summary.json").write_text(json.dumps(summary))
    rows = {row["kind"]: row for row in refresh(tmp_path).table.to_pylist()}
    assert rows.keys() == {"campaign", "finding"}
    row = rows["campaign"]
    counts = ("wanted", "judged", "valid", "invalid", "unknown", "not_booted")
    assert [row[f"seeds_{name}"] for name in counts] == [10, 4, 1, 2, 1, 1]
    assert row["anomalies"] == [{"checker": "", "kind": "lost", "count": 2, "broken": True}]
    assert (row["valid"], row["started_wall_ns"], row["unreadable"]) == ("false", 5, [])
    assert rows["finding"]["campaign"] == "mirrored-safe"


def test_lists_are_filtered_and_the_newest_is_first(tmp_path: Path) -> None:
    store_run(tmp_path, f"a/{STAMP}")
    calm = {**PLAN, "faults": [], "system": {"name": "controller", "profile": "safe"}}
    store_run(tmp_path, "b/20270101T000000.000Z", calm, {**RESULTS, "valid": True, "results": []})
    table = refresh(tmp_path).table
    assert [line.split()[4] for line in run_lines(selected(table, Filters()))] == [
        "b/20270101T000000.000Z",
        f"a/{STAMP}",
    ]
    for filters in (
        Filters(valid="false"),
        Filters(system="mirrored"),
        Filters(nemesis="kill"),
        Filters(anomaly="lost"),
        Filters(text=STAMP.lower()),
    ):
        assert selected(table, filters)["run"].to_pylist() == [f"a/{STAMP}"]
    with pytest.raises(UsageError, match="--valid green"):
        Filters(valid="green")


def test_other_readers_read_the_file_as_it_is(tmp_path: Path) -> None:
    store_run(tmp_path, "night=1/x")
    refresh(tmp_path / "night=1")
    found = pq.read_table(table_path(tmp_path / "night=1"), partitioning=None)
    assert found.schema.equals(RUNS_SCHEMA)
    assert not [field for field in RUNS_SCHEMA if pa.types.is_unsigned_integer(field.type)]


def test_latency_digests_add_up() -> None:
    rng = np.random.default_rng(5)
    took = np.concatenate([rng.integers(0, 10**5, 500), rng.integers(0, 10**11, 500), [-5, 0]])
    for ns, bucket in zip(took, buckets_of(took), strict=True):
        low, high = bounds_us(int(bucket))
        assert low <= max(ns, 0) // 1000 < high
        assert high - low <= max(1, low / 32)
    parts = [digest(part) for part in np.array_split(took, 7)]
    assert merged(parts) == digest(took)
    exact_ms = np.sort(took)[500] / 1e6
    assert quantile_ms(merged(parts), 501 / 1002) == pytest.approx(exact_ms, rel=1 / 32)
    assert digest(np.array([], dtype=np.int64)) == [] and quantile_ms([], 0.5) is None
