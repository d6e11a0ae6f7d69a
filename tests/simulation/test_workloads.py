"""The workloads beside queue: what is valid without faults, and what each of them finds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shalott.broker.rabbit.metadata import access
from shalott.checkers.checker import Result
from shalott.checkers.linearizability.explanation import from_detail
from shalott.core.history import write_history
from shalott.harness.cli.main import run_command
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import SimOutcome, simulate
from shalott.harness.run.verdict import judge

pytestmark = pytest.mark.sim

SEEDS = range(1, 4)


def run(seed: int = 1, **flags: Any) -> SimOutcome:
    known = {field.name for field in dataclasses.fields(Request)}
    own = {name: value for name, value in flags.items() if name in known}
    given: dict[str, str | bool] = {"net-tick": "1s"} | {
        name.replace("_", "-"): str(value) for name, value in flags.items() if name not in known
    }
    request = Request(cluster="sim", given=given, **{"rate": 25.0, "time_limit": "8", **own})
    outcome = simulate(make_plan(request, backend="sim", seed=seed))
    assert outcome.error is None
    return outcome


def result_of(outcome: SimOutcome, checker: str) -> Result:
    (found,) = [result for result in outcome.results if result.checker == checker]
    return found


@pytest.mark.parametrize(
    "flags",
    [
        {"workload": "lock"},
        {"workload": "fifo"},
        {"workload": "fifo", "consumers": "single", "order": "exactly-once"},
        {"workload": "metadata"},
        {"workload": "metadata", "reads": "local"},
    ],
    ids=lambda flags: "-".join(flags.values()),
)
def test_without_faults_each_is_valid_under_safe(flags: dict[str, str]) -> None:
    outcome = run(profile="safe", nemesis="none", **flags)
    assert outcome.valid is True, [result for result in outcome.results if result.valid is not True]


PARTITIONS = {
    "nemesis": "partition",
    "time_limit": "20",
    "nemesis_interval": "8",
    "nemesis_duration": "6",
}


def test_a_lock_has_two_holders_at_once_in_a_partition() -> None:
    """Within three seeds, and not only in the record: it is said who they were."""
    for seed in SEEDS:
        outcome = run(seed, workload="lock", **PARTITIONS)
        result = result_of(outcome, "linearizability")
        if result.valid is False:
            break
    assert outcome.valid is False, "no two holders in three seeds"
    anomaly = result.anomalies[0]
    assert anomaly.kind == "two-holders"
    assert "held the lock at once" in anomaly.summary
    assert len(anomaly.operations) >= 2 and "partition" in anomaly.detail["why"]
    assert from_detail(result.detail)[0].key == anomaly.detail["queue"]


def test_a_run_of_locks_is_judged_alike_as_the_edn_that_is_exported(tmp_path: Path) -> None:
    """Several locks, clients that go on after a crash and hold a lock as the same owner."""
    verdicts = set()
    for seed in SEEDS:
        outcome = run(
            seed, workload="lock", profile="safe" if seed == 1 else "upstream", **PARTITIONS
        )
        write_history(outcome.history.ops, tmp_path / "history.parquet")
        own = run_command(["check", f"{tmp_path}/history.parquet", "-m", "owner-lock"])
        for how in ([], ["--keyed"], ["--plain"]):
            exported = f"{tmp_path}/history.edn"
            assert run_command(["export", f"{tmp_path}/history.parquet", "-o", exported, *how]) == 0
            assert run_command(["check", exported, "-m", "owner-lock"]) == own
        verdicts.add(own)
    assert verdicts == {0, 1}, "a valid run and an invalid one"


def test_a_partition_under_ignore_breaks_the_order_of_a_queue() -> None:
    assert any(
        anomaly.kind == "order"
        for seed in SEEDS
        for anomaly in result_of(run(seed, workload="fifo", **PARTITIONS), "fifo-order").anomalies
    )


def test_two_messages_that_change_places_are_out_of_order() -> None:
    """A run that was valid, and the same with one swap in its record."""
    outcome = run(workload="fifo", profile="safe", nemesis="none", queues=1)
    rows = outcome.history.ops.to_pylist()
    given = [row for row in rows if row["f"] == "dequeue" and row["type"] == "ok"]
    first, second = next(
        (a, b)
        for a, b in zip(given, given[1:], strict=False)
        if a["complete_ns"] < b["invoke_ns"] and _enqueued_apart(rows, a["value"], b["value"])
    )
    first["value"], second["value"] = second["value"], first["value"]
    swapped = dataclasses.replace(
        outcome.history, ops=pa.Table.from_pylist(rows, outcome.history.ops.schema)
    )
    verdict = judge(outcome.plan, swapped)
    assert verdict.valid is False
    (anomaly,) = verdict.of("fifo-order").anomalies
    assert anomaly.kind == "order"
    assert {first["index"], second["index"]} <= {*anomaly.operations}


def _enqueued_apart(rows: list[dict[str, Any]], earlier: int, later: int) -> bool:
    """Whether one enqueue had returned before the other was called."""
    at = {row["value"]: row for row in rows if row["f"] == "enqueue"}
    return bool(at[earlier]["complete_ns"] < at[later]["invoke_ns"])


def test_local_reads_of_metadata_are_stale_in_a_partition_and_the_leaders_are_not() -> None:
    def verdict(seed: int, reads: str) -> bool | str:
        outcome = run(seed, workload="metadata", profile="safe", reads=reads, **PARTITIONS)
        return result_of(outcome, "linearizability").valid

    stale = next(seed for seed in SEEDS if verdict(seed, "local") is False)
    assert verdict(stale, "leader") is True


RETRIES = {
    "workload": "metadata",
    "objects": "policy",
    "profile": "safe",
    "nemesis": "kill,partition",
    "rate": 80.0,
    "queues": 1,
    "concurrency": "4n",
    "time_limit": "14",
    "nemesis_interval": "2",
    "nemesis_duration": "1.5",
}


@pytest.mark.parametrize("once", [True, False])
def test_a_write_whose_leader_died_is_not_done_again_over_anothers(
    once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan in which it was; and it is found if a write is simply tried again."""
    if not once:
        monkeypatch.setattr(access, "DOUBTFUL", ())
    assert result_of(run(28, **RETRIES), "linearizability").valid is once


@pytest.mark.parametrize("seed", [102, 105])
def test_a_queue_is_not_declared_again_over_anothers_delete(seed: int) -> None:
    """Two plans in which it was: a declare went on until it found its queue."""
    outcome = run(
        seed,
        workload="metadata",
        objects="queue",
        profile="safe",
        nemesis="partition,kill",
        nemesis_interval="8",
        nemesis_duration="5",
        time_limit="40",
        rate=30.0,
        net_tick="4s",
    )
    assert result_of(outcome, "linearizability").valid is True
