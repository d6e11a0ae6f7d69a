"""What every node of every run claimed and did as master, read by Spark's workers.

The rows of a history never cross into the JVM: each task gets a list of files, reads them with
pyarrow and calls the same functions as the in-process checkers, so that both mean the same by a
tenure and by a drained queue; what overlaps is then decided by spark_analysis.sql.dual_masters.
(Measured: a ninth of the cost of handing groups of rows to Python.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from shalott.checkers.history.columns import client_operations
from shalott.checkers.history.faults import Observation, read_surroundings
from shalott.checkers.history.tenures import (
    Tenure,
    event_tenures,
    observed_tenures,
    read_events,
    without_pauses,
)
from shalott.checkers.mastership.epochs import Restarts
from shalott.checkers.mastership.mastership import (
    acknowledged_tenures,
    acting_tenures,
    shared_epochs,
)
from shalott.checkers.queues.total_queue import undrained_queues
from shalott.core.history import read_history
from shalott.spark_analysis.columns import schema

UNDRAINED = "undrained"
ARROW = pa.schema(
    [
        *((name, pa.string()) for name in ("run", "source", "group", "node")),
        *((name, pa.int64()) for name in ("begin_ns", "end_ns", "epoch", "evidence", "round_ns")),
    ]
)


def claims(runs: DataFrame, tasks: int) -> DataFrame:
    """The claims of all runs (schema CLAIMS); ``runs`` has schema RUNS."""
    return runs.repartition(tasks, "run").mapInArrow(_read_batches, schema.CLAIMS)


def claims_here(rows: Iterable[tuple[str, str, bool, int]]) -> pa.Table:
    """The same in this process, for a few runs; ``rows`` are those of schema RUNS."""
    found = [run_claims(run, Path(path), whole, ns) for run, path, whole, ns in rows]
    return pa.Table.from_batches(found, schema=ARROW)


def _read_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            yield run_claims(row["run"], Path(row["path"]), row["complete"], row["round_ns"])


def run_claims(run: str, history_path: Path, complete: bool, round_ns: int) -> pa.RecordBatch:
    """The claims of one run, as rows of CLAIMS."""
    events_path = history_path.with_name("events.parquet")
    history = read_history(history_path, events_path, complete=complete)
    around = read_surroundings(history)
    events = read_events(history)
    ops = client_operations(history)
    polled, acted = observed_tenures(around.observations), acting_tenures(events)
    shared = shared_epochs(acted, (), Restarts.read(events, around))
    sources = {
        "seen": polled,
        "logged": without_pauses(event_tenures(events, around), around.injected),
        "polled": [r for seen in around.observations if seen.ok for r in _answers(seen)],
        "acted": acted,
        "answered": acknowledged_tenures(ops, polled),
    }
    rows = [
        (run, source, r.group, r.node, r.begin_ns, r.end_ns, r.epoch, r.evidence, round_ns)
        for source, tenures in sources.items()
        for r in tenures
    ]
    for number, one in enumerate(shared):
        # The number in place of a time tells which two belong together.
        told = one.detail
        for node, event in zip(told["nodes"], told["events"], strict=True):
            cells = (number, number, told["epoch"], event, round_ns)
            rows.append((run, "epoch", told["group"], node, *cells))
    undrained = undrained_queues(ops, around, history.complete)
    rows += [(run, UNDRAINED, queue, "", 0, 0, 0, 0, round_ns) for queue in undrained]
    columns = list(zip(*rows, strict=True)) or [()] * len(ARROW)
    arrays = [pa.array(cells, field.type) for cells, field in zip(columns, ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def _answers(seen: Observation) -> Iterator[Tenure]:
    """Each "master" in one answer, as long as the poll took."""
    for claim in seen.claims:
        if claim.role == "master":
            begin_ns, end_ns = seen.begin_ns, seen.end_ns
            yield Tenure(
                claim.group, seen.node, begin_ns, end_ns, claim.epoch, "observed", seen.index
            )
