"""Runs with consumers are counted by Spark as their checkers count them, queue by queue and group
by group: made-up runs of which much is wrong, and runs of the simulation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from shalott.checkers.checker import Result
from shalott.checkers.consumers.consume_rules import ConsumeRules, QueueRules
from shalott.checkers.consumers.consumer_checkers import consumer_checkers
from shalott.checkers.groups.group_checkers import group_checkers
from shalott.checkers.groups.group_rules import Group, GroupRules
from shalott.core.plan import dump_plan
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.results import render_results
from tests.harness.report.consumer_histories import consume_run, group_run
from tests.spark_analysis.conftest import lines_of, store_run
from tests.world.harness.report_run import example_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SEEDS = (1,)
QUEUES, GROUPS = ("shalott.1", "shalott.2"), ("g1", "g2")
ENDS = {
    "consumed": "consumed",
    "drained": "drained",
    "dead-lettered": "dead_lettered",
    "consumed-unsure": "unsure",
}


class Judged:
    """Runs of both workloads, by Spark at once and by the checkers one by one."""

    def __init__(self, spark: SparkSession, store: Path) -> None:
        from shalott.spark_analysis.sql_engine import judge_with_sql
        from shalott.spark_analysis.stored_runs import find_runs

        self.results: dict[str, list[Result]] = {}
        for seed in SEEDS:
            self._keep(store, f"consume/{seed}")
            self._keep(store, f"group/{seed}")
        runs = find_runs(store).runs
        tables = judge_with_sql(spark, runs)
        self.rows = tables["consumed_messages"].to_pylist()
        self.lost = tables["lost_messages"]
        self.lines = lines_of(runs, tables, "sql")
        self.told = {run.run: run.judged_consumers for run in runs}

    def _keep(self, store: Path, name: str) -> None:
        workload, _, seed = name.partition("/")
        plan = example_plan()
        if workload == "consume":
            history = consume_run(int(seed), QUEUES, 3, 1500)
            names = (*QUEUES, *(f"{queue}.dead" for queue in QUEUES))
            rules = ConsumeRules(queues=tuple(QueueRules(name=name) for name in names))
            checkers = consumer_checkers(rules)
            parameters: dict[str, Any] = {"kinds": ["plain", "dead-letters"], "queues": 2}
        else:
            history = group_run(int(seed), GROUPS, 4, 1200)
            groups = tuple(Group(name=name, topics=("orders",)) for name in GROUPS)
            keys = tuple(f"orders/{number}" for number in range(4))
            checkers = group_checkers(GroupRules(groups=groups, queues=keys, levels_ms=(1000,)))
            parameters = {}
        own = msgspec.structs.replace(plan.workload, name=workload, parameters=parameters)
        plan = msgspec.structs.replace(plan, workload=own)
        self.results[name] = [checker.check(history) for checker in checkers]
        data = render_results(plan, self.results[name], ReportMeta(command="", started_wall_ns=0))
        directory = store_run(store, name, history, data)
        (directory / "plan.json").write_bytes(dump_plan(plan))

    def row(self, run: str, lane: str) -> Mapping[str, Any]:
        found: list[Mapping[str, Any]] = [
            row for row in self.rows if (row["run"], row["lane"]) == (run, lane)
        ]
        assert len(found) == 1
        return found[0]


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    return Judged(spark, tmp_path_factory.mktemp("consumers"))


def detail(results: list[Result], name: str) -> Any:
    return next(result.detail[name] for result in results if name in result.detail)


def compared(row: Mapping[str, Any], outcomes: Mapping[str, int], lane: str) -> None:
    """A row of CONSUMED against the outcomes that a checker told of the same queue or group."""
    wanted = {name: number for name, number in outcomes.items() if name != "filtered"}
    assert row["acknowledged"] == sum(wanted.values()), lane
    for name, column in ENDS.items():
        assert row[column] == wanted.get(name, 0), (lane, name)
    assert row["gone"] == sum(n for name, n in wanted.items() if name not in ENDS), lane
    for name in ("lost", "skipped"):
        assert row[name] == wanted.get(name, 0), (lane, name)
        assert bool(row[f"{name}_operations"]) == bool(row[name])


def test_every_queue_is_counted_as_the_checker_counts_it(judged: Judged) -> None:
    for seed in SEEDS:
        run = f"consume/{seed}"
        by_queue = detail(judged.results[run], "fates-by-queue")
        for queue in QUEUES:
            compared(judged.row(run, queue), by_queue[queue], queue)
        causes = detail(judged.results[run], "redeliveries-by-cause")
        assert judged.lines[run].consumed["again"] == sum(causes.values())
    everything = [judged.row(f"consume/{seed}", queue) for seed in SEEDS for queue in QUEUES]
    for name in ("lost", "again", "again_unflagged", "unsure", "drained", "dead_lettered"):
        assert sum(row[name] for row in everything) > 5 * len(SEEDS), name


def test_every_group_is_counted_as_the_checker_counts_it(judged: Judged) -> None:
    for seed in SEEDS:
        run = f"group/{seed}"
        for told in detail(judged.results[run], "groups"):
            row = judged.row(run, told["group"])
            compared(row, told["fates"], told["group"])
            again = {name: n for name, n in told["deliveries"].items() if name != "first"}
            assert row["again"] == sum(again.values())
            assert row["deliveries"] == sum(told["deliveries"].values())
    everything = [judged.row(f"group/{seed}", group) for seed in SEEDS for group in GROUPS]
    for name in ("lost", "skipped", "again", "dead_lettered", "gone"):
        assert sum(row[name] for row in everything) > 5, name


def test_the_report_compares_with_stored_verdicts_and_they_agree(judged: Judged) -> None:
    for run, line in judged.lines.items():
        assert line.differs == {}, run
        assert len(judged.told[run]) >= 8, run
        assert line.counts["lost_provably"] == line.consumed["lost"]
        assert line.counts["duplicated"] + line.counts["redelivered"] == line.consumed["again"]
    assert judged.lost.num_rows == 0, "what consumers have is no loss of a queue's"


def test_nothing_is_lost_for_certain_in_a_queue_that_policies_empty() -> None:
    from shalott.spark_analysis.consumer_counts import counted, taking_queues

    kinds = ["plain", "ttl+dead-letters", "length", "recreated", "single-active"]
    found = taking_queues("consume", {"kinds": kinds, "queues": 7})
    assert found == ("shalott.2", "shalott.3", "shalott.7")
    assert taking_queues("queue", {"kinds": kinds}) == taking_queues("consume", {}) == ()
    none = dict.fromkeys(("attempts", "acknowledged", "deliveries", "again", "consumed"), 0)
    none |= dict.fromkeys(("drained", "dead_lettered", "unsure", "skipped", "gone"), 0)
    rows = [{**none, "lane": lane, "lost": 2} for lane in ("a", "b")]
    assert counted(rows, ["b"])["lost"] == 2
    assert counted([], []) == {}


@pytest.mark.parametrize(("system", "workload"), [("mirrored", "consume"), ("controller", "group")])
def test_a_simulated_run_is_counted_as_its_own_results_say(
    system: str, workload: str, spark: SparkSession, tmp_path: Path
) -> None:
    from shalott.spark_analysis.kernels.judge import judge_here
    from shalott.spark_analysis.sql_engine import judge_with_sql
    from shalott.spark_analysis.stored_runs import find_runs

    command = (
        f"test --system {system} --workload {workload} --cluster sim --nemesis kill --seed 5"
        f" --time-limit 8 --nemesis-interval 3 --nemesis-duration 2 --rate 60 --store {tmp_path}"
    )
    code = "from shalott.harness.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1, 2), done.stderr
    (run,) = find_runs(tmp_path).runs
    assert len(run.judged_consumers) >= 8
    by_sql = lines_of([run], judge_with_sql(spark, [run]), "sql")[run.run]
    by_kernels = lines_of([run], judge_here([run.task]), "local")[run.run]
    for line in (by_sql, by_kernels):
        assert line.consumed["consumed"] > 50
        assert line.differs == {}
    assert by_kernels.consumed == by_sql.consumed
