"""The workloads beside queue: what is valid without faults, and what each of them finds."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest

from checkers.base import Result
from harness.planning import Request, make_plan
from harness.simulate import SimOutcome, simulate
from harness.verdict import judge

pytestmark = pytest.mark.sim

SEEDS = range(1, 4)


def run(seed: int = 1, **flags: Any) -> SimOutcome:
    request = Request(
        cluster="sim", **{"rate": 25.0, "time_limit": "8", "net_tick_ms": 1000, **flags}
    )
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
        {"workload": "metadata", "objects": "policy,queue"},
        {"workload": "metadata", "reads": "local"},
    ],
    ids=lambda flags: "-".join(flags.values()),
)
def test_without_faults_each_is_valid_under_safe(flags: dict[str, str]) -> None:
    outcome = run(profile="safe", nemesis="none", **flags)
    assert outcome.valid is True, [result for result in outcome.results if result.valid is not True]


def test_a_lock_has_two_holders_at_once_in_a_partition() -> None:
    """Within three seeds, and not only in the record: it is said who they were."""
    found = []
    for seed in SEEDS:
        outcome = run(
            seed,
            workload="lock",
            nemesis="partition",
            time_limit="20",
            nemesis_interval="8",
            nemesis_duration="6",
        )
        result = result_of(outcome, "linearizability")
        if result.valid is False:
            assert outcome.valid is False
            found += result.anomalies
            break
    assert found, "no two holders in three seeds"
    assert found[0].kind == "two-holders"
    assert len(found[0].operations) >= 2


def test_a_partition_under_ignore_breaks_the_order_of_a_queue() -> None:
    kinds = [
        anomaly.kind
        for seed in SEEDS
        for anomaly in result_of(
            run(
                seed,
                workload="fifo",
                nemesis="partition",
                time_limit="20",
                nemesis_interval="8",
                nemesis_duration="6",
            ),
            "fifo-order",
        ).anomalies
    ]
    assert "order" in kinds


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
    def verdicts(reads: str) -> list[bool | str]:
        return [
            result_of(
                run(
                    seed,
                    workload="metadata",
                    profile="safe",
                    reads=reads,
                    nemesis="partition",
                    time_limit="20",
                    nemesis_interval="8",
                    nemesis_duration="6",
                ),
                "linearizability",
            ).valid
            for seed in SEEDS
        ]

    assert False in verdicts("local")
    assert verdicts("leader") == [True] * len(SEEDS)
