"""Stores of made-up runs of any size, written in seconds: what benchmarks/spark_scale.py reads.

A run is a minute of three nodes and two queues with the faults, polls and node events of the
reports' example (tests/world); its clients' operations are drawn by numpy. In each run some
messages are lost, delivered twice, delivered though they had failed, and never asked for.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.core.history import HISTORY_SCHEMA, History, write_events, write_history
from shalott.core.plan import dump_plan
from tests.world.harness.report_run import NODES, QUEUES, S, example_history, example_plan

SECONDS = 60
DRAIN_NS = (SECONDS + 3) * S
ENQUEUED = 0.55  # of all operations; the others are deliveries
LOST, TWICE, PHANTOM, NOWHERE = 0.004, 0.003, 0.0005, 0.0002


def write_store(store: Path, runs: int, operations: int) -> None:
    """Runs of about so many operations each, of different seeds."""
    for seed in range(runs):
        directory = store / f"night-{seed // 50:02d}" / f"{seed:04d}"
        directory.mkdir(parents=True)
        history = made_up(operations, seed)
        (directory / "plan.json").write_bytes(dump_plan(example_plan()))
        write_events(history.events, directory / "events.parquet")
        write_history(history.ops, directory / "history.parquet")


@cache
def _frame() -> tuple[pa.Table, pa.Table]:
    """The rows that are nobody's, those that say "empty" in the drain, and the events."""
    example = example_history(SECONDS, 2.0)
    ops = example.ops
    said_empty = pc.and_(
        pc.equal(pc.fill_null(ops["error"], ""), "empty"),
        pc.greater_equal(ops["invoke_ns"], DRAIN_NS),
    )
    kept = pc.or_(pc.less(ops["process"], 0), said_empty)
    return ops.filter(kept), example.events


def made_up(operations: int, seed: int) -> History:
    """One run."""
    rng = np.random.default_rng(seed)
    frame, events = _frame()
    sent = int(operations * ENQUEUED)
    begin = np.sort(rng.integers(S, SECONDS * S, sent))
    end = begin + (rng.lognormal(0.9, 0.55, sent) * 1e6).astype(np.int64)
    queue = rng.integers(len(QUEUES), size=sent)
    luck = rng.random(sent)
    kind = np.where(luck < 0.97, "ok", np.where(luck < 0.985, "info", "fail"))
    value = (rng.integers(25, size=sent) << 40) | np.arange(sent)
    enqueues = _columns(rng, sent, "enqueue", begin, end, queue, value, kind, None)
    fate = rng.random(sent)
    taken = np.flatnonzero((fate > LOST) & ((kind != "fail") | (fate > 1 - PHANTOM)))
    taken = taken[: operations - sent]
    again = taken[rng.random(len(taken)) < TWICE]
    given = np.concatenate((taken, again))
    after = end[given] + rng.integers(1, 2 * S, len(given))
    flagged = np.concatenate((np.zeros(len(taken), bool), rng.random(len(again)) < 0.8))
    values = value[given].copy()
    values[rng.random(len(given)) < NOWHERE] |= 1 << 50
    dequeues = _columns(
        rng, len(given), "dequeue", after, after + 2_000_000, queue[given], values,
        np.full(len(given), "ok"), flagged,
    )  # fmt: skip
    return History(ops=_indexed([frame, enqueues, dequeues]), events=events)


def _columns(
    rng: np.random.Generator, size: int, f: str, begin: np.ndarray, end: np.ndarray,
    queue: np.ndarray, value: np.ndarray, kind: np.ndarray, flagged: np.ndarray | None,
) -> pa.Table:  # fmt: skip
    def coded(codes: np.ndarray, names: tuple[str, ...]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), list(names)).cast(
            pa.string()
        )

    ends = pa.array(end, pa.int64(), mask=kind == "info")
    columns = {
        "index": pa.array(np.zeros(size, np.int64)),
        "process": pa.array(rng.integers(15, size=size), pa.int32()),
        "node": coded(rng.integers(3, size=size), NODES),
        "f": coded(np.zeros(size, np.int32), (f,)),
        "key": coded(queue, QUEUES),
        "value": pa.array(value, pa.int64()),
        "offset": pa.nulls(size, pa.int64()),
        "type": pa.array(kind.astype(str), pa.string()),
        "invoke_ns": pa.array(begin, pa.int64()),
        "complete_ns": ends,
        "redelivered": pa.nulls(size, pa.bool_()) if flagged is None else pa.array(flagged),
        "error": pa.nulls(size, pa.string()),
        "extra": pa.nulls(size, pa.string()),
        "due_ns": pa.nulls(size, pa.int64()),
    }
    return pa.table(columns).cast(HISTORY_SCHEMA)


def _indexed(parts: list[pa.Table]) -> pa.Table:
    """In order of invocation."""
    table = pa.concat_tables([part.select(HISTORY_SCHEMA.names) for part in parts])
    table = table.sort_by("invoke_ns")
    index = pa.array(np.arange(table.num_rows, dtype=np.int64))
    return table.set_column(0, HISTORY_SCHEMA.field("index"), index).combine_chunks()
