"""Two masters at once, over the claims of any number of runs.

Claims: the rows of a history never cross into the JVM. Each task gets a list of files, reads them
with pyarrow and calls the same functions as the in-process checkers, so that both mean the same by
a tenure and by a drained queue. (Measured: a ninth of the cost of
handing groups of rows to Python.)

Overlaps: the definitions are those of checkers/mastership/mastership.py. *Claimed*: the tenures of
two nodes share more than the tolerance, as logged or as polled, or both answered "master" in one
round of polls. *Effective*: two nodes acknowledged writes in stretches that share more than the
tolerance, or in one epoch. What a lesser witness shows is left out where a better one shows it.

Claims of one group of one run are few, so pairs are found by one join on (run, group); a running
maximum of ends would count episodes, and merge what the checker tells apart. All else is windows
over the pairs of the same two nodes. Where polls make one overlap, and where time is summed and no
instant may count twice, intervals are merged as gaps and islands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

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
from shalott.spark_analysis.sql import schema

ROUNDS_APART = 3  # doubly answered rounds at most so far apart make one overlap

_PLACE = ("run", "group")
_NODES = ("run", "group", "nodes")
_CLAIMED = ("logged", "seen", "polled")
_BY_EVENTS = ("logged", "acted")
UNDRAINED = "undrained"
ARROW = pa.schema(
    [
        *((name, pa.string()) for name in ("run", "source", "group", "node")),
        *((name, pa.int64()) for name in ("begin_ns", "end_ns", "epoch", "evidence", "round_ns")),
    ]
)


def dual_masters(claims: DataFrame, tolerance_ns: int = 100_000_000) -> DataFrame:
    """Every pair of nodes that were masters of one group at once (schema DUAL_MASTERS)."""
    found = not_found_better(merged(simultaneous(pairs_of_claims(claims), tolerance_ns)))
    source = F.col("source")
    kind = F.when(source.isin(*_CLAIMED), "claimed").otherwise("effective")
    witness = F.when(source.isin(*_BY_EVENTS), "events").otherwise(
        F.when(source == "epoch", "epoch").otherwise("observed")
    )
    named = found.withColumns({"kind": kind, "witness": witness})
    return named.select(*schema.DUAL_MASTERS.names).to(schema.DUAL_MASTERS)


def pairs_of_claims(claims: DataFrame) -> DataFrame:
    """All pairs of claims of one source to one group by two nodes; ``a`` comes before ``b``."""
    order = F.struct("begin_ns", "evidence", "node").alias("order")
    claim = F.struct("node", "begin_ns", "end_ns", "epoch", "evidence", order)
    one = claims.select(*_PLACE, "source", "round_ns", claim.alias("a"))
    other = claims.select(*_PLACE, "source", claim.alias("b"))
    pairs = one.join(other, on=[*_PLACE, "source"], how="inner")
    return pairs.where("a.node != b.node and a.order < b.order")


def simultaneous(pairs: DataFrame, tolerance_ns: int) -> DataFrame:
    """Those that prove something."""
    is_poll, is_epoch = F.col("source") == "polled", F.col("source") == "epoch"
    begin_ns, latest_ns = F.col("b.begin_ns"), F.greatest("a.end_ns", "b.end_ns")
    shared_ns = F.least("a.end_ns", "b.end_ns") - begin_ns
    in_one_round = (latest_ns - F.col("a.begin_ns") <= F.col("round_ns")) & (
        begin_ns - F.col("a.end_ns") <= tolerance_ns
    )
    in_one_finding = F.col("a.begin_ns") == begin_ns  # see spark_analysis.sql.claims
    proves = (
        F.when(is_poll, in_one_round)
        .when(is_epoch, in_one_finding)
        .otherwise(shared_ns > tolerance_ns)
    )
    return pairs.where(proves).select(
        *_PLACE,
        F.sort_array(F.array("a.node", "b.node")).alias("nodes"),
        "source",
        "round_ns",
        F.when(~is_epoch, begin_ns).alias("begin_ns"),
        F.when(is_poll, latest_ns).when(~is_epoch, F.least("a.end_ns", "b.end_ns")).alias("end_ns"),
        F.when(is_epoch, F.col("a.epoch")).alias("epoch"),
        F.array("a.evidence", "b.evidence").alias("evidence"),
        F.struct("a.order", "b.order").alias("order"),
    )


def merged(pairs: DataFrame) -> DataFrame:
    """Polls of near rounds as one; every other pair stands for itself."""
    in_order = Window.partitionBy(*_NODES, "source").orderBy("order")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    apart_ns = F.col("begin_ns") - F.lag("end_ns").over(in_order)
    is_far = F.coalesce(apart_ns > ROUNDS_APART * F.col("round_ns"), F.lit(True))
    is_new = (F.col("source") != "polled") | is_far
    return (
        pairs.withColumn("is_new", is_new.cast("int"))
        .withColumn("island", F.sum("is_new").over(so_far))
        .groupBy(*_NODES, "source", "island")
        .agg(
            F.min("begin_ns").alias("begin_ns"),
            F.max("end_ns").alias("end_ns"),
            F.max("epoch").alias("epoch"),
            F.min_by("evidence", "order").alias("evidence"),
        )
        .drop("island")
    )


def not_found_better(found: DataFrame) -> DataFrame:
    """Without what a better witness has told of the same two nodes at the same time."""
    both = Window.partitionBy(*_NODES)
    source = F.col("source")

    def spans_of(name: str) -> Column:
        return F.collect_list(F.when(source == name, F.struct("begin_ns", "end_ns"))).over(both)

    def touches(span: Column) -> Column:
        return (F.col("begin_ns") <= span["end_ns"]) & (span["begin_ns"] <= F.col("end_ns"))

    is_effective = F.max(source.isin("acted", "answered")).over(both)
    told = {"acted": spans_of("acted"), "seen": spans_of("seen"), "is_effective": is_effective}
    is_told = (
        F.when(source == "answered", F.exists("acted", touches))
        .when(source == "polled", F.exists("seen", touches))
        .when(source == "epoch", F.col("is_effective"))
        .otherwise(False)
    )
    return found.withColumns(told).where(~is_told).drop(*told)


def tenure_times(found: DataFrame) -> DataFrame:
    """How often and how long, by run, group and kind (schema TENURE_TIMES)."""
    lane = Window.partitionBy(*_PLACE, "kind").orderBy("begin_ns", "end_ns")
    before = lane.rowsBetween(Window.unboundedPreceding, -1)
    latest_ns = F.coalesce(F.max("end_ns").over(before), F.lit(-1))
    begin_ns = F.greatest("begin_ns", "latest_ns")
    own_ns = F.greatest(F.lit(0), F.col("end_ns") - begin_ns)
    return (
        found.withColumn("latest_ns", latest_ns)
        .groupBy(*_PLACE, "kind")
        .agg(
            F.count("*").alias("overlaps"),
            F.count_if(F.col("begin_ns") > F.col("latest_ns")).alias("stretches"),
            F.coalesce(F.sum(F.when(F.col("end_ns").isNotNull(), own_ns)), F.lit(0)).alias(
                "total_ns"
            ),
        )
        .to(schema.TENURE_TIMES)
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
