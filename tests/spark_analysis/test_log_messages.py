"""A stored history of the workload log is counted as its checker counts it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from shalott.checkers.logs.replicated_log import ReplicatedLog
from shalott.spark_analysis.kernels.judge import judge_here
from shalott.spark_analysis.sql_engine import read_ops
from shalott.spark_analysis.stored_runs import LOG_COUNTS, find_runs
from tests.checkers.histories import NODES, Story
from tests.spark_analysis.conftest import store_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEY = "t/0"


def poll(
    told: Story,
    node: str,
    at: float,
    *records: tuple[int, int | None],
    start: int | None = None,
) -> None:
    """``start`` None: from where the reader stood."""
    extra = {"from": records[0][0], "records": [list(record) for record in records]}
    told.row("poll", at, key=KEY, node=node, value=start, extra=extra)


def story(*, broken: bool) -> Story:
    told = Story().phases()
    for number in range(8):
        told.row("send", 1 + number, key=KEY, value=100 + number, offset=number)
    told.row("send", 20, kind="info", key=KEY, value=108)  # in the log at 8
    told.row("send", 21, kind="info", key=KEY, value=109)  # never seen
    told.row("send", 22, kind="fail", key=KEY, value=110)
    log: list[tuple[int, int | None]] = [(number, 100 + number) for number in range(9)]
    if broken:
        log[3] = (3, 999)  # nobody sent it, and 103 is lost
        log[5] = (5, None)  # damaged, so 105 is in no final read
        log += [(9, 110), (10, 102)]  # a refused one; and one again
    poll(told, "n1", 30, *log[:4])
    for node in NODES:
        poll(told, node, 64.1, *log[:4], start=0)
        poll(told, node, 64.2, *log[4:])
        empty = {"from": len(log), "records": []}
        told.row(
            "poll", 64.5, kind="fail", error="empty", key=KEY, node=node, value=len(log),
            extra=empty,
        )  # fmt: skip
    return told


def counted(spark: SparkSession, store: Path, told: Story) -> tuple[dict[str, Any], dict[str, Any]]:
    """By SQL, which the kernels agree with but where that knows less; and by the checker."""
    from shalott.spark_analysis.sql.lost_messages import log_messages, lost_messages

    history = told.history()
    store_run(store, "one", history)
    runs = find_runs(store).runs
    ops = read_ops(spark, runs)
    (row,) = [r.asDict() for r in log_messages(ops).collect()]
    assert lost_messages(ops).collect() == []  # they are none of a queue's
    (own,) = judge_here([run.task for run in runs])["lost_messages"].to_pylist()
    checked = ReplicatedLog().check(history).counts
    assert own["lost"] == checked["lost-write-count"]
    same = [name for name in NAMES if name != "lost" or checked["final-count"]]
    assert {name: own[name] for name in same} == {name: row[name] for name in same}
    return row, dict(ReplicatedLog().check(history).counts)


NAMES = {"attempts": "attempt", "acknowledged": "acknowledged", "recovered": "recovered",
         "lost": "lost", "duplicated": "duplicated", "phantom": "phantom",
         "unexpected": "unexpected", "corrupted": "corrupted"}  # fmt: skip


@pytest.mark.parametrize("broken", [False, True], ids=["sound", "broken"])
def test_sends_and_polls_are_counted_as_the_checker_counts_them(
    broken: bool, spark: SparkSession, tmp_path: Path
) -> None:
    row, checked = counted(spark, tmp_path, story(broken=broken))
    renamed = {LOG_COUNTS[name]: count for name, count in checked.items() if name in LOG_COUNTS}
    assert {name: row[name] for name in NAMES} == {
        name: renamed[f"{other}-count"] for name, other in NAMES.items()
    }
    assert (row["run"], row["queue"], row["attempts"], row["acknowledged"]) == ("one", KEY, 11, 8)
    assert row["lost"] == (2 if broken else 0) and row["recovered"] == 1
    assert bool(row["lost_operations"]) is broken is bool(row["phantom"])


def test_without_a_whole_drain_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    told = story(broken=True)
    told.rows = [
        row
        for row in told.rows
        if row["f"] != "phase" or msgspec.json.decode(row["extra"])["phase"] != "drain"
    ]
    row, _ = counted(spark, tmp_path, told)
    assert row["lost"] == 0 and row["acknowledged"] == 8
