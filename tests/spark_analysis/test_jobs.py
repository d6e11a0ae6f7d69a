"""The jobs in plain SQL say of every run what the in-process checkers say of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from shalott.checkers.checker import Result
from shalott.checkers.history.columns import client_operations
from shalott.checkers.mastership.mastership import Mastership
from shalott.checkers.queues.outcomes import DUPLICATED, LOST, PHANTOM, message_outcomes
from shalott.checkers.queues.total_queue import TotalQueue
from shalott.core.history import HISTORY_SCHEMA, History
from tests.spark_analysis.conftest import MS, S, broken_history, history_of, lines_of, op, store_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SEEDS = range(60)
ODD_NAMES = {0: "plus+sign/100% [a-c]{x} & more", 1: "with space/ünïcode ☂"}


class Judged:
    """Many runs, judged by Spark at once and by the checkers one by one."""

    def __init__(self, spark: SparkSession, store: Path) -> None:
        from shalott.spark_analysis.sql_engine import judge_with_sql
        from shalott.spark_analysis.stored_runs import find_runs

        self.names = {seed: ODD_NAMES.get(seed, f"run/{seed:03d}") for seed in SEEDS}
        self.histories = {seed: broken_history(seed) for seed in SEEDS}
        for seed, history in self.histories.items():
            store_run(store, self.names[seed], history)
        runs = find_runs(store).runs
        assert len(runs) == len(SEEDS)
        self.tables = judge_with_sql(spark, runs)
        self.lines = lines_of(runs, self.tables, "sql")
        self.queues: dict[int, Result] = {}
        self.masters: dict[int, Result] = {}
        for seed, history in self.histories.items():
            self.queues[seed] = TotalQueue().check(history)
            self.masters[seed] = Mastership().check(history)

    def rows(self, table: str, seed: int) -> list[dict[str, Any]]:
        return [row for row in self.tables[table].to_pylist() if row["run"] == self.names[seed]]


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    return Judged(spark, tmp_path_factory.mktemp("a store+of %20 runs"))


def test_the_made_up_runs_hold_every_kind_of_anomaly(judged: Judged) -> None:
    """Or else the tests below would compare nothing with nothing."""
    total: dict[str, float] = {}
    for result in [*judged.queues.values(), *judged.masters.values()]:
        for name, value in result.counts.items():
            total[name] = total.get(name, 0) + value
    for kind in (
        *("lost", "duplicated", "redelivered", "recovered", "phantom", "unexpected", "corrupted"),
        *("too-early", "not-enqueued", "dual-master-claimed", "dual-master-effective"),
    ):
        assert total[f"{kind}-count"] > 20, kind
    assert 0 < total["lost-provably-count"] < total["lost-count"]


def test_every_count_agrees_with_the_checkers(judged: Judged) -> None:
    from shalott.spark_analysis.report_rows import COMPARED

    for seed in SEEDS:
        counts = judged.queues[seed].counts | judged.masters[seed].counts
        here = judged.lines[judged.names[seed]].counts
        assert here == {name: counts[COMPARED[name]] for name in COMPARED}, seed


def test_evidence_is_the_operations_of_those_messages(judged: Judged) -> None:
    for seed in SEEDS:
        ops = client_operations(judged.histories[seed])
        messages = message_outcomes(ops).messages
        for kind, outcome in (("lost", LOST), ("duplicated", DUPLICATED), ("phantom", PHANTOM)):
            told = messages.row[messages.outcome == outcome]
            enqueues = {int(index) for index in ops.index[told]}
            found = {
                index
                for row in judged.rows("lost_messages", seed)
                for index in row[f"{kind}_operations"]
            }
            assert bool(found) == bool(enqueues)
            if kind == "lost":
                assert found == enqueues
            else:
                values = {int(v) for v in messages.value[messages.outcome == outcome]}
                assert {int(v) for v in ops.value[np.isin(ops.index, list(found))]} <= values


def test_undrained_queues_are_those_of_the_checker(judged: Judged) -> None:
    for seed in SEEDS:
        told = judged.queues[seed].detail["undrained"]
        assert set(judged.lines[judged.names[seed]].undrained) == set(told)


def test_dual_masters_agree_in_place_time_and_nodes(judged: Judged) -> None:
    compared = 0
    for seed in SEEDS:
        told = [
            (a.kind, a.detail["group"], tuple(sorted(a.detail["nodes"])), a.detail.get("begin_ns"),
             a.detail.get("end_ns"))
            for a in judged.masters[seed].anomalies
            if a.kind.startswith("dual-master")
        ]  # fmt: skip
        counts = judged.masters[seed].counts
        if any(counts[f"dual-master-{k}-count"] > 32 for k in ("claimed", "effective")):
            continue  # the checker lists only so many
        found = [
            (f"dual-master-{r['kind']}", r["group"], tuple(r["nodes"]), r["begin_ns"], r["end_ns"])
            for r in judged.rows("dual_masters", seed)
        ]
        assert sorted(found, key=repr) == sorted(told, key=repr), seed
        compared += len(told)
    assert compared > 100


def test_double_tenure_counts_no_instant_twice(judged: Judged) -> None:
    """Against painting every millisecond of the run."""
    for seed in SEEDS:
        for row in judged.rows("tenure_times", seed):
            painted = np.zeros(60_000, dtype=bool)
            for overlap in judged.rows("dual_masters", seed):
                same = (overlap["group"], overlap["kind"]) == (row["group"], row["kind"])
                if same and overlap["begin_ns"] is not None:
                    painted[overlap["begin_ns"] // MS : overlap["end_ns"] // MS] = True
            assert abs(row["total_ns"] / MS - painted.sum()) <= 2 * row["overlaps"]


def frame(spark: SparkSession, history: History, parts: int = 1) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    from shalott.spark_analysis.sql import schema

    return (
        spark.createDataFrame(history.ops, schema.HISTORY)
        .withColumn("run", F.lit("r"))
        .repartition(parts)
    )


def test_the_result_does_not_depend_on_the_order_of_rows(spark: SparkSession) -> None:
    from shalott.spark_analysis.sql.lost_messages import lost_messages

    history = broken_history(11)
    shuffled = History(
        ops=history.ops.take(np.random.default_rng(1).permutation(history.ops.num_rows)),
        events=history.events,
    )
    one = lost_messages(frame(spark, history)).toArrow().sort_by("queue")
    other = lost_messages(frame(spark, shuffled, parts=5)).toArrow().sort_by("queue")
    assert one.num_rows == 2
    assert one.equals(other)


CASES = {
    "lost": [op("enqueue", 0, S, value=1)],
    "delivered_once": [
        op("enqueue", 0, S, value=1),
        op("dequeue", S, 2 * S, value=1, redelivered=False),
    ],
    "recovered": [
        op("enqueue", 0, S, value=1, type="info"),
        op("dequeue", S, 2 * S, value=1, type="info"),
    ],
    "not_enqueued": [op("enqueue", 0, S, value=1, type="fail")],
    "phantom": [op("enqueue", 0, S, value=1, type="fail"), op("dequeue", S, 2 * S, value=1)],
    "duplicated": [
        op("enqueue", 0, S, value=1),
        op("dequeue", S, 2 * S, value=1, redelivered=True),
        op("dequeue", 3 * S, 4 * S, value=1, redelivered=False),
    ],
    "redelivered": [
        op("enqueue", 0, S, value=1),
        op("dequeue", S, 4 * S, value=1, redelivered=True),
        op("dequeue", 3 * S, 5 * S, value=1, redelivered=False),
    ],
    "unexpected": [op("dequeue", S, 2 * S, value=1)],
    "corrupted": [op("dequeue", S, 2 * S, type="info", error="corrupted")],
}


@pytest.mark.parametrize("outcome", CASES)
def test_the_smallest_history_of_each_outcome(spark: SparkSession, outcome: str) -> None:
    from shalott.spark_analysis.sql import schema
    from shalott.spark_analysis.sql.lost_messages import lost_messages

    (row,) = lost_messages(frame(spark, history_of(CASES[outcome]))).collect()
    numbers = {
        name: row[name]
        for name in (*schema.MESSAGE_OUTCOMES, "unexpected", "corrupted", "too_early")
        if row[name]
    }
    assert numbers == {outcome: 1}
    assert row["attempts"] == sum(one["f"] == "enqueue" for one in CASES[outcome])


def test_jobs_return_their_declared_schemas(spark: SparkSession) -> None:
    from shalott.spark_analysis.sql import schema
    from shalott.spark_analysis.sql.dual_masters import dual_masters, tenure_times
    from shalott.spark_analysis.sql.lost_messages import lost_messages

    nothing = History(ops=HISTORY_SCHEMA.empty_table(), events=pa.table({}))
    lost = lost_messages(frame(spark, nothing))
    claims = spark.createDataFrame([], schema.CLAIMS)
    dual = dual_masters(claims)
    times = tenure_times(dual)
    for found, declared in (
        (lost, schema.LOST_MESSAGES),
        (dual, schema.DUAL_MASTERS),
        (times, schema.TENURE_TIMES),
    ):
        assert found.schema.simpleString() == declared.simpleString()
        assert found.collect() == []


def test_columns_are_the_harnesss_own() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from shalott.core.history import EVENT_SCHEMA
    from shalott.spark_analysis.sql import schema

    for ours, theirs in ((schema.HISTORY, HISTORY_SCHEMA), (schema.EVENTS, EVENT_SCHEMA)):
        assert to_arrow_schema(ours).equals(theirs)


def test_claims_in_arrow_and_in_spark_have_the_same_columns() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from shalott.spark_analysis.sql import schema
    from shalott.spark_analysis.sql.dual_masters import ARROW

    assert to_arrow_schema(schema.CLAIMS).equals(ARROW)
