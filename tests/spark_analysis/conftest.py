"""One Spark session for all tests, and made-up runs of which much is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from shalott.core.history import (
    EVENT_SCHEMA,
    HISTORY_SCHEMA,
    History,
    write_events,
    write_history,
)
from shalott.core.plan import dump_plan
from shalott.spark_analysis.engine_choice import Engine
from shalott.spark_analysis.findings import FleetFindings
from shalott.spark_analysis.report import make_report
from shalott.spark_analysis.report_rows import RunLine
from shalott.spark_analysis.stored_runs import Run
from tests.world.harness.report_run import example_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S = 1_000_000_000
MS = 1_000_000
NODES = ("n1", "n2", "n3")
QUEUES = ("q1", "q2")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from shalott.spark_analysis.spark_session import local_session

    with local_session(tmp_path_factory.mktemp("spark") / "spark.log", cores=2) as session:
        yield session


def store_run(store: Path, name: str, history: History, results: bytes | None = None) -> Path:
    """Write a run as the harness does."""
    directory = store / name
    directory.mkdir(parents=True)
    (directory / "plan.json").write_bytes(dump_plan(example_plan()))
    write_events(history.events, directory / "events.parquet")
    write_history(history.ops, directory / "history.parquet")
    if not history.complete:
        (directory / "history.incomplete").touch()
    if results is not None:
        (directory / "results.json").write_bytes(results)
    return directory


def lines_of(
    runs: Sequence[Run], tables: Mapping[str, pa.Table], engine: Engine
) -> dict[str, RunLine]:
    """The lines of a report, by run."""
    findings = FleetFindings(
        store="", runs=tuple(runs), tables=tables, unreadable=(), engine=engine, judged=len(runs)
    )
    return {line.run: line for line in make_report(findings).runs}


def op(f: str, begin_ns: int, end_ns: int | None, **cells: Any) -> dict[str, Any]:
    row = {
        "process": 0, "node": "n1", "f": f, "key": "q1", "value": None, "offset": None,
        "type": "ok", "invoke_ns": begin_ns, "complete_ns": end_ns, "redelivered": None,
        "error": None, "extra": None,
    }  # fmt: skip
    return row | cells


def history_of(
    ops: list[dict[str, Any]], events: list[dict[str, Any]] | None = None, complete: bool = True
) -> History:
    """Rows in order of invocation, indexed."""
    rows = sorted(ops, key=lambda row: row["invoke_ns"])
    indexed = [row | {"index": index} for index, row in enumerate(rows)]
    told = sorted(events or [], key=lambda event: event["run_ns"])
    return History(
        ops=pa.Table.from_pylist(indexed, schema=HISTORY_SCHEMA),
        events=pa.Table.from_pylist(told, schema=EVENT_SCHEMA),
        complete=complete,
    )


def broken_history(seed: int) -> History:
    """Loss, second deliveries, phantoms, foreign and damaged messages, dual masters: by chance."""
    rng = np.random.default_rng(seed)
    ops = [*_messages(rng), *_polls(rng), *_faults(rng), *_end(rng)]
    return history_of(ops, _events(rng), complete=bool(rng.random() < 0.9))


def _messages(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    for value in range(int(rng.integers(5, 60))):
        begin = int(rng.integers(0, 20 * S))
        key, node = str(rng.choice(QUEUES)), str(rng.choice(NODES))
        end = None if rng.random() < 0.1 else begin + int(rng.integers(1, 2 * S))
        kind = "info" if end is None else str(rng.choice(("ok", "ok", "ok", "fail", "info")))
        if rng.random() < 0.95:  # else: nobody sent it
            yield op("enqueue", begin, end, key=key, node=node, value=value, type=kind, process=1)
        if rng.random() < 0.03:
            yield op("enqueue", begin + S, begin + 2 * S, key="q2", value=value, process=2)
        for _ in range(int(rng.choice((0, 1, 1, 1, 1, 2, 3)))):
            yield _delivery(rng, value, begin, key)
    for _ in range(int(rng.integers(0, 3))):
        at = int(rng.integers(0, 20 * S))
        yield op("dequeue", at, at + S, key=str(rng.choice(QUEUES)), type="info", error="corrupted")
        yield op("enqueue", at, at + S, type="info")
        yield op("dequeue", at, None, type="info", error="timeout")


def _delivery(rng: np.random.Generator, value: int, sent: int, key: str) -> dict[str, Any]:
    begin = sent + int(rng.integers(-S, 8 * S))
    other = str(rng.choice(QUEUES)) if rng.random() < 0.05 else key
    return op(
        str(rng.choice(("dequeue", "drain"))),
        max(0, begin),
        None if rng.random() < 0.05 else max(0, begin) + int(rng.integers(1, 3 * S)),
        key=other,
        node=str(rng.choice(NODES)),
        value=value,
        type=str(rng.choice(("ok", "ok", "ok", "info", "fail"))),
        redelivered=(None, False, True)[rng.integers(3)],
        process=int(rng.integers(1, 9)),
    )


def _end(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    end = None if rng.random() < 0.1 else 32 * S
    extra = json.dumps({"phase": "drain"})
    if rng.random() < 0.9:
        yield op("phase", 30 * S, end, process=-1, node="", key="", type="info", extra=extra)
    for queue in QUEUES:
        for node in NODES:
            if rng.random() < 0.9:
                at = (31 if rng.random() < 0.95 else 29) * S
                cells = {"type": "fail", "error": "empty", "process": 3}
                yield op("dequeue", at, at + MS, key=queue, node=node, **cells)


def _polls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    masters = {queue: {str(rng.choice(NODES))} for queue in QUEUES}
    for tick in range(60):
        for queue in QUEUES:
            if rng.random() < 0.15:
                masters[queue] ^= {str(rng.choice(NODES))}
        for node in NODES:
            at = tick * S // 2 + int(rng.integers(0, 60 * MS))
            claims = [
                {"group": queue, "role": "master" if node in who else "mirror", "epoch": tick // 9}
                for queue, who in masters.items()
            ]
            is_ok = rng.random() < 0.9
            yield op(
                "observe", at, at + int(rng.integers(MS, 90 * MS)), process=-1, node=node, key="",
                type="ok" if is_ok else "info", extra=json.dumps({"claims": claims}),
            )  # fmt: skip


def _faults(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    for number in range(int(rng.integers(0, 3))):
        begin, kind = int(rng.integers(0, 15 * S)), str(rng.choice(("kill", "pause", "partition")))
        end = begin + int(rng.integers(S, 6 * S))
        extra = {"fault": number, "kind": kind, "nodes": [str(rng.choice(NODES))],
                 "effective_ns": begin + 50 * MS, "healed_ns": end, "proved_effective": True,
                 "proved_healed": True}  # fmt: skip
        cells = {"process": -1, "node": "", "key": "", "type": "info", "extra": json.dumps(extra)}
        yield op(kind, begin, end, **cells)


def _events(rng: np.random.Generator) -> list[dict[str, Any]]:
    """By chance: some runs have none at all, as a system that logs nothing."""
    events = []
    for _ in range(int(rng.choice((0, 10, 60)))):
        at, node = int(rng.integers(0, 30 * S)), str(rng.choice(NODES))
        kind = str(rng.choice(("role", "acked", "acked")))
        length = int(rng.integers(0, 3 * S))
        detail = {"first_ns": max(0, at - length), "last_ns": at, "count": 3}
        events.append(
            {
                "at_ns": at, "wall_ns": at, "run_ns": at, "node": node,
                "incarnation": 1 + at // (15 * S), "group": str(rng.choice(QUEUES)), "kind": kind,
                "role": "master" if kind == "acked" else str(rng.choice(("master", "mirror"))),
                "epoch": int(rng.integers(0, 6)),
                "detail": json.dumps(detail) if kind == "acked" else None,
            }
        )  # fmt: skip
    return events
