"""A small store for the tests of its pages: real run directories, a live one, a search, nights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.runs.compose import Verdict
from shalott.core.plan import Plan, dump_plan
from shalott.core.recording import Record
from shalott.harness.report.meta import ReportMeta
from shalott.harness.run.store import RunDirectory
from shalott.harness.run.verdict import save_verdict
from shalott.harness.store.columns import RUNS_SCHEMA, TABLE
from tests.world.harness.report_run import example_history, example_plan

RED = "queue-mirrored/20261120T010000.000Z"
GREEN = "queue-mirrored/20261121T010000.000Z"
LIVE = "queue-mirrored/20261122T010000.000Z"
FINDING = "search/mirrored-safe/findings/seed-7"
CAMPAIGN = "search/mirrored-safe"
NIGHTS = ("night-1", "night-2", "night-3")
START_NS = 1_795_000_000_000_000_000  # in November 2026
DAY_NS = 86_400_000_000_000
LOG_LINES = 400

LOST = Result(
    checker="total-queue",
    valid=False,
    counts={"acknowledged-count": 1000, "lost-count": 12, "lost-unexplained-count": 2},
    anomalies=(Anomaly(kind="lost", summary="12 acknowledged messages of orders are gone."),),
)
KEPT = Result(checker="total-queue", valid=True, counts={"acknowledged-count": 1000})


def make_store(root: Path) -> Path:
    """The store, with its table."""
    history = example_history(seconds=20, rate_hz=30)
    _run(root / RED, example_plan(20, 30), history, LOST)
    calmer = msgspec.structs.replace(example_plan(20, 30), seed=8, faults=())
    _run(root / GREEN, calmer, history, KEPT)
    _live(root / LIVE)
    _search(root)
    write_table(root, [*rows_of_runs(), *rows_of_nights()])
    return root


def _run(path: Path, plan: Plan, history: Any, result: Result) -> None:
    directory = RunDirectory(path)
    path.mkdir(parents=True)
    directory.save_plan(plan)
    directory.save_history(history)
    meta = ReportMeta(command="shalott test --seed 7", started_wall_ns=START_NS)
    verdict = Verdict(valid=result.valid, results=(result,))
    save_verdict(plan, history, verdict, meta, directory)
    directory.save_text("log.txt", "the harness booted\nthe harness healed\n")
    for node in ("n1", "n2"):
        (path / "nodes" / node).mkdir(parents=True)
        lines = [f"{at} {node} mirrored queue at work" for at in range(LOG_LINES)]
        lines[300] = f"{node} promoted itself to master"
        (path / "nodes" / node / "broker.log").write_text("\n".join(lines) + "\n")


def recorded(count: int, begin: int = 0) -> bytes:
    """``count`` enqueues, ten a second, every fifth of them refused."""
    lines = []
    for index in range(begin, begin + count):
        at_ns = index * 100_000_000
        kind, error = ("fail", "refused") if index % 5 == 4 else ("ok", None)
        lines += [
            Record(index, "invoke", at_ns, 0, "n1", "enqueue", "q", index),
            Record(index, kind, at_ns + 1_000_000, error=error),
        ]
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def _live(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "plan.json").write_bytes(dump_plan(example_plan()))
    (path / "history.jsonl").write_bytes(recorded(40))


def _search(root: Path) -> None:
    place = root / FINDING
    place.mkdir(parents=True)
    plan = example_plan()
    (place / "plan.json").write_bytes(dump_plan(plan))
    minimal = msgspec.structs.replace(plan, faults=plan.faults[:1], time_limit_ms=3000)
    (place / "minimal.json").write_bytes(dump_plan(minimal))
    summary = {
        "command": "shalott search --seeds 50",
        "wanted": 50, "ran": 48, "valid": 46, "invalid": 1, "unknown": 1,
        "classes": {"lost": {"count": 1, "seeds": [7], "kept": ["findings/seed-7"]}},
    }  # fmt: skip
    (root / CAMPAIGN / "summary.json").write_bytes(msgspec.json.encode(summary))


def row(run: str, **said: Any) -> dict[str, Any]:
    """A row of the table; what is not said is null, or empty."""
    common = {
        "run": run, "kind": "run", "night": "", "cell": "", "campaign": "", "unreadable": [],
        "files_changed_ns": 0, "schema_version": 1, "started_wall_ns": START_NS, "seed": 7,
        "system": "mirrored", "profile": "upstream", "workload": "queue", "cluster": "docker",
        "nemesis": ["kill", "partition"], "valid": "true", "headline": "Valid: all is there.",
        "commit": "abcdef0123456789",
    }  # fmt: skip
    return {**common, **said}


def rows_of_runs() -> list[dict[str, Any]]:
    lost = [{"checker": "total-queue", "kind": "lost", "count": 12, "broken": True}]
    return [
        row(RED, valid="false", headline="Invalid: 12 lost", anomalies=lost, lost=12),
        row(GREEN, seed=8, started_wall_ns=START_NS + DAY_NS, latency_p99_ms=3.5),
    ]


def rows_of_nights() -> list[dict[str, Any]]:
    """Three nights of two cells, twice each; one cell is red in the last."""
    rows = []
    for number, night in enumerate(NIGHTS):
        for cell, nemesis in (("a/kill", ["kill"]), ("a/pause", ["pause"])):
            for repeat in range(2):
                red = night == NIGHTS[-1] and cell == "a/kill" and repeat == 0
                rows.append(
                    row(
                        f"{night}-{cell.replace('/', '-')}/{repeat}",
                        night=night,
                        cell=cell,
                        nemesis=nemesis,
                        seed=100 + repeat,
                        started_wall_ns=START_NS + (10 + number) * DAY_NS + repeat,
                        valid="false" if red else "true",
                        headline="Invalid: red" if red else "Valid: green",
                        latency_p99_ms=10.0 + repeat,
                    )
                )
    return rows


def write_table(root: Path, rows: list[Mapping[str, Any]] | list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(list(rows), schema=RUNS_SCHEMA), root / TABLE)
